"""Put tables and figure of the reported runs into the README: ``python tools/readme_results.py``.

They come from `everlearn report` on the folders below; a test says when the README is behind.
"""

import shutil
import tempfile
import textwrap
from pathlib import Path

from everlearn.report import Report, read_report, write_report
from everlearn.report.tables import to_markdown

ROOT = Path(__file__).parents[1]
PLACES = ("results/paper", "results/quick")
"""Where the reported runs are, each a table; those of the lab notebook are in results/tuning."""

FIRST_REPORTED = 100
"""Seeds below are there to tune on."""

FIGURE = "docs/images/results.png"
BEGIN, END = "<!-- made by tools/readme_results.py -->", "<!-- end -->"


def places() -> list[str]:
    """Return those of the places that have runs; the figure is that of the first."""
    return [place for place in PLACES if (ROOT / place).is_dir()]


def read(place: str) -> Report:
    """Read the runs of one place."""
    return read_report([ROOT / place])


def table_of(place: str) -> str:
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


def section() -> str:
    """Return what stands between the marks."""
    picture = f"![Success of each task along training]({FIGURE})"
    words = (
        f"Success along training in `{places()[0]}`. Nothing is smoothed; shaded: the episodes in "
    )
    words += "which a task itself is learned; bands: standard error."
    tables = [table_of(place) for place in places()]
    return "\n\n".join([BEGIN, picture, textwrap.fill(words, 100), *tables, END])


def main() -> None:
    """Write the section and the figure."""
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    readme.write_text(before + section() + after, encoding="utf-8")
    with tempfile.TemporaryDirectory() as place:
        write_report(read(places()[0]), place)
        shutil.copyfile(Path(place) / "figures" / "success.png", ROOT / FIGURE)


if __name__ == "__main__":
    main()
