"""What a run does and what it must not depend on."""

import dataclasses
import errno
import json
import os
import time
from contextlib import closing

import numpy as np
import pytest

from everlearn.agents import AGENTS, ScriptedAgent, run_episode
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.results.summary import summarize
from everlearn.runs import schedule
from everlearn.runs.config import EvaluationSchedule
from everlearn.runs.evaluate import Evaluator
from everlearn.runs.folder import load_transitions
from everlearn.runs.loop import execute, make
from everlearn.runs.metrics_file import MetricsLog, StorageError, read_lines
from everlearn.runs.presets import preset_config
from everlearn.runs.reload import evaluate_run
from everlearn.support.errors import (
    DamagedFileError,
    InvalidInputError,
    MissingExtraError,
    NotReadyError,
)
from tests.runs.worker import holders, outcome, tiny


def lines_of(folder, kind):
    lines, _ = read_lines(folder / "metrics.jsonl")
    return [line for line in lines if line["kind"] == kind]


def untimed(lines):
    return [{k: v for k, v in line.items() if "seconds" not in k} for line in lines]


def episodes_of(folder):
    return untimed(lines_of(folder, "episode"))


def test_the_lines_are_those_of_the_design(tmp_path):
    execute(tiny("oa"), tmp_path / "run")
    first = lines_of(tmp_path / "run", "episode")[0]
    assert list(first) == [
        "kind", "episode", "step", "task", "success", "length", "return", "seconds",
        "processor_seconds",
    ]  # fmt: skip
    evaluation = lines_of(tmp_path / "run", "eval")
    assert list(evaluation[0]) == [
        "kind", "episode", "step", "task", "success_rate", "episodes", "bursts", "seconds",
        "processor_seconds",
    ]  # fmt: skip
    assert [(line["episode"], line["task"]) for line in evaluation] == [
        (0, "window-close"),
        (2, "window-close"),
        (3, "window-close"),
        (3, "button-press"),
        (5, "window-close"),
        (5, "button-press"),
        (6, "window-close"),
        (6, "button-press"),
    ]
    model = lines_of(tmp_path / "run", "model")
    before_training = {(0, "window-close"), (3, "button-press")}
    assert [(line["episode"], line["task"]) for line in model] == [
        (line["episode"], line["task"])
        for line in evaluation
        if (line["episode"], line["task"]) not in before_training
    ]
    assert all(line["error_one_step"] < line["error_15_steps"] for line in model)
    assert all(line["transitions"] == 30 for line in model)
    used = [line["utilization"] for line in model]
    assert 0 < used[0] <= used[-1] < 1
    assert used == sorted(used)


@pytest.mark.parametrize(
    "agent",
    ["random", "oa", "oa-paper", "mlp-packnet", "mlp-coreset", "sac-packnet", "sac-coreset"],
)
def test_evaluating_every_episode_or_never_changes_no_training_episode(agent, tmp_path):
    never = tiny(agent, evaluation=EvaluationSchedule(0, 0, 0, 0))
    always = tiny(agent, evaluation=EvaluationSchedule(1, 2, 3, 30))
    execute(never, tmp_path / "never")
    execute(always, tmp_path / "always")
    left, right = outcome(tmp_path / "never"), outcome(tmp_path / "always")
    assert episodes_of(tmp_path / "never") == episodes_of(tmp_path / "always")
    assert lines_of(tmp_path / "never", "eval") == []
    assert len(lines_of(tmp_path / "always", "eval")) == 11
    name = "000006-2-evaluated/agent"
    assert left[name] == right[name], "the agents know the same, to the bit"
    assert left["000004.transitions"] == right["000004.transitions"]


def test_the_evaluation_before_training_is_that_of_an_agent_that_knows_nothing(tmp_path):
    config = tiny("oa", max_steps=80, evaluation=EvaluationSchedule(0, 0, 2, 0))
    execute(config, tmp_path / "run")
    environments, untaught, _ = make(config)
    environments.close()
    played = []
    with closing(Evaluator(config)) as evaluator:
        for episode in range(2):
            played.append(evaluator.episode(untaught, "window-close", 0, episode).score)
    first = lines_of(tmp_path / "run", "eval")[0]
    assert (first["episode"], first["step"], first["episodes"]) == (0, 0, 2)
    assert first["success_rate"] == sum(played) / 2
    lines, _ = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert lines[0] == first, "it comes before everything else"


