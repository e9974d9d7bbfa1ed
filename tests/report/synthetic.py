"""Folders of runs with invented numbers, written by the store's own writer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.results.summary import single_task_configs, single_task_folder
from everlearn.runs import schedule
from everlearn.runs.config import RunConfig
from everlearn.runs.folder import open_run
from everlearn.runs.metrics_file import MetricsLog
from everlearn.runs.options import resolved_options
from everlearn.runs.presets import preset_config

SKILL = {"oa": 0.95, "mlp-perfect-memory": 0.9, "mlp-coreset": 0.7, "mlp-si": 0.5}
LOSS = {"mlp-coreset": 0.15, "mlp-si": 0.4, "mlp-finetune": 0.9}
_RESOLVED: dict[tuple[str, str], dict[str, Any]] = {}


def config_of(agent: str, seed: int, preset: str = "quick", **options: Any) -> RunConfig:
    """A config as a run stores it: with all settings of the agent."""
    config = preset_config(preset, agent, options, seed=seed, threads=1)
    key = (agent, repr(sorted(options.items())))
    if key not in _RESOLVED:
        env = ContinualBenchEnv(config.tasks[0])
        _RESOLVED[key] = resolved_options(agent, env, config.options)
        env.close()
    return dataclasses.replace(config, resolved=_RESOLVED[key])


def write_run(
    folder: Path,
    config: RunConfig,
    *,
    episodes: int | None = None,
    skipped: Iterable[int] = (),
    alone: bool = False,
    skill: float | None = None,
) -> Path:
    """Write a run.

    `episodes` ends it early, evaluations after the episodes `skipped` are missing, `alone` adds
    the runs of its tasks alone.
    """
    generator = np.random.default_rng([config.seed, len(config.agent)])
    level = SKILL.get(config.agent, 0.6) if skill is None else skill
    lines: list[dict[str, Any]] = []
    step = 0
    for done in range(1, (config.episodes if episodes is None else episodes) + 1):
        place = schedule.position(config, done - 1)
        inside = (place.episode + 1) / config.episodes_per_task
        success = bool(generator.random() < level * min(1.0, 2 * inside))
        length = int(generator.integers(50, 300)) if success else config.max_steps
        step += length
        here = {"episode": done, "step": step}
        lines.append(
            {"kind": "episode", **here, "task": config.tasks[place.entry], "success": success}
            | {"length": length, "return": 1.5, "seconds": round(0.03 * length, 4)}
        )
        count = schedule.evaluation_episodes(config, done)
        if not count or done in skipped:
            continue
        for age, task in enumerate(reversed(schedule.seen_tasks(config, done))):
            kept = level * (1 - LOSS.get(config.agent, 0.02)) ** age
            rate = float(generator.binomial(count, kept)) / count
            lines.append(
                {"kind": "eval", **here, "task": task, "success_rate": rate, "episodes": count}
                | ({"seconds": 0.25 * count} if config.agent.startswith("oa") else {})
            )
            if config.agent not in ("random", "scripted"):
                error = 1e-4 * (1 + 5 * age * LOSS.get(config.agent, 0.0)) * (0.5 + inside)
                line = {"kind": "model", **here, "task": task, "error_one_step": error}
                line |= {"error_15_steps": 20 * error, "transitions": 1000}
                if config.agent.startswith("oa"):
                    line["utilization"] = 1 - 0.7 * 0.5 ** (2 * done / config.episodes)
                lines.append(line)
    with open_run(folder, config, False, lambda text: None) as opened:
        log = MetricsLog(opened.metrics)
        log.append(lines)
        log.close()
    if alone:
        for task, single in single_task_configs(config).items():
            write_run(single_task_folder(folder, task), single, skill=0.3)
    return folder


def write_sweep(
    root: Path, agents: Iterable[str], seeds: Iterable[int], preset: str = "quick", **settings: Any
) -> Path:
    """Write agents times seeds."""
    numbers = tuple(seeds)
    for agent in agents:
        for seed in numbers:
            write_run(root / f"{agent}-{seed}", config_of(agent, seed, preset), **settings)
    return root


def write_everything(root: Path, seeds: int = 4) -> Path:
    """Write one of everything: methods, ablations, and runs with something wrong."""
    agents = ("oa", "mlp-finetune", "mlp-si", "mlp-coreset", "mlp-perfect-memory")
    write_sweep(root / "methods", agents, range(100, 100 + seeds), alone=True)
    for bins in (5, 7, 9, 11):
        for seed in (100, 101):
            config = config_of("oa", seed, bins=bins, features=100)
            write_run(root / f"bins/oa-{bins}-{seed}", config, skill=0.5 + bins / 25)
    for capacity in (1_000, 5_000, 10_000, 50_000):
        for seed in (100, 101):
            config = config_of("mlp-coreset", seed, capacity=capacity, hidden=100)
            write_run(root / f"budget/{capacity}-{seed}", config, skill=0.1 * np.log10(capacity))
    write_run(root / "odd/random-100", config_of("random", 100))
    write_run(root / "odd/mlp-ewc-100", config_of("mlp-ewc", 100), episodes=33)
    write_run(root / "odd/mlp-ewc-101", config_of("mlp-ewc", 101))
    write_run(root / "odd/mlp-packnet-100", config_of("mlp-packnet", 100), skipped=(10, 15, 60))
    write_run(root / "odd/scripted-100", config_of("scripted", 100, "smoke"))
    return root
