"""What a user's package might hold: an agent and a world, registered when it is imported."""

import json
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces

from everlearn import register_agent, register_world


class Chaser:
    """Goes to where the last task was solved, with some noise."""

    boundary_aware = True
    told = ("boundaries", "name")
    given = ()

    def __init__(self, seed, noise, towards):
        self.generator = np.random.default_rng(seed)
        self.noise, self.towards, self.steps = noise, dict(towards), 0
        self.task = None

    def begin_task(self, name, objective):
        self.task = name

    def begin_episode(self):
        pass

    def act(self, obs, explore=True):
        noise = self.generator.normal(0, self.noise, 1)
        return np.clip(self.towards.get(self.task, 0.0) + noise, -1, 1)

    def observe(self, obs, action, next_obs, reward, terminated):
        self.steps += 1
        if terminated:
            self.towards[self.task] = float(np.sign(next_obs[0]))

    def evaluation_copy(self, seed):
        return Chaser(seed, self.noise, self.towards)

    def save(self, path):
        state = [self.steps, self.towards, self.generator.bit_generator.state]
        Path(path).write_text(json.dumps(state))

    def load(self, path):
        self.steps, self.towards, state = json.loads(Path(path).read_text())
        self.generator.bit_generator.state = state


class Point(gymnasium.Env):
    """A point on a line; numbers come as NumPy's, as they do in most environments."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, goal):
        self.goal = goal

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = self.np_random.uniform(-0.1, 0.1, 1).astype(np.float32)
        return self.position.copy(), {}

    def step(self, action):
        self.position = np.clip(self.position + 0.2 * np.float32(action), -1, 1).astype(np.float32)
        distance = np.abs(self.position[0] - self.goal)
        solved = distance < 0.2
        return self.position.copy(), -distance, solved, np.bool_(False), {"success": solved}


class Line:
    """Two ends of a line."""

    name = "mine"
    tasks = ("left", "right")
    measure = "success"
    max_steps = 15

    def make(self, task, *, reset_noise=0.0, render_mode=None):
        return Point({"left": np.float32(-0.8), "right": np.float32(0.8)}[task])

    def objective(self, task):
        return None


def chaser(env, seed, *, noise: float = 0.5):
    """Goes where a task was solved before."""
    return Chaser(seed, noise, {})


register_agent("mine", chaser)
register_world("mine", Line())
