"""How much of the bare physics' speed is left once observations and rewards are added."""

from __future__ import annotations

import mujoco
import numpy as np

from benchmarks.common import Row, interleaved
from everlearn.continual_bench import PAPER_TASKS
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.continual_bench.reset import SUBSTEPS

STEPS = 300


def measure() -> list[Row]:
    """Same controls through ``env.step`` and through MuJoCo alone, task by task in turns."""
    generator = np.random.default_rng(0)
    rows = []
    for task in PAPER_TASKS:
        env = ContinualBenchEnv(task, terminate_on_success=False)
        actions = generator.uniform(-1, 1, (STEPS, 4))
        env.reset()
        start = env.get_state()
        controls = []
        for action in actions:
            env.step(action)
            controls.append((env.data.mocap_pos[0].copy(), env.data.ctrl.copy()))

        def whole(env=env, start=start, actions=actions) -> None:
            env.set_state(start)
            for action in actions:
                env.step(action)

        def bare(env=env, start=start, controls=controls) -> None:
            env.set_state(start)
            model, data = env.model, env.data
            for place, effort in controls:
                data.mocap_pos[0] = place
                data.ctrl[:] = effort
                mujoco.mj_step(model, data, SUBSTEPS)

        seconds = interleaved({"whole": whole, "bare": bare}, repeats=1, rounds=7)
        rows.append(
            Row(
                name=f"environment step, {task}",
                ours="env.step",
                ours_seconds=seconds["whole"] / STEPS,
                reference="bare physics, same controls",
                reference_seconds=seconds["bare"] / STEPS,
                at_least=0.75,
                limit="the simulator",
            )
        )
    return rows
