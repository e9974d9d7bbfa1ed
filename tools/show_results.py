"""Put tables and figures of the reported runs into README and docs.

``python tools/show_results.py``. They come from `everlearn report` on the folders below; a test
says when a page is behind.
"""

import re
import shutil
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path

from everlearn.report import Report, read_report, write_report
from everlearn.report.tables import ARROWS, HEADINGS, MethodScores, Table, mean_cell, to_markdown

ROOT = Path(__file__).parents[1]
PAPER, QUICK = "results/paper", "results/quick"
"""Where the reported runs are; those of the lab notebook are in results/tuning."""

FIRST_REPORTED = 100
"""Seeds below are there to tune on."""

FIGURES = {
    (PAPER, "success"): "docs/images/results.png",
    (QUICK, "budget"): "docs/images/budget.png",
    (QUICK, "bins"): "docs/images/bins.png",
}
"""Figures of reports that pages show, and where they are kept."""

PARTS = {
    "memory": "no memory of commands and motion",
    "horizon": "plans as short as the paper's",
    "rest": "things at rest may creep in plans",
    "final_weight": "a plan's end counts like every step",
    "patience": "no way out of circles",
    "ridge": "as good as none",
}
"""What it means to set these options of `oa` to what the runs have."""

METRICS = ("average_performance", "regret_online", "regret_eval", "forgetting")


@lru_cache
def read(place: str) -> Report:
    """Read the runs of one place."""
    return read_report([ROOT / place])


def methods(place: str) -> str:
    """Return the table of a place's largest study, with a sentence on where it comes from."""
    part = read(place).studies[0]
    words = f"`everlearn report {place}`: {part.study.protocol}."
    tuned = [
        method.label
        for method in part.study.main
        if any(run.config.seed < FIRST_REPORTED for run in method.runs)
    ]
    if tuned:
        words += f" Of {', '.join(tuned)} these are runs to tune on, not results."
    return textwrap.fill(words, 100) + "\n\n" + to_markdown(part.tables["brief"]).strip()


def variations(place: str, agent: str, options: Mapping[str, str]) -> str:
    """Return a table of an agent and of those that differ from it by one of some options.

    Parameters
    ----------
    place
        Where the runs are.
    agent
        Registered name.
    options
        Which, and what to say of each. Of a single one, the agent as it is has a value too.
    """
    scores = [score for score in read(place).studies[0].scores if score.method.agent == agent]
    found: list[tuple[float, MethodScores, str]] = []
    for score in scores:
        varied = dict(score.method.varied)
        if len(options) == 1:
            name, words = next(iter(options.items()))
            if varied.keys() <= {name}:
                value = score.method.settings[name]
                found.append((value, score, f"`{name}={value:g}`{'' if varied else words}"))
        elif not varied:
            found.append((-1, score, f"`{agent}`"))
        elif len(varied) == 1 and (name := next(iter(varied))) in options:
            value = varied[name]
            shown = value if isinstance(value, str) else f"{value:g}"
            found.append((list(options).index(name), score, f"`{name}={shown}`: {options[name]}"))
    found.sort(key=lambda entry: entry[0])
    headings = (
        "",
        "seeds",
        *(f"{HEADINGS[name][0]} {ARROWS[HEADINGS[name][1]]}" for name in METRICS),
    )
    rows = tuple(
        (title, str(len(score.method.runs)), *(mean_cell(score, name) for name in METRICS))
        for _, score, title in found
    )
    note = f"In percent, mean ± standard error over seeds (`everlearn report {place}`)."
    return to_markdown(Table("variations", "", headings, rows, note)).strip()


BLOCKS: dict[tuple[str, str], Callable[[], str]] = {
    ("README.md", "paper"): partial(methods, PAPER),
    ("README.md", "quick"): partial(methods, QUICK),
    ("docs/results.md", "parts"): partial(variations, QUICK, "oa", PARTS),
    ("docs/results.md", "bins"): partial(variations, QUICK, "oa", {"bins": ", as `oa` has it"}),
    ("docs/results.md", "budget"): partial(
        variations, QUICK, "mlp-coreset", {"capacity": ", as `mlp-coreset` has it"}
    ),
}
"""What is made, by the page and by the name in its marks."""


def pages() -> Iterator[tuple[Path, str]]:
    """Return every page with its text as it has to be."""
    for page in dict.fromkeys(page for page, _ in BLOCKS):
        text = (ROOT / page).read_text(encoding="utf-8")
        for (there, name), make in BLOCKS.items():
            if there == page:
                text = filled(text, name, make())
        yield ROOT / page, text


def filled(text: str, name: str, content: str) -> str:
    """Return a page with other content between the marks of a name."""
    begin, end = f"<!-- {name}: made by tools/show_results.py -->", "<!-- end -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    block = f"{begin}\n\n{content}\n\n{end}"
    text, count = pattern.subn(lambda match: block, text)
    if count != 1:
        raise SystemExit(f"expected one place marked {begin!r}, found {count}")
    return text


def main() -> None:
    """Write pages and figures."""
    for page, text in pages():
        page.write_text(text, encoding="utf-8")
    for place in dict.fromkeys(place for place, _ in FIGURES):
        with tempfile.TemporaryDirectory() as folder:
            write_report(read(place), folder)
            for (there, name), kept in FIGURES.items():
                if there == place:
                    shutil.copyfile(Path(folder) / "figures" / f"{name}.png", ROOT / kept)


if __name__ == "__main__":
    main()
