"""Small worlds and recorded transitions for the tests of the models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.interfaces import CommandedPosition
from everlearn.online import OnlineWorldModel
from everlearn.world_model.memory import (
    CommandMemory,
    HistoryMemory,
    Memory,
    MotionMemory,
    NoMemory,
)

Array = npt.NDArray[np.float64]
GOLDEN = Path(__file__).parent.parent / "data" / "golden"

OBSERVATIONS = spaces.Box(-1, 1, (3,), np.float64)
ACTIONS = spaces.Box(-1, 1, (2,), np.float64)

# Bounds of the robot's observation: hand, gripper, six objects, gripper's change, pads.
ROBOT_LOW = [-0.8, -0.8, 0.05, 0.2, -1, -1, 0.1, -0.3, 0.3, 0, -1.7, -0.8, 0.2, 0, 0.4, -0.6, 0]
ROBOT_LOW += [0, -0.8, 0, -0.8, -0.8, 0, -0.1, 0, -0.05]
ROBOT_HIGH = [0.8, 0.8, 0.5, 1, 1, 1, 0.3, 0.4, 0.8, 0.3, 0.1, -0.4, 0.5, 0.4, 0.8, -0.2, 0.228]
ROBOT_HIGH += [0.2, 0.8, 0.5, 0.8, 0.8, 0.5, 0.1, 0.05, 0]
ROBOT = spaces.Box(np.array(ROBOT_LOW), np.array(ROBOT_HIGH), dtype=np.float64)
ROBOT_ACTIONS = spaces.Box(-1, 1, (4,), np.float64)
HAND = CommandedPosition(0.01, (-0.8, -0.8, 0.05), (0.8, 0.8, 0.5), (0, 1, 2), (0, 1, 2))


def small_model(**options: Any) -> OnlineWorldModel:
    """A model of a three-dimensional world, seven grids of five bins unless told otherwise."""
    settings: dict[str, Any] = {"features": 7, "bins": 5, "ridge": 0.05, "threads": 1}
    return OnlineWorldModel(OBSERVATIONS, ACTIONS, **(settings | options))


def memories() -> list[Memory]:
    """One of each memory for the small world."""
    commands = CommandedPosition(0.1, (-0.9, -0.9), (0.9, 0.8), (1, 0), (0, 2))
    return [
        NoMemory(),
        CommandMemory(commands, gain=4.0),
        HistoryMemory(OBSERVATIONS, ACTIONS),
        MotionMemory(OBSERVATIONS, commands, command_gain=4.0, displacement_gain=10.0),
    ]


def walk(steps: int, seed: int = 0, memory: Memory | None = None) -> list[tuple[Array, ...]]:
    """Transitions ``(obs, action, next_obs, memory)`` of a noisy three-dimensional world."""
    rng = np.random.default_rng(seed)
    memory = memory or NoMemory()
    obs = rng.uniform(-0.5, 0.5, 3)
    state = memory.start(obs[None])
    out = []
    for _ in range(steps):
        action = rng.uniform(-1, 1, 2)
        change = 0.1 * np.array([action[0], action[1] - obs[0], np.sin(3 * obs[1])])
        following = np.clip(obs + change + rng.normal(0, 0.01, 3), -1, 1)
        out.append((obs, action, following, state[0]))
        state = memory.advance(state, obs[None], action[None], following[None])
        obs = following
    return out


def recorded(memory: Memory, steps: int | None = None, names: str = "*") -> list[tuple[Array, ...]]:
    """Transitions of the recorded robot episodes, with the state of `memory` at each."""
    out = []
    for path in sorted(GOLDEN.glob(f"{names}.npz")):
        with np.load(path) as data:
            obs = np.vstack([data["reset_obs"], data["obs"]])[
                : None if steps is None else steps + 1
            ]
            actions = np.clip(data["actions"], -1, 1)
        state = memory.start(obs[:1])
        for t in range(len(obs) - 1):
            out.append((obs[t], actions[t], obs[t + 1], state[0]))
            state = memory.advance(state, obs[t : t + 1], actions[t : t + 1], obs[t + 1 : t + 2])
    return out


def states_equal(first: tuple[Any, Any], second: tuple[Any, Any]) -> bool:
    """Whether two `state()` results are the same to the bit."""
    same = set(first[0]) == set(second[0]) and first[1] == second[1]
    return same and all(
        a.dtype == second[0][n].dtype and a.tobytes() == second[0][n].tobytes()
        for n, a in first[0].items()
    )
