"""Put table and figure of the reported runs into the README: ``python tools/readme_results.py``.

Both come from `everlearn report` on the folders below; a test says when the README is behind.
"""

import shutil
import tempfile
import textwrap
from pathlib import Path

from everlearn.report import Report, read_report, write_report
from everlearn.report.tables import to_markdown

ROOT = Path(__file__).parents[1]
PLACES = ("results/quick",)
"""Where the reported runs are; those of the lab notebook are in results/tuning."""

FIRST_REPORTED = 100
"""Seeds below are there to tune on."""

FIGURE = "docs/images/results.png"
BEGIN, END = "<!-- made by tools/readme_results.py -->", "<!-- end -->"


def read() -> Report:
    """Read the runs."""
    return read_report([ROOT / place for place in PLACES])


def section() -> str:
    """Return what stands between the marks: the table of the largest study."""
    part = read().studies[0]
    picture = f"![Success of each task along training]({FIGURE})"
    words = f"`everlearn report {' '.join(PLACES)}`: {part.study.protocol}. Nothing is smoothed; "
    words += "shaded: the episodes in which a task itself is learned; bands: standard error."
    tuned = [
        method.label
        for method in part.study.main
        if any(run.config.seed < FIRST_REPORTED for run in method.runs)
    ]
    if tuned:
        words += f" Of {', '.join(tuned)} these are runs to tune on, not results."
    lines = textwrap.fill(words, 100)
    table = to_markdown(part.tables["brief"]).strip()
    return "\n\n".join([BEGIN, picture, lines, table, END])


def main() -> None:
    """Write the section and the figure."""
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    readme.write_text(before + section() + after, encoding="utf-8")
    with tempfile.TemporaryDirectory() as place:
        write_report(read(), place)
        shutil.copyfile(Path(place) / "figures" / "success.png", ROOT / FIGURE)


if __name__ == "__main__":
    main()
