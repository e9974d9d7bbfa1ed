"""The model-free agent: what it learns, what a switch does to it, and who is told what."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from benchmarks.sac import PENDULUM_STEPS, SEEDS, pendulum_return
from everlearn.agents import AGENTS, sac_agent
from everlearn.deep.sac.agent import DEFAULTS, SACAgent
from everlearn.deep.sac.learner import SACConfig
from everlearn.deep.strategies import STRATEGIES, ElasticWeightConsolidation, FineTuning
from everlearn.support.errors import InvalidInputError, NotReadyError, UnknownNameError
from everlearn.support.settings import with_options
from tests.planning.toy import Point, step
from tests.torture.length import often, some

SMALL: dict[str, Any] = dict.fromkeys(("warm_up", "random_steps", "retraining"), 20)
SMALL |= {"hidden": 16, "layers": 2, "batch": 16, "max_tasks": 2}
NAMES = [name for name in AGENTS if name.startswith("sac-")]
FIRST, SECOND = (1.0, 1.0), (-1.0, 0.5)


def make(name: str, seed: int = 0, **options: Any) -> SACAgent:
    """With one thread: networks so small only wait for a second one."""
    env, config = Point(), with_options(AGENTS.get(name).config, {**SMALL, **options})
    return SACAgent(env.observation_space, env.action_space, config, seed=seed, threads=1)


def live(agent: SACAgent, steps: int, goal: Any = FIRST, explore: bool = True) -> np.ndarray:
    """Walk from the middle; the reward is the nearness of a goal. Returns the last place."""
    obs = np.zeros(2)
    for _ in range(steps):
        action = agent.act(obs, explore)
        after = step(obs, action)
        agent.observe(obs, action, after, -math.dist(after, goal), False)
        obs = after
    return obs


def two_tasks(name: str, steps: int = 60, second: str = "second", **options: Any) -> SACAgent:
    agent = make(name, **options)
    for task, goal in (("first", FIRST), (second, SECOND)):
        agent.begin_task(task, None)
        live(agent, steps, goal)
    return agent


def weights(agent: SACAgent) -> list[torch.Tensor]:
    return [part.detach().clone() for part in agent.learner.actor.network.parameters()]


def policy(agent: SACAgent, task: str) -> np.ndarray:
    """Actions of an evaluation of a task, at a few places."""
    copy = agent.evaluation_copy(0)
    copy.begin_task(task, None)
    places = np.random.default_rng(0).uniform(-1, 1, (6, 2))
    return np.array([copy.act(place, explore=False) for place in places])


def test_there_is_one_for_each_strategy_of_the_paper() -> None:
    expected = ["finetune", "ewc", "packnet", "coreset", "perfect-memory"]
    assert [name.removeprefix("sac-") for name in NAMES] == expected


def test_learns_from_rewards_alone() -> None:
    agent = make("sac-perfect-memory", hidden=32, batch=64, learning_rate=3e-3, discount=0.8)
    for _ in range(40):
        live(agent, 20)
    copy = agent.evaluation_copy(0, "mean")
    assert math.dist(live(copy, 15, explore=False), FIRST) < 0.3


@pytest.mark.torture
@pytest.mark.timeout(3000)
def test_learns_pendulum() -> None:
    """Mean return of at least -200 after 20,000 steps, over three seeds.

    A shorter suite asks for less: one that has learned nothing has about -1,200.
    """
    steps = min(PENDULUM_STEPS, often(PENDULUM_STEPS, 5000))
    least = -200.0 if steps == PENDULUM_STEPS else -800.0
    assert np.mean([pendulum_return(seed, steps) for seed in some(SEEDS)]) >= least


# What a switch does ------------------------------------------------------------------------


def test_finetuning_drops_its_data_and_begins_anew() -> None:
    agent = make("sac-finetune", learning_rate=1e-2)
    agent.begin_task("first", None)
    live(agent, 60)
    assert len(agent.storage) == 60
    assert agent.learner.updates == 41
    assert agent.learner.log_temperature[0] != 0.0
    assert agent.learner.log_temperature[1] == 0.0
    kept = weights(agent)
    highest = float(agent.storage.column("reward").max())
    assert agent.learner.highest_reward.tolist() == [highest, -math.inf]
    agent.begin_task("second", None)
    assert len(agent.storage) == 0
    for before, after in zip(kept, weights(agent), strict=True):
        assert torch.equal(before, after)
    live(agent, 19)  # too few to learn from: at random, and nothing is learned
    assert agent.learner.updates == 41
    live(agent, 1)
    assert agent.learner.updates == 42
    assert agent.learner.state()[1]["actor"]["steps"] == 1


def test_without_heads_there_is_one_temperature_that_begins_anew() -> None:
    agent = make("sac-finetune", learning_rate=1e-2, multi_head=False)
    agent.begin_task("first", None)
    live(agent, 60)
    assert agent.learner.log_temperature.item() != 0.0
    assert agent.learner.highest_reward.item() > -2.0
    agent.begin_task("second", None)
    assert agent.learner.log_temperature.item() == 0.0
    assert agent.learner.highest_reward.item() == -math.inf


@pytest.mark.parametrize(
    ("name", "heads"), [("sac-finetune", True), ("sac-coreset", True), ("sac-coreset", False)]
)
def test_a_task_it_is_told_of_begins_at_random(name: str, heads: bool) -> None:
    """Even where enough is kept to learn from; an agent that is not told does so once."""
    agent = make(name, warm_up=5, random_steps=30, multi_head=heads)
    drawn = [agent._acting.bit_generator.state]

    def is_random() -> bool:
        """An action of the policy is what the policy says, whatever noise there is."""
        agent._acting.bit_generator.state = drawn[0]
        first = agent.act(np.zeros(2))
        with torch.no_grad():
            agent.learner.actor.network.vector.mul_(-1.0)
            agent._acting.bit_generator.state = drawn[0]
            second = agent.act(np.zeros(2))
            agent.learner.actor.network.vector.mul_(-1.0)
        return bool((first == second).all())

    agent.begin_task("first", None)
    live(agent, 29)
    assert agent.learner.updates == 25
    assert is_random()
    live(agent, 1)
    assert not is_random()
    agent.begin_task("second", None)
    assert is_random() is heads


def test_the_task_at_hand_beginning_again_is_no_switch() -> None:
    agent = make("sac-finetune")
    agent.begin_task("first", None)
    live(agent, 30)
    agent.begin_task("first", None)
    assert len(agent.storage) == 30


def test_elastic_weights_of_the_actor_are_held_by_their_information() -> None:
    exact = {"strength": 7.0, "fisher_samples": 1000, "fisher_floor": 0.0}
    agent = make("sac-ewc", strategy=exact, multi_head=False)
    agent.begin_task("first", None)
    live(agent, 60)
    states = torch.tensor(agent.storage.column("state"))
    actor = agent.learner.actor
    before, network = weights(agent), actor.network
    agent.begin_task("second", None)
    assert actor.protection.penalty().item() == pytest.approx(0.0, abs=1e-12)

    # Independent: squared derivatives of the log probability of actions that are drawn.
    def log_probability(values: Any, state: Any, drawn: Any) -> torch.Tensor:
        outputs = torch.func.functional_call(network, values, (state[None],))[0, 0]
        normal = torch.distributions.Normal(outputs[:2], outputs[2:].exp())
        return normal.log_prob(drawn).sum()

    named = {name: part.detach() for name, part in network.named_parameters()}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        repeated = states.repeat(100, 1)
        outputs = network(repeated)[0].detach()
        drawn = torch.normal(outputs[:, :2], outputs[:, 2:].exp())
    gradients = torch.func.vmap(torch.func.grad(log_probability), in_dims=(None, 0, 0))(
        named, repeated, drawn
    )
    expected = sum(
        float((gradient**2).mean(0).sum()) * 0.01**2 * 7.0 / 2 for gradient in gradients.values()
    )
    with torch.no_grad():
        for part in network.parameters():
            part += 0.01
    assert actor.protection.penalty().item() == pytest.approx(expected, rel=0.05)
    assert len(before) == len(gradients)


@pytest.mark.parametrize("protect_critics", [False, True])
def test_elastic_weights_move_less(protect_critics: bool) -> None:
    """A penalty that is overwhelming keeps what mattered; critics only if they are protected."""
    moved = {}
    for strength in (1e-6, 1e8):
        agent = make(
            "sac-ewc",
            strategy={"strength": strength},
            protect_critics=protect_critics,
            multi_head=False,
        )
        agent.begin_task("first", None)
        live(agent, 60)
        states, actions = (torch.tensor(agent.storage.column(n)) for n in ("state", "action"))
        parts = (
            (agent.learner.actor.network, states),
            (agent.learner.critics.network, torch.cat([states, actions], 1)),
        )
        agent.begin_task("second", None)
        before = [network(inputs).detach() for network, inputs in parts]
        live(agent, 60, SECOND)
        moved[strength] = [
            float((network(inputs).detach() - kept).abs().mean())
            for (network, inputs), kept in zip(parts, before, strict=True)
        ]
    free, held = moved[1e-6], moved[1e8]
    assert held[0] < 0.5 * free[0]
    assert (held[1] < 0.5 * free[1]) is protect_critics


def test_elastic_heads_are_free_and_what_is_shared_is_held() -> None:
    """However strong the penalty: the second head learns and the first stays to the bit."""
    agent = make("sac-ewc", strategy={"strength": 1e12}, learning_rate=1e-2)
    agent.begin_task("first", None)
    live(agent, 60)
    agent.begin_task("second", None)
    protection = agent.learner.actor.protection
    names = protection.names  # type: ignore[attr-defined]
    assert "layer2_weight" not in names
    assert "layer1_weight" in names
    for importance in protection.importance:  # type: ignore[attr-defined]
        assert importance.min() >= 1e-5
    kept = weights(agent)
    live(agent, 60, SECOND)
    *shared, outputs, biases = zip(kept, weights(agent), strict=True)
    moved = max(float((after - before).abs().max()) for before, after in shared)
    for before, after in (outputs, biases):
        assert torch.equal(before[..., :4], after[..., :4])
        assert float((after - before)[..., 4:].abs().max()) > 3 * moved


def test_the_floor_holds_what_has_no_information() -> None:
    """A weight behind an input that is always zero does not matter, and is held all the same."""
    held = {}
    for floor in (0.0, 1e-5):
        agent = make("sac-ewc", strategy={"fisher_floor": floor})
        agent.begin_task("first", None)
        for _ in range(40):
            agent.observe(np.zeros(2), np.zeros(2), np.zeros(2), 0.0, False)
        agent.begin_task("second", None)
        names = agent.learner.actor.protection.names  # type: ignore[attr-defined]
        place = names.index("layer0_weight")
        held[floor] = agent.learner.actor.protection.importance[place]  # type: ignore[attr-defined]
    assert held[0.0].abs().max() == 0.0
    assert (held[1e-5] == torch.tensor(1e-5)).all()


@pytest.mark.parametrize("protect_critics", [False, True])
def test_packnet_keeps_the_first_policy_to_the_bit(protect_critics: bool) -> None:
    agent = make("sac-packnet", strategy={"expected_tasks": 3}, protect_critics=protect_critics)
    agent.begin_task("first", None)
    live(agent, 60)
    assert agent.learner.updates == 41
    agent.begin_task("second", None)
    assert agent.learner.updates == 61  # trained again after pruning
    owners = agent.learner.actor.protection.owners  # type: ignore[attr-defined]
    first, kept = policy(agent, "first"), weights(agent)
    biases = agent.learner.critics.network.biases[-2]
    before_biases = biases.clone()
    live(agent, 60, SECOND)
    np.testing.assert_array_equal(policy(agent, "first"), first)
    assert not np.array_equal(policy(agent, "second"), first)
    *shared, outputs, head_biases = zip(kept, weights(agent), strict=True)
    for owner, (before, after) in zip(owners, shared, strict=True):
        assert torch.equal(before[owner == 0], after[owner == 0])
        assert (owner == 0).any()
    moved = [bool((a != b).any()) for a, b in shared]
    assert moved == [False, False, *([True, False] * 2)]  # normalisation and biases are the first's
    for before, after in (outputs, head_biases):
        assert torch.equal(before[..., :4], after[..., :4])
        assert not torch.equal(before[..., 4:], after[..., 4:])
    assert torch.equal(biases, before_biases) is protect_critics


def test_packnet_without_heads_shares_out_the_outputs_too() -> None:
    agent = make("sac-packnet", strategy={"expected_tasks": 3}, multi_head=False)
    agent.begin_task("first", None)
    live(agent, 60)
    agent.begin_task("second", None)
    owners = agent.learner.actor.protection.owners  # type: ignore[attr-defined]
    assert len(owners) == len(weights(agent))
    first, kept = policy(agent, "first"), weights(agent)
    live(agent, 60, SECOND)
    np.testing.assert_array_equal(policy(agent, "first"), first)
    for owner, before, after in zip(owners, kept, weights(agent), strict=True):
        assert torch.equal(before[owner == 0], after[owner == 0])


def test_packnet_clips_its_gradients() -> None:
    assert make("sac-packnet").config.clip == 1.0
    agent = make("sac-packnet", clip=1e-3)
    agent.begin_task("first", None)
    live(agent, 60)
    for part in (agent.learner.actor, agent.learner.critics):
        assert float(part.network.gradient.norm()) <= 1e-3 * 1.001


def test_coreset_keeps_a_fair_share_of_both_tasks() -> None:
    agent = two_tasks("sac-coreset", 400, strategy={"capacity": 200}, update_every=1000)
    assert len(agent.storage) == 200
    assert agent.storage.seen == 800
    # Each was kept with probability 1/4: 100 of either task, give or take 8.
    rewards = agent.storage.column("reward")[:, 0]
    states = agent.storage.column("next_state") * 5.0  # to units of the world: bounds are 5
    first = np.abs(np.linalg.norm(states - FIRST, axis=1) + rewards) < 1e-4
    assert 65 < first.sum() < 135


def test_perfect_memory_keeps_everything() -> None:
    agent = two_tasks("sac-perfect-memory")
    assert len(agent.storage) == agent.storage.seen == 120
    assert agent.learner.updates == 101


# What it is told ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("heads", [True, False])
def test_only_those_told_of_tasks_read_the_name(name: str, heads: bool, tmp_path: Path) -> None:
    # Without heads a strategy may still be told of boundaries; only replay does without.
    told = heads or name not in ("sac-coreset", "sac-perfect-memory")
    agent = make(name, multi_head=heads)
    assert agent.boundary_aware is told
    assert ("name" in agent.told) is (heads or name == "sac-packnet")
    for run, second in (("same", "first"), ("other", "second")):
        two_tasks(name, 30, second, multi_head=heads).save(tmp_path / run)
    same = (tmp_path / "same").read_bytes() == (tmp_path / "other").read_bytes()
    assert same is not told


def test_tables_can_say_what_is_told() -> None:
    for name in NAMES:
        assert make(name).given == ()
        assert make(name).told == ("boundaries", "name")
    assert make("sac-coreset", multi_head=False).told == ()
    assert make("sac-ewc", multi_head=False).told == ("boundaries",)
    assert make("sac-packnet", multi_head=False).told == ("boundaries", "name")
    identified = make("sac-coreset", multi_head=False, task_identity=True)
    assert identified.boundary_aware
    assert identified.told == ("boundaries", "name")


def test_the_networks_see_the_observation_only() -> None:
    agent = make("sac-coreset", multi_head=False)
    assert agent.told == ()
    assert agent.learner.actor.network.sizes == (2, 16, 16, 4)
    assert agent.learner.critics.network.sizes == (4, 16, 16, 1)
    told = make("sac-coreset", task_identity=True, multi_head=True, max_tasks=3)
    assert told.boundary_aware
    assert "name" in told.told
    assert told.learner.actor.network.sizes == (5, 16, 16, 12)
    assert told.learner.critics.network.sizes == (7, 16, 16, 3)


@pytest.mark.parametrize("option", ["multi_head", "task_identity"])
def test_told_networks_tell_tasks_apart(option: str, tmp_path: Path) -> None:
    only = {"multi_head": False, option: True}
    agent = two_tasks("sac-coreset", max_tasks=2, **only)
    assert not np.allclose(policy(agent, "first"), policy(agent, "second"))
    np.testing.assert_array_equal(policy(agent, "unheard of"), policy(agent, "second"))
    with pytest.raises(InvalidInputError, match="max_tasks"):
        agent.begin_task("third", None)
    agent.save(tmp_path / "agent")
    other = make("sac-coreset", max_tasks=2, **only)
    other.load(tmp_path / "agent")
    np.testing.assert_array_equal(policy(other, "first"), policy(agent, "first"))


@pytest.mark.parametrize("name", ["sac-finetune", "sac-ewc", "sac-packnet"])
def test_heads_of_other_tasks_are_not_trained(name: str) -> None:
    """The second's not by the first task, and the first's not by the second; nor the critics'."""
    agent = make(name)
    networks = [part.network for part in (agent.learner.actor, agent.learner.critics)]

    def heads() -> list[torch.Tensor]:
        """Matrices and biases of both heads, cut into two."""
        ends = [end for one in networks for end in (one.matrices[-1], one.biases[-1])]
        parts = [end.unflatten(-1, (2, -1)).unbind(-2) for end in ends]
        return [torch.cat([part[place].flatten() for part in parts]) for place in (0, 1)]

    agent.begin_task("first", None)
    before = heads()
    live(agent, 40)
    agent.begin_task("second", None)  # with a few updates of the first task, if it trains again
    middle = heads()
    live(agent, 40, SECOND)
    after = heads()
    assert torch.equal(before[1], middle[1])
    assert not torch.equal(before[0], middle[0])
    assert torch.equal(middle[0], after[0])
    assert not torch.equal(middle[1], after[1])


