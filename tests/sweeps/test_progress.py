"""What is seen of a sweep."""

import io
import json
from pathlib import Path

from rich.console import Console

from everlearn.sweeps.job import run_job
from everlearn.sweeps.progress import SweepProgress
from tests.sweeps.helpers import job_in, jobs_in


def test_the_table_shows_every_run(tmp_path):
    jobs = jobs_in(tmp_path, 2)
    run_job(jobs[0])
    text = io.StringIO()
    progress = SweepProgress(Console(file=text, force_terminal=True, width=120))
    with progress.during(jobs):
        progress.update(jobs[0], "finished", "before")
        progress.update(jobs[1], "failed", "[bold]no[/bold]")
        progress.refresh()
    shown = text.getvalue()
    for word in ("random-0", "6/6", "button-press", "random-1", "0/6", "1 failed, 1 finished"):
        assert word in shown
    assert "[bold]no" in shown, "what is shown is text, not markup"


def test_returns_are_shown_where_a_world_has_no_success(tmp_path):
    world = {"world": "gym:Pendulum-v1", "tasks": ("Pendulum-v1",)}
    job = job_in(tmp_path, "random", **world)
    assert run_job(job).end == "finished"
    lines = [json.loads(line) for line in (Path(job.location) / "metrics.jsonl").open()]
    score = [line["mean_return"] for line in lines if line["kind"] == "eval"][-1]
    text = io.StringIO()
    progress = SweepProgress(Console(file=text, force_terminal=True, width=120))
    with progress.during([job]):
        progress.update(job, "finished", "before")
    assert "3/3" in text.getvalue()
    assert f"{score:.2f}" in text.getvalue()
