"""Continual Bench as a Gymnasium environment."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium
import mujoco
import numpy as np
from gymnasium import spaces

from everlearn.continual_bench import observation, rewards
from everlearn.continual_bench.observation import ObservationReader
from everlearn.continual_bench.reset import MAX_RESET_NOISE, SPREAD, SUBSTEPS, settle
from everlearn.continual_bench.scene import build_model
from everlearn.continual_bench.tasks import PAPER_TASKS, TASKS, Task
from everlearn.interfaces import FloatArray, Objective
from everlearn.support.checks import as_numbers, check_number, check_whole
from everlearn.support.errors import InvalidInputError, NotReadyError, given

if TYPE_CHECKING:
    from everlearn.continual_bench.rendering import Camera, Viewer

MAX_STEPS = 500

_INTEGRATION = mujoco.mjtState.mjSTATE_INTEGRATION
# The compiled rewards are numbered in an order of their own.
_BUILTIN = tuple(sorted(PAPER_TASKS, key=lambda name: TASKS.get(name).kind))


@dataclass(frozen=True)
class SimulationState:
    """Everything that decides how an episode goes on; arrays and plain values only."""

    task: str
    physics: FloatArray
    observation: FloatArray
    fingers: FloatArray
    start: FloatArray
    opening: float
    steps: int
    running: bool
    generator: str


class ContinualBenchEnv(gymnasium.Env[FloatArray, FloatArray]):
    """Six manipulation tasks around one table, in one world with one dynamics.

    Parameters
    ----------
    task
        Name of the task to begin with; ``reset(options={"task": name})`` switches.
    terminate_on_success
        End the episode as soon as the current task is solved.
    reset_noise
        How far, in metres, a reset spreads the hand, the block and the handles, by seed.
    render_mode
        ``"rgb_array"``, ``"human"`` or None.
    width, height
        Size of a rendered frame in pixels.

    Notes
    -----
    ``info`` holds ``success`` of the current task, ``rewards`` and ``successes`` of all tasks by
    name and ``task``. Actions are ``(dx, dy, dz, gripper)``; values outside [-1, 1] are clipped,
    as published.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  (declared as an instance's by Gymnasium)
        "render_modes": ["rgb_array", "human"],
        "render_fps": 80,
    }
    commanded_position = observation.COMMANDED_POSITION
    bodies = observation.BODIES
    observation_names = observation.NAMES
    _bounds: tuple[FloatArray, FloatArray] = (observation.LOW, observation.HIGH)

    def __init__(
        self,
        task: str = PAPER_TASKS[0],
        *,
        terminate_on_success: bool = True,
        reset_noise: float = 0.0,
        render_mode: str | None = None,
        width: int = 480,
        height: int = 480,
    ) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise InvalidInputError(
                f"unknown render mode {render_mode!r}; known: "
                f"{', '.join(self.metadata['render_modes'])}, or None for no rendering"
            )
        check_number("reset_noise (metres)", reset_noise, 0.0, MAX_RESET_NOISE)
        check_whole("width", width, 16, 4096)
        check_whole("height", height, 16, 4096)
        self.terminate_on_success = bool(terminate_on_success)
        self.reset_noise = float(reset_noise)
        self.render_mode = render_mode
        self.width, self.height = int(width), int(height)
        self._task = TASKS.get(task)

        low, high = self._bounds
        self.observation_space = spaces.Box(low, high, dtype=np.float64)
        self.action_space = spaces.Box(-1.0, 1.0, shape=(4,), dtype=np.float64)

        self.model = build_model()
        self.data = mujoco.MjData(self.model)
        self._reader = ObservationReader.of(self.model, self.data, low, high)
        self._mocap = self.data.mocap_pos[0]
        self._low = np.array(observation.WORKSPACE_LOW)
        self._high = np.array(observation.WORKSPACE_HIGH)
        self._obs = np.zeros(observation.SIZE)
        self._fingers = np.zeros(5)
        self._start: FloatArray = self._task.start()
        self._rewards: FloatArray = np.zeros(len(_BUILTIN))
        self._successes = np.zeros(len(_BUILTIN), dtype=np.bool_)
        self._opening = -1.0
        self._steps = 0
        self._running = False
        self._camera: Camera | None = None
        self._viewer: Viewer | None = None

    # -- what a task is -----------------------------------------------------------------

    @property
    def task(self) -> str:
        """Name of the current task."""
        return self._task.name

    @property
    def start(self) -> FloatArray:
        """What the rewards of this episode take their margins from (`rewards.py`)."""
        return self._start.copy()

    def objective(self) -> Objective:
        """Return the current task's reward as a planner sees it, for the episode at hand."""
        return self._task.objective(self._start)

    # -- the Gymnasium interface --------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Start an episode, of another task if ``options["task"]`` names one."""
        task = self._chosen(options)
        if seed is not None:
            seed = int(seed) if isinstance(seed, np.integer) else seed
            check_whole("seed", seed, 0)
        super().reset(seed=seed)
        self._task = task
        noise = self.reset_noise
        spread = noise * self.np_random.uniform(-1.0, 1.0, SPREAD) if noise else np.zeros(SPREAD)
        self._start = settle(self.model, self.data, self._reader, task, spread)
        self._opening = self._reader.read(-1.0, self._obs, self._fingers)
        self._steps = 0
        self._running = True
        self._evaluate(np.zeros(4))
        if self.render_mode == "human":
            self.render()
        return self._obs.copy(), self._info(np.zeros(4), self._obs)

    def step(self, action: FloatArray) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Move the commanded hand position by ``0.01 * action[:3]`` and simulate 12.5 ms."""
        self._check_running()
        action = self._checked(action)
        before = self._obs.copy()
        self._simulate(action)
        self._steps += 1
        self._evaluate(action)
        info = self._info(action, before)
        terminated = self.terminate_on_success and info["success"]
        truncated = self._steps >= MAX_STEPS
        self._running = not (terminated or truncated)
        if self.render_mode == "human":
            self.render()
        reward = info["rewards"][self._task.name]
        return self._obs.copy(), reward, terminated, truncated, info

    def _simulate(self, action: FloatArray) -> None:
        """Act for one step of the environment, and observe."""
        data = self.data
        move = self._mocap + np.clip(action[:3], -1.0, 1.0) * observation.ACTION_SCALE
        self._mocap[:] = np.clip(move, self._low, self._high)
        data.ctrl[:] = action[3], -action[3]
        clock = data.time
        mujoco.mj_step(self.model, data, SUBSTEPS)
        if data.time < clock:  # MuJoCo resets itself when the physics blows up
            self._running = False
            raise NotReadyError(
                "the simulation became unstable and was abandoned; call reset() to go on"
            )
        self._opening = self._reader.read(self._opening, self._obs, self._fingers)

    def render(self) -> np.ndarray | None:
        """Return a frame from the current task's camera, or show it in the viewer."""
        if self.render_mode is None:
            raise NotReadyError(
                'rendering was not asked for: make the environment with render_mode="rgb_array"'
            )
        from everlearn.continual_bench.rendering import Camera, Viewer

        if self.render_mode == "human":
            if self._viewer is None:
                self._viewer = Viewer(self.model, self._task.camera)
            self._viewer.show(self.data, self._task.camera)
            return None
        if self._camera is None:
            self._camera = Camera(self.model, self.width, self.height)
        return self._camera.frame(self.data, self._task.camera)

    def close(self) -> None:
        """Free the graphics; the environment can still be used without rendering."""
        for window in (self._camera, self._viewer):
            if window is not None:
                window.close()
        self._camera = self._viewer = None

    # -- saving and restoring -----------------------------------------------------------

    def get_state(self) -> SimulationState:
        """Return all that decides how the episode goes on."""
        physics = np.empty(mujoco.mj_stateSize(self.model, _INTEGRATION))
        mujoco.mj_getState(self.model, self.data, physics, _INTEGRATION)
        return SimulationState(
            task=self._task.name,
            physics=physics,
            observation=self._obs.copy(),
            fingers=self._fingers.copy(),
            start=self._start.copy(),
            opening=self._opening,
            steps=self._steps,
            running=self._running,
            generator=json.dumps(self.np_random.bit_generator.state),
        )

    def set_state(self, state: SimulationState) -> None:
        """Go back to a state; what follows is the same to the bit, in any process."""
        task = self._task_named(state.task)
        sizes = {
            "physics": mujoco.mj_stateSize(self.model, _INTEGRATION),
            "observation": observation.SIZE,
            "fingers": len(self._fingers),
            "start": len(self._start),
        }
        check_whole("steps of a state", state.steps, 0, MAX_STEPS)
        check_number("opening of a state", state.opening, -1.0, 1.0)
        if not isinstance(state.running, bool):
            raise InvalidInputError(f"running of a state is {given(state.running)}")
        values: dict[str, FloatArray] = {}
        for name, size in sizes.items():
            value = as_numbers(getattr(state, name), f"{name} of a state")
            values[name] = value.astype(np.float64, copy=False)
            if value.shape != (size,) or not np.isfinite(value).all():
                raise InvalidInputError(
                    f"{name} of a state must be {size} finite numbers, got shape {value.shape}"
                )
        try:
            generator = np.random.default_rng(0)
            generator.bit_generator.state = json.loads(state.generator)
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidInputError(f"the generator of a state is unreadable: {error}") from error
        self.np_random = generator
        self._task = task
        mujoco.mj_setState(self.model, self.data, values["physics"], _INTEGRATION)
        mujoco.mj_forward(self.model, self.data)  # for cameras; it also moves the warm start
        mujoco.mj_setState(self.model, self.data, values["physics"], _INTEGRATION)
        self._obs[:] = values["observation"]
        self._fingers[:] = values["fingers"]
        self._start = values["start"].copy()
        self._opening = state.opening
        self._steps = state.steps
        self._running = state.running

    # -- parts --------------------------------------------------------------------------

    def _check_running(self) -> None:
        if not self._running:
            raise NotReadyError(
                "no episode is running: call reset() first, and again after an episode has ended"
            )

    def _task_named(self, name: str) -> Task:
        return TASKS.get(name)

    def _chosen(self, options: dict[str, Any] | None) -> Task:
        if options is not None and not isinstance(options, dict):
            raise InvalidInputError(f"reset options are {given(options)}; expected a dictionary")
        unknown = set(options or ()) - {"task"}
        if unknown:
            raise InvalidInputError(
                f"unknown reset options {sorted(map(str, unknown))}; the only one is 'task'"
            )
        return self._task_named(options["task"]) if options and "task" in options else self._task

    def _checked(self, action: FloatArray) -> FloatArray:
        array = as_numbers(action, "an action (dx, dy, dz, gripper)")
        if array.shape != (4,):
            raise InvalidInputError(
                f"an action has shape (4,): (dx, dy, dz, gripper), got shape {array.shape}"
            )
        array = array.astype(np.float64, copy=False)
        if not np.isfinite(array).all():
            raise InvalidInputError(f"an action must be finite, got {array.tolist()}")
        return array

    def _evaluate(self, action: FloatArray) -> None:
        rewards.evaluate_all(
            self._obs, action, self._fingers, self._start, self._rewards, self._successes
        )

    def _info(self, action: FloatArray, before: FloatArray) -> dict[str, Any]:
        """Rewards and successes of all tasks; a user's own are called with one transition."""
        values = dict(zip(_BUILTIN, self._rewards.tolist(), strict=True))
        flags = dict(zip(_BUILTIN, self._successes.tolist(), strict=True))
        for name in TASKS:
            if name not in values:
                task = TASKS.get(name)
                transition = before[None], action[None], self._obs[None].copy()
                values[name] = _single(task.reward(*transition), name, "reward")
                flags[name] = bool(_single(task.success(*transition), name, "success"))
        return {
            "task": self._task.name,
            "success": flags[self._task.name],
            "rewards": values,
            "successes": flags,
        }


def _single(values: Any, name: str, what: str) -> float:
    array = np.asarray(values)
    if array.shape != (1,):
        raise InvalidInputError(
            f"the {what} of task {name!r} must return one value a transition: shape (1,) for one "
            f"transition, got shape {array.shape}"
        )
    return float(array[0])