# Acting and keeping ------------------------------------------------------------------------


def test_evaluation_has_no_noise_and_exploration_has() -> None:
    agent = make("sac-finetune", evaluation_actions="mean")
    live(agent, 40)
    place = np.array([0.3, -0.2])
    quiet = {tuple(agent.act(place, explore=False)) for _ in range(3)}
    loud = {tuple(agent.act(place)) for _ in range(3)}
    assert (len(quiet), len(loud)) == (1, 3)
    outputs = agent.learner.actor.network(torch.tensor(place / 5.0, dtype=torch.float32)[None])
    np.testing.assert_allclose(quiet.pop(), outputs[0, 0, :2].detach().tanh(), rtol=1e-5)
    copies = [agent.evaluation_copy(seed) for seed in (1, 2)]
    assert not np.array_equal(*(copy.act(place) for copy in copies))
    np.testing.assert_array_equal(*(copy.act(place, explore=False) for copy in copies))


def test_evaluation_can_draw_its_actions(tmp_path: Path) -> None:
    agent = make("sac-finetune", evaluation_actions="sample")
    agent.begin_task("first", None)
    live(agent, 40)
    place = np.array([0.3, -0.2])

    def drawn(seed: int, actions: Any = None) -> np.ndarray:
        copy = agent.evaluation_copy(seed, actions)
        return np.array([copy.act(place, explore=False) for _ in range(3)])

    assert len(np.unique(drawn(1)[:, 0])) == 3
    np.testing.assert_array_equal(drawn(1), drawn(1))
    assert not np.array_equal(drawn(1), drawn(2))
    assert len(np.unique(drawn(1, "mean")[:, 0])) == 1
    quiet = make("sac-finetune", evaluation_actions="mean")
    quiet.begin_task("first", None)
    live(quiet, 40)  # evaluations change nothing of what is learned
    for before, after in zip(weights(agent), weights(quiet), strict=True):
        assert torch.equal(before, after)
    with pytest.raises(InvalidInputError, match="actions"):
        agent.evaluation_copy(0, "loud")  # type: ignore[arg-type]


