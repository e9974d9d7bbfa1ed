"""Train, export and index the agents that come with the package.

    python tools/build_pretrained.py --runs runs/pretrained

Runs resume if they were stopped, and a finished run is not repeated: remove its folder to train
anew. Seeds are tuning seeds (0 to 9), as no published number may come from what is shipped.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from everlearn.pretrained import FOLDER, INDEX, Pretrained
from everlearn.runs.metrics_file import METRICS, read_lines
from everlearn.runs.reload import load_run

LARGEST = 2_000_000
"""Bytes of an agent's file; the wheel has room for a few."""


@dataclass(frozen=True)
class Recipe:
    """How an agent is made."""

    name: str
    summary: str
    arguments: str
    """Of `everlearn run`, without its folder."""


RECIPES = (
    Recipe(
        "continual-bench",
        "oa after 10 episodes of each of the six tasks",
        "--preset quick --agent oa --seed 0 --threads 1",
    ),
)


def build(recipe: Recipe, runs: Path) -> dict[str, Any]:
    """Train an agent, export it, and return its entry of the index."""
    folder = runs / recipe.name
    words = ["run", *shlex.split(recipe.arguments), "--out", str(folder)]
    subprocess.run([sys.executable, "-m", "everlearn.cli", *words], check=True)
    config, state, agent = load_run(folder)
    if state.episode < config.episodes:
        raise SystemExit(f"{folder} has {state.episode} of {config.episodes} episodes")
    file = f"{recipe.name}.agent"
    agent.export(FOLDER / file)  # type: ignore[attr-defined]
    size = (FOLDER / file).stat().st_size
    if size > LARGEST:
        raise SystemExit(f"{file} has {size:,} bytes, more than {LARGEST:,}")
    lines, _ = read_lines(folder / METRICS)
    last = [line for line in lines if line["kind"] == "eval" and line["episode"] == state.episode]
    score = {line["task"]: line.get("success_rate", line.get("mean_return")) for line in last}
    facts = json.loads((folder / "environment.json").read_text())
    sys.stdout.write(f"{file}: {size:,} bytes, {score}\n")
    return asdict(
        Pretrained(
            name=recipe.name,
            summary=recipe.summary,
            world=config.world,
            tasks=tuple(dict.fromkeys(config.tasks)),
            file=file,
            command=f"everlearn run {recipe.arguments}",
            seed=config.seed,
            commit=str(facts["commit"]),
            score=score,
        )
    )


def main() -> None:
    """Build all agents, or those that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="agents to build; all if none is named")
    parser.add_argument("--runs", type=Path, default=Path("runs/pretrained"))
    chosen = parser.parse_args()
    known = {recipe.name: recipe for recipe in RECIPES}
    for name in chosen.names:
        if name not in known:
            parser.error(f"unknown agent {name!r}; known: {', '.join(known)}")
    index = FOLDER / INDEX
    stored = json.loads(index.read_text()) if index.exists() else []
    entries = {entry["name"]: entry for entry in stored}
    for name in chosen.names or known:
        entries[name] = build(known[name], chosen.runs)
        kept = [entries[one] for one in known if one in entries]
        index.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
