from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

import everlearn  # noqa: F401  (registers the environment)
from everlearn.continual_bench.env import ContinualBenchEnv

GOLDEN = sorted((Path(__file__).parents[1] / "data" / "golden").glob("*.npz"))
PUBLISHED_NAMES = {
    "block": "pick-place",
    "button": "button-press",
    "door": "door-open",
    "peg": "peg-unplug",
    "window": "window-close",
    "faucet": "faucet-close",
}


@pytest.fixture
def env() -> Iterator[ContinualBenchEnv]:
    made = gymnasium.make("everlearn/ContinualBench-v0", terminate_on_success=False)
    yield made.unwrapped
    made.close()