def test_actions_are_in_the_units_of_the_environment() -> None:
    space = gymnasium.spaces.Box(np.array([-3.0, 0.0]), np.array([-1.0, 10.0]), dtype=np.float64)
    agent = SACAgent(Point().observation_space, space, SACConfig(strategy=FineTuning()))
    actions = np.array([agent.act(np.zeros(2)) for _ in range(200)])
    assert actions.dtype == np.float64
    np.testing.assert_allclose(actions.mean(0), [-2.0, 5.0], atol=0.6)
    agent.observe(np.zeros(2), np.array([-1.5, 10.0]), np.zeros(2), 0.0, False)
    np.testing.assert_allclose(agent.storage.column("action")[0], [0.5, 1.0])


def test_observations_without_bounds_are_taken_as_they_are() -> None:
    endless = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    agent = SACAgent.for_env(Point(observation_space=endless))
    agent.observe(np.array([7.0, -300.0]), np.zeros(2), np.zeros(2), 0.0, False)
    np.testing.assert_array_equal(agent.storage.column("state")[0], [7.0, -300.0])
    with pytest.raises(InvalidInputError, match="single precision"):
        agent.act(np.array([0.0, 1e60]))


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_and_a_resumed_run_are_equal_to_the_bit(name: str, tmp_path: Path) -> None:
    """Across a switch, with everything that a strategy carries."""
    for run in ("one", "two"):
        two_tasks(name).save(tmp_path / run)
    agent = make(name)
    agent.begin_task("first", None)
    live(agent, 60)
    agent.save(tmp_path / "middle")
    resumed = make(name)
    resumed.begin_task("first", None)
    resumed.load(tmp_path / "middle")
    resumed.begin_task("second", None)
    live(resumed, 60, SECOND)
    resumed.save(tmp_path / "three")
    one, two, three = ((tmp_path / run).read_bytes() for run in ("one", "two", "three"))
    assert one == two == three


