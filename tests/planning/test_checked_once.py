"""What comes in is checked at the agent's border, once, and by no part behind it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import gymnasium
import pytest

from everlearn.agents import make_agent
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.support import checks
from everlearn.world_model import inputs, scaling

SMALL = {"model": {"features": 8}, "planner": {"candidates": 8, "elites": 3, "horizon": 3}}
ITERATIONS = 3

CHECKS = {
    function.__code__: function.__name__
    for function in (
        checks.as_numbers,
        checks.check_number,
        checks.check_whole,
        checks.check_positive,
        scaling.as_batch,
        scaling.as_box,
        inputs.InputChecks.check_observation,
        inputs.InputChecks.check_action,
        inputs.ModelInputs.check_memory,
    )
}


def checks_called(call: Callable[[], Any]) -> tuple[Any, Counter[str]]:
    counts: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code in CHECKS:
            counts[CHECKS[frame.f_code]] += 1

    sys.setprofile(count)
    try:
        result = call()
    finally:
        sys.setprofile(None)
    return result, counts


@pytest.mark.parametrize(
    ("name", "world"), [("oa", "Bench"), ("oa", "Pendulum"), ("mlp-coreset", "Bench")]
)
def test_every_value_is_checked_once(name: str, world: str) -> None:
    env: Any = ContinualBenchEnv("window-close")
    objective = env.objective()
    if world == "Pendulum":
        env, objective = gymnasium.make("Pendulum-v1"), None
    size: dict[str, Any] = {"hidden": 8} if name == "mlp-coreset" else SMALL["model"]
    agent: Any = make_agent(name, env, 0, **{**SMALL, "model": size})
    agent.begin_task("task", objective)
    agent.begin_episode()
    obs, _ = env.reset(seed=0)
    for _ in range(2):  # the first step makes what later ones keep
        action, acting = checks_called(lambda obs=obs: agent.act(obs))
        next_obs, reward, *_ = env.step(action)
        _, observing = checks_called(
            lambda obs=obs, action=action, next_obs=next_obs, reward=reward: agent.observe(
                obs, action, next_obs, float(reward), False
            )
        )
        obs = next_obs
    # An observation, and what the objective returns in each iteration.
    numbers = 1 + ITERATIONS
    assert acting == {"check_observation": 1, "as_batch": 1, "as_numbers": numbers}
    # Two observations and an action, and the reward.
    assert observing == {
        "check_observation": 2,
        "check_action": 1,
        "as_batch": 3,
        "as_numbers": 3 + 1,
    }
