"""Which runs a sweep has, and which of them are finished."""

import shutil
import sys
from pathlib import Path

import pytest

from everlearn.agents import AGENTS
from everlearn.runs.metrics_file import CHECKPOINTS, METRICS
from everlearn.support.errors import InvalidInputError, UnknownNameError
from everlearn.sweeps.grid import parse_seeds, parse_variations, sweep_jobs, unfinished
from everlearn.sweeps.job import Job, Outcome, Resources, is_finished, run_job
from everlearn.sweeps.launch import run_sweep
from tests.runs.worker import tiny
from tests.sweeps.helpers import USER_AGENTS, jobs_in, silent


def test_seeds_are_read_like_people_write_them():
    assert parse_seeds("0-6") == (0, 1, 2, 3, 4, 5, 6)
    assert parse_seeds("3, 10-12,3,11") == (3, 10, 11, 12)


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "1,,2", "0-10000", "1.5", "٣-x"])
def test_what_is_not_a_seed_is_refused(text):
    with pytest.raises(InvalidInputError, match="seeds"):
        parse_seeds(text)


def test_every_agent_runs_with_every_seed(tmp_path):
    jobs = sweep_jobs(["oa", "random"], (4, 5), str(tmp_path), preset="smoke", single_tasks=True)
    assert [job.name for job in jobs[:4]] == ["oa-4", "random-4", "oa-5", "random-5"]
    assert [(job.config.agent, job.config.seed) for job in jobs[:2]] == [("oa", 4), ("random", 4)]
    assert all(job.config.threads == 1 for job in jobs)
    alone = jobs[4]
    assert (alone.name, alone.config.tasks) == ("oa-4/button-press", ("button-press",))
    assert Path(alone.location) == tmp_path / "oa-4" / "single" / "button-press"
    assert Job.from_json(alone.to_json()) == alone
    with pytest.raises(UnknownNameError):
        sweep_jobs(["ao"], (0,), str(tmp_path))
    with pytest.raises(UnknownNameError, match="rigde"):
        sweep_jobs(["oa"], (0,), str(tmp_path), options=["rigde=1"])


def test_varied_options_are_dotted_paths_and_part_of_the_folder(tmp_path):
    jobs = sweep_jobs(
        ["oa"],
        (0, 1),
        str(tmp_path),
        vary=["model.bins=5,7,5", "planner.discount=0.9"],
        options=["model.features=10"],
        world="gym:Pendulum-v1",
    )
    names = [
        "oa-model.bins=5-planner.discount=0.9-0",
        "oa-model.bins=7-planner.discount=0.9-0",
        "oa-model.bins=5-planner.discount=0.9-1",
    ]
    assert [job.name for job in jobs[:3]] == names
    expected = {"model.features": 10, "model.bins": 7, "planner.discount": 0.9}
    assert jobs[1].config.options == expected
    assert (jobs[1].config.world, jobs[1].config.tasks) == ("gym:Pendulum-v1", ("Pendulum-v1",))
    assert Path(jobs[1].location) == tmp_path / names[1]
    assert len(jobs) == 4


@pytest.mark.parametrize("word", ["bins", "bins=", "=5", "bins=5,,7", "bins=../../etc", "bins=a b"])
def test_what_does_not_vary_an_option_is_refused(word):
    with pytest.raises(InvalidInputError, match=r"model\.bins=5,7,9"):
        parse_variations([word])


def test_an_unknown_option_cannot_be_varied(tmp_path):
    with pytest.raises(UnknownNameError, match=r"Did you mean 'model\.bins'"):
        sweep_jobs(["oa"], (0,), str(tmp_path), vary=["model.bons=1"])


def test_agents_of_a_users_module_are_known(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "known_agents.py").write_text(USER_AGENTS)
    before = set(AGENTS)
    try:
        (job,) = sweep_jobs(["mine"], (0,), "runs", imports=("known_agents",), preset="smoke")
        assert job.config.imports == ("known_agents",)
        assert Path(job.location) == tmp_path / "runs" / "mine-0"
    finally:
        for name in set(AGENTS) - before:
            AGENTS.unregister(name)
        sys.modules.pop("known_agents", None)


def test_a_run_may_start_after_those_of_its_tasks_alone(tmp_path):
    saved = tmp_path / "tiny.json"
    saved.write_text(tiny(episodes_per_task=1).to_json())
    jobs = sweep_jobs(["random"], (0,), str(tmp_path), single_tasks=True, config=saved)
    for job in reversed(jobs[:2]):
        assert run_job(job) == Outcome("finished")


# Finished -----------------------------------------------------------------------------------


def test_a_finished_run_without_its_snapshots_is_finished_and_stays_as_it_is(tmp_path):
    (job,) = jobs_in(tmp_path, 1)
    run_job(job)
    shutil.rmtree(Path(job.location) / CHECKPOINTS)
    metrics = Path(job.location) / METRICS
    before = metrics.read_bytes()
    assert is_finished(job)
    assert unfinished([job]) == []
    assert run_job(job) == Outcome("finished")
    result = run_sweep([job], str(tmp_path), Resources(), silent())
    assert result.finished == ["random-0"]
    assert metrics.read_bytes() == before
    assert not (Path(job.location) / CHECKPOINTS).exists()


def test_without_snapshots_the_last_episode_and_evaluation_must_be_there(tmp_path):
    (job,) = jobs_in(tmp_path, 1)
    run_job(job)
    shutil.rmtree(Path(job.location) / CHECKPOINTS)
    metrics = Path(job.location) / METRICS
    lines = metrics.read_text().splitlines(keepends=True)
    last_evaluation = max(i for i, line in enumerate(lines) if '"eval"' in line)
    last_episode = max(i for i, line in enumerate(lines) if '"kind":"episode"' in line)
    for missing in (last_evaluation, last_episode):
        metrics.write_text("".join(line for i, line in enumerate(lines) if i != missing))
        assert not is_finished(job)
    metrics.write_text("rubbish\n")
    assert unfinished([job]) == [job]
    assert "line 1 of" in run_job(job).text, "damaged metrics are an error of that run alone"
    assert metrics.read_text() == "rubbish\n"
    metrics.unlink()
    assert not is_finished(job)


def test_a_run_with_its_snapshots_is_finished_when_the_last_is_there(tmp_path):
    (job,) = jobs_in(tmp_path, 1)
    assert not is_finished(job)
    run_job(job)
    assert is_finished(job)
    newest = sorted((Path(job.location) / CHECKPOINTS).glob("0*"))[-1]
    shutil.rmtree(newest)
    assert not is_finished(job)