def test_files_of_other_agents_are_refused(tmp_path: Path) -> None:
    agent = make("sac-coreset")
    agent.save(tmp_path / "agent")
    others = (
        make("sac-finetune"),
        make("sac-coreset", strategy={"capacity": 30}),
        make("sac-coreset", 1),
    )
    for other in others:
        with pytest.raises(InvalidInputError):
            other.load(tmp_path / "agent")
    with pytest.raises(NotReadyError, match="evaluation copy"):
        agent.evaluation_copy(0).load(tmp_path / "agent")


def test_options_are_checked() -> None:
    with pytest.raises(UnknownNameError, match=r"Did you mean 'strategy\.capacity'"):
        make("sac-coreset", capacity=3)
    with pytest.raises(UnknownNameError, match=r"unknown option 'strategy\.capacity'"):
        make("sac-finetune", strategy={"capacity": 3})
    with pytest.raises(InvalidInputError, match="capacity is 19 and warm_up 20"):
        make("sac-coreset", strategy={"capacity": 19})
    with pytest.raises(InvalidInputError, match="hidden"):
        make("sac-finetune", hidden=0)
    with pytest.raises(InvalidInputError, match="after_success"):
        make("sac-finetune", after_success="never")
    assert make("sac-ewc", strategy={"strength": 3.0}).strategy.settings()["strength"] == 3.0


