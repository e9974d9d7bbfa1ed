from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from everlearn.agents import RandomAgent, run_episode
from everlearn.support.errors import InvalidInputError
from tests.planning.toy import ACTIONS, OBSERVATIONS, step


class Walk(gymnasium.Env[Any, Any]):
    """Ends after `last` steps, in the way asked for."""

    def __init__(self, last: int, terminate: bool) -> None:
        self.observation_space, self.action_space = OBSERVATIONS, ACTIONS
        self.last, self.terminate = last, terminate

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.asked = options
        self.at, self.obs = 0, np.zeros(2)
        return self.obs, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.at += 1
        self.obs = step(self.obs, action)
        over = self.at == self.last
        return self.obs, 0.5, over and self.terminate, over and not self.terminate, {"at": self.at}


class Watched(RandomAgent):
    def __init__(self) -> None:
        super().__init__(ACTIONS)
        self.calls: list[Any] = []

    def begin_episode(self) -> None:
        self.calls.append("begin")

    def observe(self, obs: Any, action: Any, next_obs: Any, reward: Any, terminated: Any) -> None:
        np.testing.assert_allclose(next_obs, step(obs, action))
        self.calls.append((reward, terminated))


@pytest.mark.parametrize("terminate", [True, False])
def test_an_episode(terminate: bool) -> None:
    agent, env, seen = Watched(), Walk(4, terminate), []
    result = run_episode(
        agent, env, options={"task": "x"}, on_step=lambda *transition: seen.append(transition)
    )
    assert agent.calls == ["begin", *[(0.5, False)] * 3, (0.5, terminate)]
    assert (result.length, result.total_reward, result.terminated) == (4, 2.0, terminate)
    assert result.info == {"at": 4}
    assert env.asked == {"task": "x"}
    assert len(seen) == 4


def test_max_steps() -> None:
    assert run_episode(Watched(), Walk(100, True), max_steps=7).length == 7
    with pytest.raises(InvalidInputError, match="max_steps"):
        run_episode(Watched(), Walk(100, True), max_steps=0)
