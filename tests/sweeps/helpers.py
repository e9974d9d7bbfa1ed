"""Small sweeps, and a module with agents such as a user would write."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console

from everlearn.sweeps.job import Job
from everlearn.sweeps.progress import SweepProgress
from tests.runs.worker import tiny


def jobs_in(folder: Path, count: int = 2, **settings: Any) -> list[Job]:
    """Runs of the random agent that take seconds."""
    return [job_in(folder, "random", seed=seed, **settings) for seed in range(count)]


def job_in(folder: Path, agent: str, seed: int = 0, **settings: Any) -> Job:
    name = f"{agent}-{seed}"
    return Job(name, tiny(agent, seed=seed, **settings), str(folder / name))


def silent() -> SweepProgress:
    return SweepProgress(Console(file=io.StringIO()), quiet=True)


USER_AGENTS = '''
import os
import sys

import numpy as np

from everlearn import register_agent


class UserAgent:
    """Acts at random; `trouble`, if any, comes in its second episode."""

    boundary_aware = False
    told = ()
    given = ()

    def __init__(self, env, seed, trouble=None):
        self.space, self.trouble, self.episodes = env.action_space, trouble, 0
        self.generator = np.random.default_rng(seed)

    def begin_task(self, name, objective):
        pass

    def begin_episode(self):
        self.episodes += 1
        if self.episodes == 2 and self.trouble is not None:
            self.trouble()

    def act(self, obs, explore=True):
        return self.generator.uniform(self.space.low, self.space.high)

    def observe(self, obs, action, next_obs, reward, terminated):
        pass

    def evaluation_copy(self, seed):
        copy = UserAgent.__new__(UserAgent)
        copy.space, copy.trouble, copy.episodes = self.space, None, 0
        copy.generator = np.random.default_rng(seed)
        return copy

    def save(self, path):
        with open(path, "w") as file:
            file.write(repr((self.episodes, self.generator.bit_generator.state)))

    def load(self, path):
        with open(path) as file:
            self.episodes, self.generator.bit_generator.state = eval(file.read())


def divide():
    return 1 / 0


def make_mine(env, seed):
    return UserAgent(env, seed)


def make_dividing(env, seed):
    return UserAgent(env, seed, divide)


def make_leaving(env, seed):
    return UserAgent(env, seed, lambda: sys.exit("had enough"))


def make_vanishing(env, seed):
    return UserAgent(env, seed, lambda: os._exit(3))


register_agent("mine", make_mine)
register_agent("dividing", make_dividing)
register_agent("leaving", make_leaving)
register_agent("vanishing", make_vanishing)
'''
