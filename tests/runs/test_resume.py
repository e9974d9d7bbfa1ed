"""A run that was stopped, by whatever means, ends with the bits of one that never was."""

import dataclasses
import os
import random
import signal
import time

import pytest

from everlearn.runs import metrics_file
from everlearn.runs.config import EvaluationSchedule
from everlearn.runs.evaluate import Evaluator
from everlearn.runs.listeners import Listener
from everlearn.runs.loop import execute
from everlearn.runs.reload import evaluate_run
from everlearn.support.errors import DamagedFileError, InvalidInputError, NotReadyError
from tests.runs.worker import finish, kill_at, outcome, start, tiny, uninterrupted


class StopAfterLine(Listener):
    """Sends a signal to this process at the first line of a kind."""

    def __init__(self, kind):
        self.kind = kind

    def line(self, line):
        if line["kind"] == self.kind:
            self.kind = None
            os.kill(os.getpid(), signal.SIGTERM)


class Messages(Listener):
    """Keeps what it is told."""

    def __init__(self):
        self.texts = []

    def message(self, text):
        self.texts.append(text)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Outcomes of uninterrupted runs, by agent, and the seconds that one took."""
    found = {}
    for agent in ("random", "oa"):
        folder = tmp_path_factory.mktemp(agent) / "run"
        found["seconds"] = uninterrupted(tiny(agent), folder)
        found[agent] = outcome(folder)
    return found


@pytest.mark.parametrize("moment", range(5))
def test_kill_at_a_random_moment(moment, whole, tmp_path):
    folder, config = tmp_path / "run", tiny("oa")
    delay = random.Random(moment).uniform(0.0, whole["seconds"])
    kill_at(start(config, folder), folder, delay)
    assert finish(start(config, folder)) == 0
    assert outcome(folder) == whole["oa"]


def test_kill_between_and_inside_changes_of_the_disk(whole, tmp_path):
    for count in range(20, 150, 30):
        folder = tmp_path / str(count)
        assert finish(start(tiny(), folder, crash_at=count)) == -signal.SIGKILL
        assert finish(start(tiny(), folder)) == 0
        assert outcome(folder) == whole["random"], f"killed at change {count}"


def test_killed_again_and_again(whole, tmp_path):
    folder = tmp_path / "run"
    for count in (30, 45, 60):
        finish(start(tiny(), folder, crash_at=count))
    assert finish(start(tiny(), folder)) == 0
    assert outcome(folder) == whole["random"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_with_a_snapshot(number, whole, tmp_path):
    folder = tmp_path / "run"
    # No snapshot by the clock: the one that is there comes from the signal.
    config = dataclasses.replace(tiny("oa"), snapshot_seconds=1e6)
    process = start(config, folder)
    while not (folder / "transitions").exists():
        assert process.is_alive()
        time.sleep(0.002)
    os.kill(process.pid, number)
    assert finish(process) == 0
    assert metrics_file.snapshot_names(folder / "checkpoints")
    messages = Messages()
    assert execute(config, folder, listeners=[messages]).finished
    assert any("resuming after episode" in text for text in messages.texts)
    assert outcome(folder)["lines"] == whole["oa"]["lines"]


@pytest.mark.parametrize(
    "agent", ["mlp-packnet", "mlp-si", "mlp-coreset", "sac-packnet", "sac-ewc", "sac-coreset"]
)
def test_deep_agents_go_on_after_a_kill(agent, tmp_path):
    """Weights, moments, masks, importance, reservoir, normalisers: all of it is in the file."""
    other = {"mlp": {"model.train_every": 11}, "sac": {"update_every": 2}}[agent.partition("-")[0]]
    config = tiny(agent, options={**tiny(agent).options, **other})
    uninterrupted(config, tmp_path / "whole")
    folder = tmp_path / "run"
    kill_at(start(config, folder), folder, 0.3)
    assert finish(start(config, folder)) == 0
    assert outcome(folder) == outcome(tmp_path / "whole")


class StopInEvaluation(Listener):
    """Sends a signal to this process when so many evaluation episodes are over."""

    def __init__(self, after):
        self.left = after

    def evaluated(self, task, success):
        self.left -= 1
        if self.left == 0:  # the second one would kill
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(
    ("after", "episode", "evaluators"),
    [(1, 0, 1), (3, 2, 1), (6, 3, 1), (1, 0, 2), (6, 3, 2)],
)
def test_stop_inside_an_evaluation_repeats_it(after, episode, evaluators, tmp_path):
    config = tiny("oa", evaluation=EvaluationSchedule(2, 2, 2, heldout=0), evaluators=evaluators)
    folder = tmp_path / "run"
    result = execute(config, folder, listeners=[StopInEvaluation(after)])
    assert not result.finished
    assert result.stopped_by == signal.SIGTERM
    assert (result.state.episode, result.state.evaluated) == (episode, False)
    assert execute(config, folder).finished
    execute(dataclasses.replace(config, evaluators=1), tmp_path / "whole")  # starts no process
    assert outcome(folder)["lines"] == outcome(tmp_path / "whole")["lines"]


def kill_in_evaluation():
    """Let this process be killed before its second evaluation episode."""
    play = Evaluator.episode

    def second_kills(evaluator, agent, task, done, episode):
        if episode == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return play(evaluator, agent, task, done, episode)

    Evaluator.episode = second_kills


@pytest.mark.parametrize("agent", ["oa", "mlp-packnet", "sac-packnet"])
@pytest.mark.parametrize("clock", [0.0, 1e6])
def test_kill_during_the_evaluation_before_the_first_episode(agent, clock, tmp_path):
    """There is a snapshot of the agent that knows nothing, whatever the clock says."""
    schedule = EvaluationSchedule(0, 0, 2, heldout=0)
    config = tiny(agent, episodes_per_task=1, evaluation=schedule, snapshot_seconds=clock)
    execute(config, tmp_path / "whole")
    folder = tmp_path / "run"
    assert finish(start(config, folder, prepare=kill_in_evaluation)) == -signal.SIGKILL
    assert not (folder / "transitions").exists(), "it was killed before its first episode"
    assert metrics_file.snapshot_names(folder / "checkpoints") == ["000000-1-trained"]
    assert finish(start(config, folder)) == 0
    assert outcome(folder)["lines"] == outcome(tmp_path / "whole")["lines"]
    last = "000002-2-evaluated/agent"
    assert outcome(folder)[last] == outcome(tmp_path / "whole")[last]


def test_stop_between_the_first_evaluation_and_the_first_episode(tmp_path):
    config = tiny("oa", snapshot_seconds=1e6)
    folder = tmp_path / "run"
    result = execute(config, folder, listeners=[StopAfterLine("eval")])
    assert (result.state.episode, result.state.evaluated) == (0, True)
    assert metrics_file.snapshot_names(folder / "checkpoints")[-1] == "000000-2-evaluated"
    done, results = evaluate_run(folder, 1)
    assert (done, results["window-close"]["success_rate"]) == (0, 0.0)
    assert execute(config, folder).finished
    execute(config, tmp_path / "whole")
    assert outcome(folder)["lines"] == outcome(tmp_path / "whole")["lines"]


def test_damaged_newest_snapshot_falls_back_and_says_so(whole, tmp_path):
    folder = tmp_path / "run"
    execute(tiny(), folder)
    older, newest = metrics_file.snapshot_names(folder / "checkpoints")
    agent = folder / "checkpoints" / newest / "agent"
    agent.write_bytes(agent.read_bytes()[:-5])
    messages = Messages()
    assert execute(tiny(), folder, listeners=[messages]).finished
    assert any(newest in text and older in text for text in messages.texts)
    assert outcome(folder) == whole["random"]
    assert list((folder / "checkpoints").glob("damaged-*")), "what was damaged is kept"


def test_no_usable_snapshot_is_an_error_and_destroys_nothing(tmp_path):
    folder = tmp_path / "run"
    execute(tiny(), folder)
    for name in metrics_file.snapshot_names(folder / "checkpoints"):
        (folder / "checkpoints" / name / "state").write_bytes(b"")
    before = (folder / "metrics.jsonl").read_bytes()
    with pytest.raises(DamagedFileError, match="--fresh"):
        execute(tiny(), folder)
    assert (folder / "metrics.jsonl").read_bytes() == before
    assert len(metrics_file.snapshot_names(folder / "checkpoints")) == 2


def test_metrics_shorter_than_the_snapshot_says(whole, tmp_path):
    folder = tmp_path / "run"
    execute(tiny(), folder)
    path = folder / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-10])
    messages = Messages()
    execute(tiny(), folder, listeners=[messages])
    assert any("cut short" in text for text in messages.texts)
    assert outcome(folder) == whole["random"]


def test_damaged_line_is_named_and_nothing_is_destroyed(tmp_path):
    folder = tmp_path / "run"
    execute(tiny(), folder)
    path = folder / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = b"#" + lines[2][1:]
    path.write_bytes(b"".join(lines))
    with pytest.raises(DamagedFileError, match="line 3 of"):
        execute(tiny(), folder)
    assert path.read_bytes() == b"".join(lines)


def test_a_finished_run_stays_as_it_is(tmp_path):
    folder = tmp_path / "run"
    execute(tiny(), folder)
    before = (folder / "metrics.jsonl").read_bytes()
    assert execute(tiny(), folder).finished
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_other_settings_need_fresh(tmp_path):
    folder = tmp_path / "run"
    execute(tiny(), folder)
    before = (folder / "metrics.jsonl").read_bytes()
    with pytest.raises(InvalidInputError, match=r"seed: 0 and now 1.*--fresh"):
        execute(tiny(seed=1), folder)
    assert (folder / "metrics.jsonl").read_bytes() == before
    execute(tiny(seed=1), folder, fresh=True)
    assert (folder / "metrics.jsonl").read_bytes() != before
    with pytest.raises(InvalidInputError, match="seed: 1 and now 0"):
        execute(tiny(), folder)


def test_second_process_is_refused(tmp_path):
    folder = tmp_path / "run"
    process = start(tiny(max_steps=500, episodes_per_task=50), folder)
    while not (folder / "config.json").exists():
        assert process.is_alive()
        time.sleep(0.002)
    with pytest.raises(NotReadyError, match="another process"):
        execute(tiny(max_steps=500, episodes_per_task=50), folder)
    process.kill()
    process.join()
