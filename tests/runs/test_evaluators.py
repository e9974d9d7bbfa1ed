"""Processes that share an evaluation: they change its time, and nothing else."""

import dataclasses
import os
import signal
import subprocess
import time
from collections import deque
from contextlib import closing, contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest

from everlearn.runs import evaluators, schedule
from everlearn.runs.config import EvaluationSchedule, RunConfig
from everlearn.runs.evaluate import Evaluator, Outcome
from everlearn.runs.evaluators import EvaluatorLostError, Evaluators
from everlearn.runs.listeners import Listener
from everlearn.runs.loop import execute
from everlearn.runs.presets import preset_config
from everlearn.runs.reload import evaluate_run, load_run
from tests.runs.worker import finish, outcome, start, tiny

pytestmark = pytest.mark.xdist_group("evaluators")  # one process makes the run for all

EPISODES = 8


def evaluator_ids(parent):
    """Evaluator processes of a process, by its number."""
    found = subprocess.run(
        ["ps", "--ppid", str(parent), "-o", "pid=,args="], text=True, stdout=subprocess.PIPE
    ).stdout
    return [int(line.split()[0]) for line in found.splitlines() if "runs.evaluators" in line]


def wait_until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def is_running(process):
    """Whether a process is there and not just waiting for its parent's attention."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A run that solves some of its evaluation episodes, and not others."""
    folder = tmp_path_factory.mktemp("learned") / "run"
    config = RunConfig(
        agent="oa",
        options={
            "model.features": 30,
            "planner.candidates": 60,
            "planner.elites": 8,
            "planner.iterations": 2,
            "planner.horizon": 15,
        },
        tasks=("button-press",),
        episodes_per_task=2,
        max_steps=110,
        threads=1,
        evaluators=1,
        evaluation=EvaluationSchedule(0, 0, EPISODES, heldout=0),
    )
    execute(config, folder)
    return folder


@pytest.fixture(scope="module")
def alone(learned):
    """Outcome of each of its evaluation episodes, all played by this process."""
    config, state, agent = load_run(learned)
    with closing(Evaluator(config)) as evaluator:
        return [
            evaluator.episode(agent, "button-press", state.episode, episode)
            for episode in range(EPISODES)
        ]


def solved_of(outcomes):
    return sum(outcome.score for outcome in outcomes)


def snapshot_of(run):
    return run / "checkpoints" / "000002-2-evaluated"


def test_an_evaluator_plays_every_episode_as_the_run_itself_does(learned, alone):
    assert 0 < solved_of(alone) < EPISODES, "else one that knows nothing might pass"
    assert sum(outcome.bursts for outcome in alone) > 0
    units = deque(("button-press", episode) for episode in range(EPISODES))
    with closing(Evaluators(RunConfig.read(learned / "config.json"), 1, 1)) as others:
        with others.taking(units, snapshot_of(learned)) as outcomes:
            found = dict(outcomes.get() for _ in range(EPISODES))
        played = [Outcome(**found["button-press", episode]) for episode in range(EPISODES)]
        assert played == alone

        (process,) = evaluator_ids(os.getpid())
        os.kill(process, signal.SIGKILL)
        units.append(("button-press", 0))
        with others.taking(units, snapshot_of(learned)) as outcomes:
            lost = outcomes.get()
        assert isinstance(lost, EvaluatorLostError)
        assert "SIGKILL" in str(lost)
        assert list(units) == [("button-press", 0)], "it is there for somebody else"


class KillsEvaluators(Listener):
    """Kills all evaluators when the first evaluation episode is over."""

    def __init__(self):
        self.killed, self.texts = [], []

    def evaluated(self, task, success):
        if not self.killed:
            self.killed = evaluator_ids(os.getpid())
            for process in self.killed:
                os.kill(process, signal.SIGKILL)

    def message(self, text):
        self.texts.append(text)


def test_shared_evaluations_have_the_same_results(tmp_path):
    pytest.importorskip("torch")
    evaluation = EvaluationSchedule(2, 3, 3, heldout=30)
    one = tiny("mlp-packnet", evaluation=evaluation, evaluators=1)
    two = dataclasses.replace(one, evaluators=2)
    execute(one, tmp_path / "one")
    execute(two, tmp_path / "two")
    killer = KillsEvaluators()
    execute(two, tmp_path / "killed", listeners=[killer])
    expected = outcome(tmp_path / "one")
    assert outcome(tmp_path / "two") == expected
    assert outcome(tmp_path / "killed") == expected
    assert len(killer.killed) == 1
    assert [text for text in killer.texts if "process less" in text and "SIGKILL" in text]
    assert evaluator_ids(os.getpid()) == []


class LostAtTheEnd:
    """Evaluators of which one is lost when there is nothing left to play."""

    @contextmanager
    def taking(self, units, snapshot):
        outcomes = SimpleQueue()
        yield outcomes
        outcomes.put(EvaluatorLostError("killed by SIGKILL"))

    def close(self):
        pass


