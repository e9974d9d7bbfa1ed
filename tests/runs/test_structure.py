"""What agents found is kept beside the metrics, which know nothing of it."""

from __future__ import annotations

import json
from pathlib import Path

from everlearn.results import read_runs
from everlearn.runs.loop import execute
from everlearn.runs.reload import load_run
from everlearn.support.structure import Structure
from tests.runs.worker import tiny


def test_a_run_writes_what_its_agent_found_and_resumes_and_extends(tmp_path: Path):
    folder = tmp_path / "run"
    tasks = ("window-close", "button-press")
    short = tiny("oa", tasks=tasks[:1], episodes_per_task=1, max_steps=40)
    execute(short, folder)
    stored = json.loads((folder / "structure.json").read_text())
    assert (stored["episode"], stored["steps"]) == (1, 40)
    metrics = (folder / "metrics.jsonl").read_bytes()
    (folder / "structure.json").unlink()
    execute(short, folder)  # is finished: only what is missing is written again
    assert json.loads((folder / "structure.json").read_text()) == stored
    assert (folder / "metrics.jsonl").read_bytes() == metrics

    longer = tiny("oa", tasks=tasks, episodes_per_task=1, max_steps=40)
    execute(longer, folder, extend=True)
    found = json.loads((folder / "structure.json").read_text())
    assert found["episode"] == 2
    _, _, agent = load_run(folder)
    (record,) = read_runs([folder])[0]
    assert record.structure == agent.structure == Structure.from_json(found)
    assert record.structure.steps == 80

    execute(longer, tmp_path / "at-once")
    assert json.loads((tmp_path / "at-once" / "structure.json").read_text()) == found

    execute(tiny("random", episodes_per_task=1), folder, fresh=True)
    assert not (folder / "structure.json").exists()
    assert read_runs([folder])[0][0].structure is None
