"""Tables of README and docs that come from the package itself or from stored measurements."""

import json
import textwrap
from pathlib import Path
from typing import Any

from everlearn.planning.presets import OA, OA_GENERAL, OA_PAPER
from everlearn.results.methods import plain
from everlearn.support.settings import values_of

ROOT = Path(__file__).parents[1]
SPEED = "results/speed/speed.json"


def settings() -> str:
    """Return the table of the settings in which `oa` and `oa-paper` differ."""
    columns = {
        "`oa`, scene": values_of(OA),
        "`oa`, general": values_of(OA_GENERAL),
        "`oa-paper`": values_of(OA_PAPER),
    }
    paths = dict.fromkeys(path for values in columns.values() for path in values)
    rows = []
    for path in paths:
        cells = [_cell(values[path]) if path in values else "-" for values in columns.values()]
        if len(set(cells)) > 1:
            rows.append(f"| `{path}` | {' | '.join(cells)} |")
    head = f"| setting | {' | '.join(columns)} |"
    return "\n".join([head, "|---|---|---|---|", *rows])


def _cell(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else plain(value)


def _asked_for(row: dict[str, Any]) -> str:
    """Return the least ratio that is asked for, and whether it was reached."""
    if row["at_least"] is None:
        return ""
    return f"{row['at_least']:g}" + ("" if row["met"] else ", missed")


def speed() -> str:
    """Return the table of one stored run of `everlearn speed`, with its machine."""
    if not (ROOT / SPEED).is_file():
        return f"No measurement of this version is stored yet (`everlearn speed --json > {SPEED}`)."
    stored = json.loads((ROOT / SPEED).read_text(encoding="utf-8"))
    machine = stored["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    words = (
        f"`everlearn speed --json > {SPEED}` at commit {machine['commit']}: "
        f"{machine['processor']}, {machine['processors']} processors with a load of "
        f"{machine['load']:.1f} when it began, Python {machine['python']}, {versions}."
    )
    rows = [
        f"| {row['name']} | {row['ours']}: {1e3 * row['ours_seconds']:.3g} ms "
        f"| {row['reference']}: {1e3 * row['reference_seconds']:.3g} ms | {row['ratio']:.2f} "
        f"| {_asked_for(row)} | {row['limit']} |"
        for row in stored["rows"]
    ]
    loop = "\n".join(f"| {name} | {value:g} |" for name, value in stored["loop"].items())
    return "\n".join(
        [
            textwrap.fill(words, 100, break_long_words=False, break_on_hyphens=False),
            "",
            "| what | ours | reference | times faster | asked for | what limits ours |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            "The whole loop of `oa` (plan, act, learn) in the same run:",
            "",
            "| what | value |",
            "|---|---|",
            loop,
        ]
    )
