"""Put table and figure of the reported runs into the README: ``python tools/readme_results.py``.

Both come from `everlearn report` on ``results/quick``; a test says when the README is behind.
"""

import shutil
import tempfile
from pathlib import Path

from everlearn.report import read_report, write_report
from everlearn.report.tables import to_markdown

ROOT = Path(__file__).parents[1]
PLACE = "results/quick"
FIGURE = "docs/images/results.png"
BEGIN, END = "<!-- made by tools/readme_results.py -->", "<!-- end -->"


def section() -> str:
    """Return what stands between the marks: the table of the largest study."""
    part = read_report([ROOT / PLACE]).studies[0]
    picture = f"![Success of each task along training]({FIGURE})"
    words = f"`everlearn report {PLACE}`: {part.study.protocol}. Nothing is smoothed; shaded: the "
    words += "episodes in which a task itself is learned; bands: standard error."
    return "\n\n".join([BEGIN, picture, words, to_markdown(part.tables["brief"]).strip(), END])


def main() -> None:
    """Write the section and the figure."""
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    readme.write_text(before + section() + after, encoding="utf-8")
    with tempfile.TemporaryDirectory() as place:
        write_report(read_report([ROOT / PLACE]), place)
        shutil.copyfile(Path(place) / "figures" / "success.png", ROOT / FIGURE)


if __name__ == "__main__":
    main()
