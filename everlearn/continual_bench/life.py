"""A life: the table of Continual Bench in one endless episode, in which tasks come and go.

The hand stays where it is when the task changes, and so does everything else. What comes next is
decided by the seed and by how things stand: the seed draws an object, and the object is either as
its second task leaves it, so that the first comes, or it is not, so that the second does.

A block or a peg can be lost: nothing that the hand does brings it back. Then its tasks are no
longer drawn. `put_back` is the way out, and it is counted.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from everlearn.continual_bench import observation, rewards
from everlearn.continual_bench.changes import Change, ChangingWorld
from everlearn.continual_bench.env import ContinualBenchEnv, SimulationState
from everlearn.continual_bench.life_tasks import LIFE_SCRIPTS, LIFE_TASKS, OBJECTS, objective_of
from everlearn.continual_bench.reset import BLOCK_QPOS, PEG_PLACE, PEG_QPOS
from everlearn.continual_bench.tasks import BuiltinObjective, Task
from everlearn.interfaces import FloatArray, State
from everlearn.support.checks import check_whole
from everlearn.support.errors import InvalidInputError, UnknownNameError

VISIT_STEPS = 500
"""Longest visit of a task."""

_KINDS = {name: LIFE_TASKS.get(name).kind for name in LIFE_TASKS}
_TASK_OF = {name: key for key, names in OBJECTS.items() for name in names}
_START = "button-press"
_CAN_BE_LOST = ("block", "peg")
# Addresses into the joint velocities: three of translation, three of rotation.
_PEG_QVEL, _BLOCK_QVEL = slice(13, 19), slice(19, 25)
_TORQUE_SCALE = 10  # entry of the weld's data
_AT_REST = 0.05  # metres a second
_IN_HAND = 0.12  # metres from the fingers: nearer than that, the hand may still be holding it
_FLOOR = -0.05  # below the table's top, in metres


def _bounds() -> tuple[FloatArray, FloatArray]:
    """Bounds of the observations: a peg may be carried wherever the hand can go."""
    low, high = observation.LOW.copy(), observation.HIGH.copy()
    low[observation.PEG_END] = low[observation.BLOCK_POSITION]
    high[observation.PEG_END] = high[observation.BLOCK_POSITION]
    return low, high


@dataclass(frozen=True)
class LifeState(SimulationState):
    """Everything that decides how a life goes on; ``steps`` are those of the visit."""

    seed: int
    age: int
    visit: int
    put_backs: int
    last_action: FloatArray


class ContinualLifeEnv(ContinualBenchEnv):
    """One endless episode around the table, with tasks that come and go.

    Parameters
    ----------
    objects
        Whose tasks are drawn: at least two of block, button, door, peg, window and faucet.
    changes
        How the world changes during the life.
    visit_steps
        After this many steps a task goes, solved or not.
    reset_noise, render_mode, width, height
        As for `ContinualBenchEnv`; the noise spreads the start of the life.

    Attributes
    ----------
    put_backs
        How often a lost object was put back.

    Notes
    -----
    `step` never ends the episode. ``info["task"]`` is the task that the step was about,
    ``info["visit_over"]`` whether it was the last of its visit, ``info["next_task"]`` the task
    from now on, ``info["lost"]`` the objects that cannot be brought back. A visit is over when its
    task is solved, after `visit_steps`, and when its object is lost.
    """

    _bounds = _bounds()
    scripts = LIFE_SCRIPTS

    def __init__(
        self,
        objects: Sequence[str] = tuple(OBJECTS),
        *,
        changes: Sequence[Change] = (),
        visit_steps: int = VISIT_STEPS,
        reset_noise: float = 0.0,
        render_mode: str | None = None,
        width: int = 480,
        height: int = 480,
    ) -> None:
        super().__init__(
            _START,
            terminate_on_success=False,
            reset_noise=reset_noise,
            render_mode=render_mode,
            width=width,
            height=height,
        )
        _hold_upright(self.model)
        check_whole("visit_steps", visit_steps, 1, VISIT_STEPS)
        self.objects = _checked_objects(objects)
        self.visit_steps = visit_steps
        self._rewards = np.zeros(rewards.KINDS)
        self._successes = np.zeros(rewards.KINDS, dtype=np.bool_)
        self._world = ChangingWorld(self.model, tuple(changes))
        self._last_action: FloatArray = np.zeros(4)
        self._seed = self._age = self._visit = 0
        self._lost: tuple[str, ...] = ()
        self.put_backs = 0

    @property
    def lost(self) -> tuple[str, ...]:
        """Objects that cannot be brought back."""
        return self._lost

    @property
    def visit(self) -> int:
        """Number of the visit at hand, counted from 0."""
        return self._visit

    @property
    def age(self) -> int:
        """Steps of this life so far."""
        return self._age

    def objective(self) -> BuiltinObjective:
        """Return the reward of the task at hand as a planner sees it."""
        return objective_of(self._task.name)

    # -- the Gymnasium interface --------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Start another life; its first task is drawn, or named by ``options["task"]``."""
        self._world.set_step(0)
        task = self._chosen(options)
        self._age = self._visit = self.put_backs = 0
        self._lost = ()
        self._last_action = np.zeros(4)
        self._task = LIFE_TASKS.get(_START)  # a reset brings the hand to where this one starts
        super().reset(seed=seed)
        self._seed = int(self.np_random.integers(2**31))
        self._begin(task.name if options and "task" in options else self._drawn(None))
        return self._obs.copy(), self._info(np.zeros(4), self._obs)

    def step(self, action: FloatArray) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Move the commanded hand position by ``0.01 * action[:3]`` and simulate 12.5 ms."""
        self._check_running()
        action = self._checked(action)
        self._world.set_step(self._age)
        self._mocap[:] = np.clip(self._mocap + self._world.drift(), self._low, self._high)
        self._simulate(self._world.command(action, self._last_action))
        self._last_action = action.copy()
        self._steps += 1
        self._age += 1
        self._evaluate(action)
        self._lost = self._find_lost()
        task = self._task.name
        over = self._solved(task) or self._steps >= self.visit_steps or _TASK_OF[task] in self._lost
        info = self._life_info(task, over)
        if over:
            self.end_visit()
            info["next_task"] = self._task.name
        if self.render_mode == "human":
            self.render()
        return self._obs.copy(), info["rewards"][task], False, False, info

    def look(self) -> tuple[FloatArray, dict[str, Any]]:
        """Return what is observed now, and of which task, without a step."""
        return self._obs.copy(), self._info(self._last_action, self._obs)

    def end_visit(self) -> None:
        """Go on to the next task; the step that solves a task does so by itself."""
        self._check_running()
        self._visit += 1
        self._begin(self._drawn(_TASK_OF[self._task.name]))

    def put_back(self, name: str) -> FloatArray:
        """Put a lost object where the life began with it, and count that.

        Returns the observation from which the life goes on: no action led to it, so agents must
        not learn from the step between.
        """
        if name not in self._lost:
            raise InvalidInputError(
                f"{name!r} is not lost, so it cannot be put back; lost are: "
                f"{', '.join(self._lost) or 'none'}"
            )
        position, place, turn, velocity = {
            "block": (BLOCK_QPOS, (*rewards.BLOCK_START[:2], 0.02), None, _BLOCK_QVEL),
            "peg": (PEG_QPOS, PEG_PLACE, (1.0, 0.0, 0.0, 0.0), _PEG_QVEL),
        }[name]
        data = self.data
        data.qpos[position] = place
        if turn is not None:
            data.qpos[position.stop : position.stop + 4] = turn
        data.qvel[velocity] = 0.0
        mujoco.mj_forward(self.model, data)
        self.put_backs += 1
        self._lost = tuple(other for other in self._lost if other != name)
        self._opening = self._reader.read(self._opening, self._obs, self._fingers)
        self._evaluate(np.zeros(4))
        return self._obs.copy()

    def can_put_back(self, name: str) -> bool:
        """Whether `name` is lost, and the hand is not where it would be put."""
        places = {"block": rewards.BLOCK_START, "peg": PEG_PLACE}
        if name not in self._lost:
            return False
        return math.dist(self._fingers[:3], places[name]) > _IN_HAND

    # -- saving and restoring -----------------------------------------------------------

    def get_state(self) -> LifeState:
        """Return all that decides how the life goes on."""
        state = super().get_state()
        return LifeState(
            **{item.name: getattr(state, item.name) for item in dataclasses.fields(state)},
            seed=self._seed,
            age=self._age,
            visit=self._visit,
            put_backs=self.put_backs,
            last_action=self._last_action.copy(),
        )

    def set_state(self, state: SimulationState) -> None:
        """Go back to a state; what follows is the same to the bit, in any process."""
        if not isinstance(state, LifeState):
            raise InvalidInputError(
                f"a life goes on from a LifeState, got {type(state).__name__}; take the state of "
                "a ContinualLifeEnv"
            )
        for name in ("seed", "age", "visit", "put_backs"):
            check_whole(f"{name} of a state", getattr(state, name), 0)
        last = self._checked(state.last_action)
        # The step before decides what the physics are now, also for the forward pass.
        self._world.set_step(max(0, state.age - 1))
        super().set_state(state)
        self._seed, self._age, self._visit = state.seed, state.age, state.visit
        self.put_backs, self._last_action = state.put_backs, last.copy()
        self._evaluate(np.zeros(4))
        self._lost = self._find_lost()

    def state(self) -> State:
        """Return `get_state` as arrays and a JSON dictionary."""
        values = dataclasses.asdict(self.get_state())
        arrays = {name: item for name, item in values.items() if isinstance(item, np.ndarray)}
        return arrays, {name: item for name, item in values.items() if name not in arrays}

    def restore(self, arrays: dict[str, Any], meta: dict[str, Any]) -> None:
        """Take over what `state` returned; on bad input raise and change nothing."""
        expected = {item.name for item in dataclasses.fields(LifeState)}
        if {*arrays, *meta} != expected:
            raise InvalidInputError(
                f"the state of a life has {sorted({*arrays, *meta})}; expected {sorted(expected)}"
            )
        self.set_state(LifeState(**arrays, **meta))

    # -- parts --------------------------------------------------------------------------

    def _task_named(self, name: str) -> Task:
        task = LIFE_TASKS.get(name)
        if _TASK_OF[name] not in self.objects:
            raise UnknownNameError(
                f"task {name!r} is about the {_TASK_OF[name]}, which is none of this life's "
                f"objects: {', '.join(self.objects)}"
            )
        return task

    def _begin(self, task: str) -> None:
        self._task = LIFE_TASKS.get(task)
        self._start = self._task.start()
        self._steps = 0

    def _drawn(self, last: str | None) -> str:
        """Draw the next task: of another object than the last, which is there and unsolved."""
        generator = np.random.default_rng([self._seed, self._visit])
        order = [self.objects[index] for index in generator.permutation(len(self.objects))]
        offered = {name: self._offered(name) for name in order if name not in self._lost}
        for name in order:
            if name != last and offered.get(name):
                return str(offered[name])
        # All others are lost or, like a button that is still down, solved for the moment.
        rest = [task for task in offered.values() if task]
        return rest[0] if rest else OBJECTS[order[0]][0]

    def _offered(self, name: str) -> str | None:
        """Return the task of an object that is to be done as it stands now."""
        tasks = OBJECTS[name]
        if len(tasks) == 1:
            return None if self._solved(tasks[0]) else tasks[0]
        first, second = tasks
        if not self._solved(second):
            return second
        return None if self._solved(first) else first

    def _solved(self, task: str) -> bool:
        return bool(self._successes[_KINDS[task]])

    def _find_lost(self) -> tuple[str, ...]:
        """Return what nothing brings back: it rests off the table, or where no hand can get.

        The hand's workspace is a box above the table. The block is lost beyond the edge that the
        paper's reward gives the table, the peg where its end is beyond the workspace.
        """
        return tuple(name for name in _CAN_BE_LOST if name in self.objects and self._is_lost(name))

    def _is_lost(self, name: str) -> bool:
        position, velocity = {
            "block": (BLOCK_QPOS, _BLOCK_QVEL),
            "peg": (PEG_QPOS, _PEG_QVEL),
        }[name]
        x, y, z = self.data.qpos[position]
        if z < _FLOOR:
            return True
        if name == "block":
            beyond = math.hypot(x, y) > rewards.TABLE_EDGE
        else:
            end = self._reader.peg_end()
            beyond = max(abs(end[0]), abs(end[1])) > observation.WORKSPACE_HIGH[0]
        if not beyond:
            return False
        speed = float(np.linalg.norm(self.data.qvel[velocity][:3]))
        return speed < _AT_REST and math.dist(self._fingers[:3], (x, y, z)) > _IN_HAND

    def _info(self, action: FloatArray, before: FloatArray) -> dict[str, Any]:
        return self._life_info(self._task.name, over=False)

    def _life_info(self, task: str, over: bool) -> dict[str, Any]:
        values = self._rewards.tolist()
        flags = self._successes.tolist()
        return {
            "task": task,
            "success": flags[_KINDS[task]],
            "rewards": {name: values[kind] for name, kind in _KINDS.items()},
            "successes": {name: flags[kind] for name, kind in _KINDS.items()},
            "visit": self._visit,
            "visit_over": over,
            "next_task": task,
            "lost": self._lost,
            "put_backs": self.put_backs,
        }


def _hold_upright(model: mujoco.MjModel) -> None:
    """Let the arm move for ever: in the episodes of the benchmark only resets unwind it.

    Nothing there decides where the elbow is, so the arm drifts until joints are at their limits
    and the hand hangs askew. Here the shoulder and the wrist turn without limit, and the weld that
    moves the hand holds its direction as firmly as its place.
    """
    for joint in ("right_j0", "right_j6"):
        model.jnt_limited[model.joint(joint).id] = 0
    model.eq_data[0, _TORQUE_SCALE] = 10.0


def _checked_objects(objects: Sequence[str]) -> tuple[str, ...]:
    if isinstance(objects, str):
        raise InvalidInputError(f"objects are {objects!r}; expected a list of names")
    for name in objects:
        if name not in OBJECTS:
            raise UnknownNameError(f"unknown object {name!r}; known: {', '.join(OBJECTS)}")
    chosen = tuple(dict.fromkeys(objects))
    if len(chosen) < 2:
        raise InvalidInputError(
            f"objects are {list(objects)}; a life needs two at least, to go from one to another"
        )
    return chosen