def test_a_task_that_comes_next_is_evaluated_by_the_seeds_of_that_place(tmp_path):
    # How long a script takes depends on the reset, so that only some episodes are in time.
    evaluation = EvaluationSchedule(0, 0, 6, 0)
    config = tiny("scripted", max_steps=70, reset_noise=0.03, evaluation=evaluation)
    execute(config, tmp_path / "run")
    rates = {
        (line["episode"], line["task"]): line["success_rate"]
        for line in lines_of(tmp_path / "run", "eval")
    }
    assert list(rates) == [
        (0, "window-close"),
        (3, "window-close"),
        (3, "button-press"),
        (6, "window-close"),
        (6, "button-press"),
    ]
    env, solved = ContinualBenchEnv("button-press", reset_noise=0.03), 0
    for episode in range(6):
        agent = ScriptedAgent()
        agent.begin_task("button-press", None)
        seed, _ = schedule.evaluation_seeds(config, 3, "button-press", episode)
        solved += run_episode(agent, env, seed=seed, max_steps=70).info["success"]
    assert 0 < solved < 6
    assert rates[3, "button-press"] == solved / 6


def test_same_seed_same_bits_other_seed_other_episodes(tmp_path):
    for name, seed in (("one", 0), ("two", 0), ("other", 1)):
        execute(tiny("oa", seed=seed), tmp_path / name)
    assert outcome(tmp_path / "one") == outcome(tmp_path / "two")
    same = [
        a["return"] == b["return"]
        for a, b in zip(episodes_of(tmp_path / "one"), episodes_of(tmp_path / "other"), strict=True)
    ]
    assert not any(same)


def test_bursts_of_evaluation_episodes_are_counted(tmp_path):
    # Rewards never rise by 100, so that ten steps are: first, wait, wait, burst, and again.
    hasty = {"escape.patience": 2, "escape.progress": 100.0, "escape.burst": 1, "memory": "none"}
    config = tiny("oa", evaluation=EvaluationSchedule(0, 0, 2, 0))
    config = dataclasses.replace(config, options={**config.options, **hasty})
    execute(config, tmp_path / "run")
    assert [line["bursts"] for line in lines_of(tmp_path / "run", "eval")] == [2.0] * 5
    assert summarize(tmp_path / "run").average_performance == 0


@pytest.mark.parametrize("agent", ["random", "oa-paper", "mlp-paper-si", "sac-finetune"])
def test_agents_that_never_lose_their_patience_have_no_bursts(agent, tmp_path):
    execute(tiny(agent, episodes_per_task=1), tmp_path / "run")
    assert all("bursts" not in line for line in lines_of(tmp_path / "run", "eval"))


def test_resets_of_training_and_evaluation_are_spread_alike(tmp_path, monkeypatch):
    config = preset_config("paper-noise", "random", tasks=("button-press",), threads=1)
    schedule = EvaluationSchedule(0, 0, 3, 0)
    config = dataclasses.replace(config, episodes_per_task=3, max_steps=1, evaluation=schedule)
    starts, reset = [], ContinualBenchEnv.reset

    def noted(env, **given):
        obs, info = reset(env, **given)
        starts.append(tuple(obs))
        return obs, info

    monkeypatch.setattr(ContinualBenchEnv, "reset", noted)
    execute(config, tmp_path / "run")
    # Three training episodes, and three of evaluation before and after them: no two start alike.
    assert len(set(starts)) == len(starts) == 9
    plain, _ = reset(ContinualBenchEnv("button-press"), seed=0)
    hand = np.array(starts)[:, :3] - plain[:3]
    assert np.ptp(hand, axis=0).max() > 0.005
    assert np.abs(hand).max() < 0.035


def test_an_evaluation_is_the_same_in_every_schedule(tmp_path):
    execute(tiny("oa", evaluation=EvaluationSchedule(0, 0, 2, 0)), tmp_path / "rare")
    execute(tiny("oa", evaluation=EvaluationSchedule(1, 1, 2, 0)), tmp_path / "often")
    at_end = [line for line in lines_of(tmp_path / "often", "eval") if line["episode"] == 6]
    assert untimed(at_end) == untimed(lines_of(tmp_path / "rare", "eval")[-2:])