def test_agents_have_the_settings_of_their_strategy() -> None:
    assert set(DEFAULTS) <= set(STRATEGIES.names())
    for name, config in DEFAULTS.items():
        assert config.multi_head
        assert config.batch == (128 if config.strategy.boundary_aware else 512)
        assert config.clip == (1.0 if name == "packnet" else None)
        assert sac_agent(name).config == config
        assert SACAgent.for_env(Point(), strategy=name).config == config
    assert SACAgent.for_env(Point()).config == DEFAULTS["perfect-memory"]
    held = ElasticWeightConsolidation(strength=1e4, fisher_floor=1e-5)
    assert AGENTS.get("sac-ewc").config == SACConfig(strategy=held, multi_head=True)


def test_a_strategy_or_a_config_of_ones_own() -> None:
    mine, config = ElasticWeightConsolidation(strength=5.0), SACConfig(hidden=7)
    assert sac_agent(mine, config).config == SACConfig(hidden=7, strategy=mine)
    assert sac_agent(mine).config == SACConfig(strategy=mine, multi_head=True)
    # A config of one's own is taken as it is; the name stands for the strategy's settings alone.
    held = DEFAULTS["ewc"].strategy
    assert sac_agent("ewc", config).config == SACConfig(hidden=7, strategy=held)
    with pytest.raises(UnknownNameError, match="'ewx'"):
        sac_agent("ewx")
    with pytest.raises(UnknownNameError, match="'ewx'"):
        SACAgent.for_env(Point(), strategy="ewx")
