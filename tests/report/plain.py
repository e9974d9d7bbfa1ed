"""A run's numbers from its files, by loops that share no code with the package."""

from __future__ import annotations

import json
import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any


def lines_of(run: Path) -> list[dict[str, Any]]:
    """Lines of its metrics."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def plain_numbers(run: Path) -> dict[str, float]:
    """AP, three regrets, forgetting and transfer, as docs/metrics.md defines them."""
    config = json.loads((run / "config.json").read_text())
    tasks, length = config["tasks"], config["episodes_per_task"]
    end = len(tasks) * length
    lines = lines_of(run)
    rate = {(e["task"], e["episode"]): e["success_rate"] for e in lines if e["kind"] == "eval"}
    flags = [e["success"] for e in lines if e["kind"] == "episode"]
    found = {
        "average_performance": statistics.fmean(rate[task, end] for task in tasks),
        "regret_online": 1 - sum(flags) / len(flags),
        "forgetting": statistics.fmean(
            rate[task, (place + 1) * length] - rate[task, end] for place, task in enumerate(tasks)
        ),
    }
    clock = {0: 0} | {e["episode"]: e["step"] for e in lines if e["kind"] == "episode"}
    area = step_area = 0.0
    for place, task in enumerate(tasks):
        start, stop = place * length, (place + 1) * length
        inside = {w: p for (name, w), p in rate.items() if name == task and start <= w <= stop}
        if start not in inside:  # an older run: it did not evaluate tasks that it had not seen
            inside[start] = inside[min(inside)]
        points = sorted(inside.items())
        for (a, p), (b, q) in pairwise(points):
            area += (b - a) * (1 - (p + q) / 2)
            step_area += (clock[b] - clock[a]) * (1 - (p + q) / 2)
    found["regret_eval"] = area / end
    found["regret_eval_steps"] = step_area / clock[end]
    gains = []
    for place, task in enumerate(tasks[1:], 1):
        if not (run / "single" / task).exists():
            return found
        alone = [e["success"] for e in lines_of(run / "single" / task) if e["kind"] == "episode"]
        first = max(1, length // 10)
        gains.append(sum(flags[place * length :][:first]) / first - sum(alone[:first]) / first)
    found["forward_transfer"] = statistics.fmean(gains)
    return found


def tables_of(page: Path) -> list[list[list[str]]]:
    """Tables of a page of Markdown as rows of cells, their headings first."""
    tables: list[list[list[str]]] = []
    inside = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            inside = False
            continue
        if not inside:
            tables.append([])
        inside = True
        if not line.startswith("|---"):
            tables[-1].append([cell.strip() for cell in line.strip("|").split("|")])
    return tables