def test_seconds_of_episodes_and_evaluations_add_up_to_the_run(tmp_path):
    began = time.perf_counter()
    execute(tiny("oa"), tmp_path / "run")
    whole = time.perf_counter() - began
    kinds = [
        sum(line["seconds"] for line in lines_of(tmp_path / "run", kind))
        for kind in ("episode", "eval")
    ]
    assert min(kinds) > 0
    assert sum(kinds) < whole


def test_the_scripted_agent_solves_and_tasks_may_repeat(tmp_path):
    tasks = ("window-close", "button-press", "window-close")
    config = tiny("scripted", tasks=tasks, episodes_per_task=1, max_steps=200)
    assert execute(config, tmp_path / "run").finished
    assert [line["task"] for line in lines_of(tmp_path / "run", "episode")] == list(tasks)
    assert all(line["success"] for line in lines_of(tmp_path / "run", "episode"))
    last = [line for line in lines_of(tmp_path / "run", "eval") if line["episode"] == 3]
    assert [(line["task"], line["success_rate"]) for line in last] == [
        ("window-close", 1.0),
        ("button-press", 1.0),
    ]
    assert lines_of(tmp_path / "run", "model") == []


def test_recorded_transitions_are_what_happened(tmp_path):
    config = tiny("scripted", episodes_per_task=1, max_steps=30)
    execute(config, tmp_path / "run")
    arrays, facts = load_transitions(tmp_path / "run", 2)
    assert facts == {"episode": 2, "task": "button-press", "success": False}
    env = ContinualBenchEnv("button-press")
    obs, _ = env.reset(seed=schedule.environment_seed(config, 1))
    np.testing.assert_array_equal(arrays["observations"][0], obs)
    for action, after, reward in zip(
        arrays["actions"], arrays["observations"][1:], arrays["rewards"], strict=True
    ):
        obs, got, *_ = env.step(action)
        np.testing.assert_array_equal(obs, after)
        assert got == reward
    execute(tiny(record=False), tmp_path / "bare")
    assert not (tmp_path / "bare" / "transitions").exists()


def test_eval_gives_the_runs_own_numbers_and_changes_nothing(tmp_path):
    folder = tmp_path / "run"
    execute(tiny("scripted", max_steps=80), folder)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    done, results = evaluate_run(folder, 1)
    assert done == 6
    last = [line for line in lines_of(folder, "eval") if line["episode"] == 6]
    assert results == {
        line["task"]: {name: line[name] for name in ("success_rate", "episodes")} for line in last
    }
    assert set(evaluate_run(folder, 1, ("door-open",))[1]) == {"door-open"}
    after = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    assert after == before
    with pytest.raises(InvalidInputError, match="no config"):
        evaluate_run(tmp_path / "nothing", 1)


def test_eval_films_the_very_episodes_of_the_metrics(tmp_path):
    folder, videos = tmp_path / "run", tmp_path / "videos"
    execute(tiny("scripted", episodes_per_task=1, max_steps=75), folder)
    try:
        _, results = evaluate_run(folder, 1, videos=videos)
    except MissingExtraError as error:  # no renderer, or no encoder
        pytest.skip(str(error))
    assert results == evaluate_run(folder, 1)[1]
    rates = {task: result["success_rate"] for task, result in results.items()}
    assert rates == {"window-close": 0.0, "button-press": 1.0}  # 89 and 70 steps by their scripts
    import imageio.v3 as iio

    frames = {file.name: len(iio.imread(file)) for file in sorted(videos.iterdir())}
    start, end = 1, 8  # the picture after the reset, and the last one for a while
    assert frames == {
        "button-press-01-solved.mp4": start + 70 // 4 + end,
        "window-close-01-failed.mp4": start + 75 // 4 + end,
    }


class FullDisk:
    """Refuses writes to a kind of file once it is full."""

    def __init__(self, monkeypatch, name, after):
        self.left = after
        real = getattr(os, name)

        def limited(*args, **options):
            self.left -= 1
            if self.left == 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*args, **options)

        monkeypatch.setattr(os, name, limited)


@pytest.mark.parametrize(("call", "after"), [("write", 3), ("fsync", 5), ("fsync", 12)])
def test_disk_full_is_a_clear_error_and_the_run_goes_on_later(call, after, tmp_path, monkeypatch):
    execute(tiny(), tmp_path / "whole")
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        FullDisk(patch, call, after)
        with pytest.raises(StorageError, match=r"No space left.*same command"):
            execute(tiny(), folder)
    read_lines(folder / "metrics.jsonl")
    assert execute(tiny(), folder).finished
    assert outcome(folder) == outcome(tmp_path / "whole")


