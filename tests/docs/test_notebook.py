"""The notebooks run from their first cell to their last, and what their text says comes out."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import matplotlib
import pytest

from everlearn.support.threads import limited_threads

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
NOTEBOOK = EXAMPLES / "forgetting.ipynb"
INSTALL = re.compile(r"^%pip install --quiet .*everlearn.*$", flags=re.M)


def cells_of(notebook: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return cells


CELLS = cells_of(NOTEBOOK)


def run_cells(notebook: Path = NOTEBOOK) -> dict[str, Any]:
    """Everything that the cells define, run from top to bottom as a notebook runs them."""
    from matplotlib import pyplot as plt

    found: dict[str, Any] = {"__name__": "notebook"}
    backend = matplotlib.get_backend()
    plt.switch_backend("agg")
    began = time.process_time()
    try:
        for number, cell in enumerate(cells_of(notebook)):
            if cell["cell_type"] == "code":
                source = "".join(cell["source"]).replace("plt.show()", "")
                source = INSTALL.sub("", source)
                exec(compile(source, f"cell {number}", "exec"), found)
        found["figures"] = len(plt.get_fignums())
    finally:
        plt.close("all")
        plt.switch_backend(backend)
    found["seconds"] = time.process_time() - began
    return found


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_first_cell_installs_the_package(notebook: Path):
    first = next(cell for cell in cells_of(notebook) if cell["cell_type"] == "code")
    assert INSTALL.search("".join(first["source"]))


def test_a_task_is_learned_and_watched():
    with limited_threads(1):
        names = run_cells(EXAMPLES / "learn_a_task.ipynb")
    assert names["agent"].steps > 0
    assert len(names["path"]) == names["result"].length
    assert names["figures"] == (2 if names["frames"] else 1)


def test_an_environment_is_learned_and_its_model_used_for_another_goal():
    with limited_threads(1):
        names = run_cells(EXAMPLES / "your_environment.ipynb")
    assert abs(names["ends"][-1]) < 0.1
    assert names["error"] < 0.5 * names["change"]
    assert abs(float(names["env"].state[0]) - 0.5) < 0.1


def test_two_agents_are_compared_by_an_interval():
    with limited_threads(1):
        names = run_cells(EXAMPLES / "compare_agents.ipynb")
    assert {scores.shape for scores in names["table"].values()} == {(5, 2)}
    assert names["low"] <= names["difference"] <= names["high"]
    assert names["verdict"] == "better", "plans that look ahead are better than those that do not"


def test_it_takes_a_minute_and_what_it_says_comes_out():
    names = run_cells()
    assert names["seconds"] < 60
    assert names["figures"] == 3

    half = len(names["times"]) // 2 - 1
    network, online = names["errors"]["network"], names["errors"]["online"]
    assert network[half] < 1e-4, "the network had learned the left"
    assert network[-1] > 30 * network[half], "and forgets it"
    assert online[-1] < 3 * online[half]
    assert online[-1] < 1e-6

    indexed, unified = names["outcomes"]["task-indexed"], names["outcomes"]["unified"]
    # Both errors together cannot be smaller than that of the mean of the two outcomes.
    assert (indexed[1][-1] + indexed[2][-1]) / 2 >= 0.04
    assert max(unified[1][-1], unified[2][-1]) < 1e-4


def test_it_is_stored_with_its_outputs_and_without_traces_of_a_machine():
    code = [cell for cell in CELLS if cell["cell_type"] == "code"]
    outputs = [output for cell in code for output in cell["outputs"]]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
    printed = "".join("".join(output.get("text", "")) for output in outputs)
    assert re.search(r"online\s+error on the left", printed)
    assert not any(output["output_type"] == "error" for output in outputs)
    assert not re.search(r"/(home|root|tmp|work)/", NOTEBOOK.read_text(encoding="utf-8"))


def test_its_links_lead_somewhere():
    text = "".join("".join(c["source"]) for c in CELLS if c["cell_type"] == "markdown")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    assert all((NOTEBOOK.parent / link).exists() for link in links)
