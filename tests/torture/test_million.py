"""A million updates of a small model: memory stays where it is, and so do the numbers."""

from __future__ import annotations

import resource
import sys

import numpy as np
import pytest

from tests.online.worlds import small_model
from tests.torture.length import often


def transitions(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps from all over the space and past its edges, so that every cell comes into use."""
    generator = np.random.default_rng(seed)
    obs = np.clip(generator.normal(0, 2, (count, 3)), -9, 9)
    action = generator.uniform(-1, 1, (count, 2))
    change = 0.1 * np.stack([action[:, 0], action[:, 1] - obs[:, 0] / 9, np.sin(obs[:, 1])], 1)
    return obs, action, np.clip(obs + change + generator.normal(0, 0.01, change.shape), -9.5, 9.5)


def resident_kb() -> int:
    """Memory of this process now."""
    with open("/proc/self/statm", encoding="utf-8") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("updates", "precision"),
    [
        (5_000, "float64"),
        pytest.param(
            often(1_000_000, 5_000),
            "float64",
            marks=[pytest.mark.torture, pytest.mark.timeout(30_000)],
        ),
    ],
)
def test_memory_and_numbers_stay(updates, precision, tally):
    model = small_model(features=4, bins=3, ridge=0.05, precision=precision)
    data = transitions(5_000)
    others = transitions(2_000, seed=1)
    used, memory, drifts, errors = [], [], [], []
    points = 10
    for number in range(updates):
        place = number % len(data[0])
        model.learn(*(part[place] for part in data))
        if (number + 1) % (updates // points) == 0:
            learner = model.learner
            exact = model.residual()[learner.previous]
            size = np.abs(learner.statistics.targets).max()
            drifts.append(float(np.abs(exact - learner.carried[:, :3]).max() / size))
            predicted = model.predict(others[0], others[1])
            errors.append(float(np.mean((predicted - others[2]) ** 2)))
            used.append(learner.statistics.used)
            memory.append(resident_kb())
    assert used[0] == model.encoding.cells, "every cell is in use after a tenth"
    assert max(memory[1:]) - memory[0] < 1024, f"memory grew: {memory} kB"
    assert max(drifts) < 1e-12, f"the residual drifted: {drifts}"
    assert errors[-1] == pytest.approx(errors[0], rel=0.02), f"predictions drifted: {errors}"
    # The exact solution of everything seen is where a million small steps have led.
    online = model.predict(others[0], others[1])
    model.solve()
    assert np.abs(online - model.predict(others[0], others[1])).max() < 0.05
    tally["updates of one model"] += updates
