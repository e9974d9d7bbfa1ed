"""The fixed transitions and the error on them."""

import numpy as np
import pytest

from everlearn.runs.evaluate import model_error
from everlearn.worlds import world_named


class Counting:
    """A memory that counts the steps of an episode."""

    size = 1

    def start(self, obs):
        return np.zeros((len(obs), 1))

    def advance(self, state, obs, action, next_obs):
        return state + 1


class Drift:
    """Imagines that every step adds `speed`; remembers what it was asked."""

    def __init__(self, speed, memory=None):
        self.speed, self.asked = speed, []
        if memory is not None:
            self.memory = memory

    def rollout(self, obs, actions, memory=None):
        self.asked.append((obs.shape, actions.shape, memory))
        steps = np.arange(actions.shape[1] + 1)
        return obs[:, None, :] + self.speed * steps[None, :, None]


def straight(lengths):
    return [(np.arange(n + 1.0)[:, None], np.arange(n)[:, None] * 1.0) for n in lengths]


def test_error_by_hand():
    fixed = straight([4, 2])
    assert model_error(Drift(1.0), fixed, 1) == 0
    # A model that stands still is 1 off after one step and 3 off after three.
    assert model_error(Drift(0.0), fixed, 1) == 1
    assert model_error(Drift(0.0), fixed, 3) == 9
    assert model_error(Drift(0.0), fixed, 5) is None


def test_windows_never_cross_episodes_and_carry_the_memory():
    model = Drift(1.0, Counting())
    model_error(model, straight([4, 2, 3]), 2)
    (obs, actions, memory), = model.asked  # fmt: skip
    assert obs == (3 + 1 + 2, 1)
    assert actions == (6, 2, 1)
    np.testing.assert_array_equal(memory[:, 0], [0, 1, 2, 0, 0, 1])


@pytest.mark.parametrize("task", ["door-open", "faucet-close"])
def test_sets_are_the_same_every_time_and_larger_ones_go_on(task):
    heldout = world_named("continual-bench").heldout_episodes
    small, again, large = heldout(task, 40), heldout(task, 40), heldout(task, 250)
    assert sum(len(actions) for _, actions in small) == 40
    assert sum(len(actions) for _, actions in large) == 250
    assert len(large) > 1
    for one, two in ((small, again), (small, large)):
        np.testing.assert_array_equal(one[0][1][:40], two[0][1][:40])
        np.testing.assert_array_equal(one[0][0][:41], two[0][0][:41])
    assert not np.array_equal(large[0][1][:10], large[1][1][:10])


def test_tasks_without_a_script_have_no_set():
    assert world_named("continual-bench").heldout_episodes("reach-up", 10) == []
