"""Folders of runs with invented numbers: files alone, without agents and simulators."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from everlearn.results.summary import single_task_configs, single_task_folder
from everlearn.runs import schedule
from everlearn.runs.config import EvaluationSchedule, RunConfig
from everlearn.runs.metrics_file import CONFIG, ENVIRONMENT, METRICS, MetricsLog

SKILL = {"oa": 0.95, "mlp-perfect-memory": 0.9, "mlp-coreset": 0.7, "mlp-si": 0.5}
LOSS = {"mlp-coreset": 0.15, "mlp-si": 0.4, "mlp-finetune": 0.9}

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"episodes_per_task": 100, "evaluation": EvaluationSchedule(20, 5, 20)},
    "quick": {"episodes_per_task": 10, "evaluation": EvaluationSchedule(5, 5, 5)},
    "smoke": {
        "tasks": ("window-close", "button-press"),
        "episodes_per_task": 2,
        "max_steps": 100,
        "evaluation": EvaluationSchedule(1, 1, 1, 100),
    },
}
_PLANNING = {
    "memory": "motion",
    "memory.command_gain": 30.0,
    "planner": "cem",
    "planner.candidates": 200,
    "planner.horizon": 25,
    "escape.patience": 30,
}
_ONLINE = {"model": "online", "model.features": 300, "model.bins": 5, "model.ridge": 10.0}
_NETWORK = {"model": "mlp", "model.hidden": 200, "model.batch": 256, "model.normalise_over": "all"}
_POLICY = {"hidden": 256, "batch": 128, "multi_head": False}
_ALL = ("reward function", "success test", "scene", "command law")


def settings_of(agent: str) -> dict[str, Any]:
    """All settings of an agent, as far as these tests need any."""
    family, _, strategy = agent.partition("-")
    if family not in ("oa", "mlp", "sac"):
        return {}
    settings = {"oa": _ONLINE | _PLANNING, "mlp": _NETWORK | _PLANNING, "sac": _POLICY}[family]
    if strategy == "coreset":
        settings = settings | {{"mlp": "model.strategy.capacity"}.get(family, "capacity"): 10_000}
    return dict(settings)


def config_of(
    agent: str,
    seed: int,
    preset: str = "quick",
    options: Mapping[str, Any] | None = None,
    **fields: Any,
) -> RunConfig:
    """A config as a run stores it: with all settings, and what the agent is told and given."""
    told = [
        word
        for word, names in (
            ("boundaries", ("finetune", "ewc", "si", "packnet", "scripted")),
            ("name", ("packnet", "scripted")),
        )
        if agent.rpartition("-")[2] in names
    ]
    planning = agent.startswith(("oa", "mlp-"))
    values: dict[str, Any] = {
        "agent": agent,
        "options": options or {},
        "resolved": settings_of(agent) | dict(options or {}),
        "preset": preset,
        "seed": seed,
        "threads": 1,
        "told": told,
        "given": _ALL[: 1 if "-paper" in agent else 4] if planning else (),
        "measure": "success",
    }
    return RunConfig(**values | PRESETS[preset] | fields)


def write_run(
    folder: Path,
    config: RunConfig,
    *,
    episodes: int | None = None,
    skipped: Iterable[int] = (),
    alone: bool = False,
    skill: float | None = None,
    before: bool = True,
) -> Path:
    """Write a run.

    `episodes` ends it early, evaluations after the episodes `skipped` are missing, `alone` adds
    the runs of its tasks alone, `before=False` leaves out evaluations of tasks that are about to
    begin, as older runs do. Where the world measures returns, these stand in place of success.
    """
    generator = np.random.default_rng([config.seed, len(config.agent)])
    level = SKILL.get(config.agent, 0.6) if skill is None else skill
    lines: list[dict[str, Any]] = []
    step = 0

    def evaluated(task: str, done: int, rate: float, count: int) -> dict[str, Any]:
        line = {"kind": "eval", "episode": done, "step": step, "task": task}
        line |= {"success_rate": rate} if config.measures_success else {"mean_return": 500 * rate}
        seconds = {"seconds": 0.25 * count} if config.agent.startswith("oa") else {}
        return line | {"episodes": count} | seconds

    def evaluate_unseen(done: int) -> None:
        count = schedule.evaluation_episodes(config, done)
        unseen = schedule.evaluated_tasks(config, done)[len(schedule.seen_tasks(config, done)) :]
        if before and count and done not in skipped:
            rate = round(count * level * 0.3) / count if count else 0.0
            lines.extend(evaluated(task, done, rate, count) for task in unseen)

    evaluate_unseen(0)
    for done in range(1, (config.episodes if episodes is None else episodes) + 1):
        position = schedule.position(config, done - 1)
        inside = (position.episode + 1) / config.episodes_per_task
        success = bool(generator.random() < level * min(1.0, 2 * inside))
        length = int(generator.integers(50, 300)) if success else config.max_steps
        step += length
        here = {"episode": done, "step": step}
        task = config.tasks[position.entry]
        lines.append(
            {"kind": "episode", **here, "task": task}
            | {"success": success if config.measures_success else None, "length": length}
            | {"return": 1.5 if config.measures_success else round(400 * level * inside, 2)}
            | {"seconds": round(0.03 * length, 4)}
            | ({"processor_seconds": 0.02 * length} if config.agent.startswith("oa") else {})
        )
        count = schedule.evaluation_episodes(config, done)
        if not count or done in skipped:
            continue
        for age, task in enumerate(reversed(schedule.seen_tasks(config, done))):
            kept = level * (1 - LOSS.get(config.agent, 0.02)) ** age
            rate = float(generator.binomial(count, kept)) / count
            lines.append(evaluated(task, done, rate, count))
            if config.agent not in ("random", "scripted"):
                error = 1e-4 * (1 + 5 * age * LOSS.get(config.agent, 0.0)) * (0.5 + inside)
                line = {"kind": "model", **here, "task": task, "error_one_step": error}
                line |= {"error_15_steps": 20 * error, "transitions": 1000}
                if config.agent.startswith("oa"):
                    line["utilization"] = 1 - 0.7 * 0.5 ** (2 * done / config.episodes)
                    # Too narrow, more so ahead; wider as the run goes on.
                    for share in (50, 80, 90, 95):
                        one = (share / 100) ** (1.5 - 0.4 * done / config.episodes)
                        line[f"coverage_{share}_one_step"] = one
                        line[f"coverage_{share}_15_steps"] = one**1.2
                lines.append(line)
        evaluate_unseen(done)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(config.to_json())
    facts = {"python": "3.11.0", "versions": {"numpy": "2.0.0"}, "processor": "a processor"}
    (folder / ENVIRONMENT).write_text(json.dumps(facts))
    log = MetricsLog(folder / METRICS)
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
            config = config_of("oa", seed, options={"model.bins": bins, "model.features": 100})
            write_run(root / f"bins/oa-{bins}-{seed}", config, skill=0.5 + bins / 25)
    for capacity in (1_000, 5_000, 10_000, 50_000):
        for seed in (100, 101):
            config = config_of("mlp-coreset", seed, options=_budget(capacity))
            write_run(root / f"budget/{capacity}-{seed}", config, skill=0.1 * np.log10(capacity))
    write_run(root / "odd/random-100", config_of("random", 100))
    write_run(root / "odd/mlp-ewc-100", config_of("mlp-ewc", 100), episodes=33)
    write_run(root / "odd/mlp-ewc-101", config_of("mlp-ewc", 101))
    write_run(root / "odd/mlp-packnet-100", config_of("mlp-packnet", 100), skipped=(10, 15, 60))
    write_run(root / "odd/scripted-100", config_of("scripted", 100, "smoke"))
    return root


def _budget(capacity: int) -> dict[str, Any]:
    return {"model.strategy.capacity": capacity, "model.hidden": 100}
