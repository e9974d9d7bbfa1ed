"""Every strategy on two regression tasks, where forgetting can be measured."""

from __future__ import annotations

from functools import cache

import torch

from everlearn.deep.strategies import (
    Coreset,
    ElasticWeightConsolidation,
    FineTuning,
    PackNet,
    PerfectMemory,
    Strategy,
    SynapticIntelligence,
)
from tests.deep.regression import Learner, task_data

STRATEGIES = {
    "finetune": FineTuning(),
    "si": SynapticIntelligence(c=50.0),
    "ewc": ElasticWeightConsolidation(strength=300.0),
    "ewc-online": ElasticWeightConsolidation(strength=300.0, variant="online"),
    "coreset": Coreset(capacity=100),
    "perfect-memory": PerfectMemory(),
}


def after_both(strategy: Strategy) -> tuple[float, float, float]:
    """Error on the first task after it, and on the first and second after both."""
    learner = Learner(strategy)
    learner.learn("first")
    before = learner.error("first")
    learner.learn("second")
    return before, learner.error("first"), learner.error("second")


@cache
def outcome(name: str) -> tuple[float, float, float]:
    return after_both(STRATEGIES[name])


def test_fine_tuning_forgets() -> None:
    before, after, second = outcome("finetune")
    assert before < 0.01
    assert second < 0.01
    assert after > 10 * before


def test_perfect_memory_does_not() -> None:
    before, after, second = outcome("perfect-memory")
    assert second < 0.01
    assert after < 2 * before


def test_a_coreset_keeps_most() -> None:
    assert outcome("coreset")[1] < 0.1 * outcome("finetune")[1]


def test_penalties_lie_between() -> None:
    for name in ("si", "ewc", "ewc-online"):
        assert outcome("perfect-memory")[1] < outcome(name)[1] < 0.5 * outcome("finetune")[1], name


def test_packnet_keeps_old_outputs_to_the_bit() -> None:
    learner = Learner(PackNet(expected_tasks=2))
    learner.learn("first")
    trained = learner.error("first")
    learner.begin("second")
    x, _ = task_data("first")
    kept = learner.predict("first", x)
    assert learner.error("first") < max(10 * trained, 0.01)  # half of the weights are enough
    learner.learn("second")
    torch.testing.assert_close(learner.predict("first", x), kept, rtol=0, atol=0)
    assert learner.error("second") < 0.05
    # And all weights together, which the second task uses, do not give the first one's outputs.
    assert not torch.equal(learner.predict("second", x), kept)