def test_half_a_line_on_a_full_disk_is_taken_back(tmp_path, monkeypatch):
    line = {"kind": "episode", "episode": 1, "step": 3, "task": "door-open"}
    line |= {"success": True, "length": 3}
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append([line])
    real = os.write

    def half(descriptor, data):
        if len(data) < 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, bytes(data)[: len(data) // 2])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(StorageError):
            log.append([{**line, "episode": 2}])
    log.append([{**line, "episode": 2}])
    log.close()
    lines, _ = read_lines(tmp_path / "metrics.jsonl")
    assert [line["episode"] for line in lines] == [1, 2]


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    def refused(*args, **options):
        raise PermissionError(errno.EROFS, "Read-only file system")

    for name in ("mkdir", "open"):
        folder = tmp_path / f"run-{name}"
        if name == "open":
            folder.mkdir()
        with monkeypatch.context() as patch:
            for holder in holders(name):
                patch.setattr(holder, name, refused)
            with pytest.raises(StorageError, match=r"Read-only file system.*folder that can be"):
                execute(tiny(), folder)
    assert execute(tiny(), tmp_path / "run-open").finished


def test_folders_that_are_no_runs_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    for fresh in (False, True):
        with pytest.raises(InvalidInputError, match="holds no run"):
            execute(tiny(), tmp_path, fresh=fresh)
    with pytest.raises(InvalidInputError, match="is a file"):
        execute(tiny(), tmp_path / "thesis.tex")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_stored_config_from_a_newer_version_is_left_alone(tmp_path):
    folder = tmp_path / "run"
    execute(tiny(), folder)
    values = {**json.loads((folder / "config.json").read_text()), "version": 9}
    (folder / "config.json").write_text(json.dumps(values))
    before = (folder / "metrics.jsonl").read_bytes()
    with pytest.raises(InvalidInputError, match="version 9"):
        execute(tiny(), folder)
    assert json.loads((folder / "config.json").read_text()) == values
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_other_code_or_another_machine_is_noted(tmp_path):
    folder = tmp_path / "run"
    execute(tiny(), folder)
    facts = json.loads((folder / "environment.json").read_text())
    assert facts["versions"]["numpy"] == np.__version__
    assert facts["threads"] == 1
    built_with = np.show_config(mode="dicts")["Build Dependencies"]["blas"]["version"]
    assert any(f" {built_with[:6]} " in f"{name} " for name in facts["linear_algebra"])
    now = facts["processor"], facts["commit"]
    facts |= {"processor": "abacus", "commit": "0123456789"}
    (folder / "environment.json").write_text(json.dumps(facts))
    execute(tiny(), folder)
    noted = json.loads((folder / "environment.json").read_text())
    assert (noted["processor"], noted["commit"]) == ("abacus", "0123456789")
    (resumed,) = noted["resumed_with"]
    assert (resumed["processor"], resumed["commit"]) == now


@pytest.mark.parametrize("name", AGENTS)
def test_agents_of_the_registry_can_be_run(name, tmp_path):
    config = tiny(name, episodes_per_task=1, max_steps=3)
    assert execute(config, tmp_path / "run").finished


def test_the_scripted_agent_saves_its_place(tmp_path):
    env = ContinualBenchEnv("door-open")
    agent = ScriptedAgent(noise=0.1, seed=4)
    with pytest.raises(NotReadyError):
        agent.act(np.zeros(26))
    agent.begin_task("door-open", None)
    agent.begin_episode()
    obs, _ = env.reset(seed=0)
    for _ in range(60):
        obs, *_ = env.step(agent.act(obs))
    agent.save(tmp_path / "agent")
    other = ScriptedAgent(noise=0.1, seed=5)
    other.begin_task("door-open", None)
    other.load(tmp_path / "agent")
    for _ in range(3):
        np.testing.assert_array_equal(agent.act(obs), other.act(obs))
    (tmp_path / "agent").write_bytes(b"nothing")
    with pytest.raises(DamagedFileError):
        other.load(tmp_path / "agent")
    with pytest.raises(InvalidInputError):
        ScriptedAgent(noise=-1)