def test_an_evaluator_lost_at_the_end_is_told_of(learned, alone):
    config, state, agent = load_run(learned)
    texts = []
    with closing(Evaluator(config, others=LostAtTheEnd(), notify=texts.append)) as evaluator:
        results = evaluator.evaluate(
            agent, ["button-press"], state.episode, EPISODES, snapshot_of(learned)
        )
    solved, bursts = (sum(numbers) / EPISODES for numbers in zip(*alone, strict=True))
    assert results == {
        "button-press": {"success_rate": solved, "episodes": EPISODES, "bursts": bursts}
    }
    assert texts == ["one evaluator process less from now on: killed by SIGKILL"]


def test_a_hung_evaluator_is_killed_and_its_episode_played_again(learned, alone, monkeypatch):
    monkeypatch.setattr(evaluators, "SILENCE", 60.0)
    units = deque(("button-press", episode) for episode in range(EPISODES))
    config, state, agent = load_run(learned)
    texts = []
    with closing(Evaluators(config, 1, 1)) as others:
        with others.taking(deque([("button-press", 0)]), snapshot_of(learned)) as outcomes:
            outcomes.get()  # its kernels are compiled, so that silence has one reason
        (process,) = evaluator_ids(os.getpid())
        os.kill(process, signal.SIGSTOP)
        monkeypatch.setattr(evaluators, "SILENCE", 2.0)
        with closing(Evaluator(config, others=others, notify=texts.append)) as evaluator:
            found = dict(evaluator._outcomes(agent, state.episode, units, snapshot_of(learned)))
        assert [found["button-press", episode] for episode in range(EPISODES)] == alone
        wait_until(lambda: not is_running(process))
    assert texts == [
        "one evaluator process less from now on: the process said nothing for 2 seconds and was "
        "killed"
    ]


def test_an_evaluator_gives_signs_of_life_during_an_episode(monkeypatch):
    """Otherwise one that plays a long episode is taken for one that hangs."""
    monkeypatch.setattr(evaluators, "BEAT", 0.0)
    reading, writing = os.pipe()
    requests = iter([{"task": "window-close", "episode": 0}])
    (found,) = evaluators._answers(tiny(), requests, evaluators._Heart(writing))
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        assert file.read() == b"null\n" * tiny().max_steps
    assert Outcome(**found).score == 0.0


def test_no_config_starts_more_evaluators_than_the_machine_has_room_for(monkeypatch):
    started = []
    monkeypatch.setattr(
        evaluators, "Evaluators", lambda config, count, threads: started.append(count)
    )
    evaluators.evaluators_for(tiny(evaluators=10_000))
    assert started[0] < max(evaluators.MAX_EVALUATORS, os.cpu_count())


def test_evaluating_a_stored_run_is_shared_too(learned, alone, tmp_path):
    stored = RunConfig.read(learned / "config.json")
    (learned / "config.json").write_text(dataclasses.replace(stored, evaluators=2).to_json())
    try:
        done, results = evaluate_run(learned, EPISODES)
    finally:
        (learned / "config.json").write_text(stored.to_json())
    assert done == 2
    assert results["button-press"]["success_rate"] == solved_of(alone) / EPISODES


# Evaluations of some time: a signal comes while they are under way.
LONG = tiny("random", max_steps=250, episodes_per_task=1, evaluation=EvaluationSchedule(0, 0, 6, 0))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Lines of a run that nobody stops, evaluated by its own process."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    execute(LONG, folder)
    return outcome(folder)["lines"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_evaluators_end_with_their_run_and_it_resumes(number, undisturbed, tmp_path):
    config, folder = dataclasses.replace(LONG, evaluators=2), tmp_path / "run"
    process = start(config, folder)
    wait_until(lambda: (folder / "checkpoints" / "000001-1-trained").exists())
    others = evaluator_ids(process.pid)
    assert len(others) == 1
    os.kill(process.pid, number)
    finish(process)
    wait_until(lambda: not any(map(is_running, others)))
    assert finish(start(config, folder)) == 0
    assert outcome(folder)["lines"] == undisturbed


def test_who_evaluates_if_nobody_says(tmp_path):
    paper = preset_config("paper", "oa")
    assert paper.evaluators is None
    assert [schedule.default_evaluators(paper, threads) for threads in (1, 2, 4, 64)] == [
        1, 2, 4, 4,
    ]  # fmt: skip
    assert schedule.default_evaluators(preset_config("smoke", "oa"), 2) == 1
    execute(tiny(), tmp_path / "run")
    assert RunConfig.read(tmp_path / "run" / "config.json").evaluators == 1


def test_the_number_is_part_of_a_run():
    two = tiny(evaluators=2)
    assert tiny(evaluators=1).differences(two) == ["evaluators: 1 and now 2"]
    assert tiny().differences(two) == []
    assert RunConfig.from_json(two.to_json()) == two
