"""The screen, TensorBoard, and what is missing."""

import io

import pytest
from rich.console import Console

from everlearn.results.summary import result_lines, summarize
from everlearn.runs import listeners
from everlearn.runs.loop import execute
from everlearn.runs.progress import Screen, Standing
from everlearn.support.errors import MissingExtraError
from tests.runs.worker import tiny


def shown(tmp_path, terminal, quiet=False, agent="scripted"):
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=100, height=40)
    screen = Screen(console, quiet=quiet)
    execute(tiny(agent, max_steps=100), tmp_path / "run", listeners=[screen])
    return text.getvalue()


def test_plain_lines_when_not_on_a_terminal(tmp_path):
    text = shown(tmp_path, terminal=False)
    assert "\x1b" not in text
    lines = text.splitlines()
    assert sum(line.startswith("episode ") for line in lines) == 6
    assert sum(line.startswith("evaluation ") for line in lines) == 8
    assert lines[:2] == [
        "evaluating after episode 0: 1 of 1 episodes",
        "evaluation after episode 0: window-close 1.00 over 1 episodes",
    ]
    assert "button-press: solved in" in text
    for word in ("AP 1.00", "regret 0.00", "steps/s", "left"):
        assert word in next(line for line in reversed(lines) if line.startswith("episode "))


def test_a_table_on_a_terminal(tmp_path):
    text = shown(tmp_path, terminal=True)
    for word in ("window-close", "button-press", "6/6", "AP", "regret", "steps/s", "left"):
        assert word in text


def test_quiet_shows_messages_only(tmp_path):
    assert shown(tmp_path, terminal=False, quiet=True) == ""
    assert "resuming after episode 6" in shown(tmp_path, terminal=False, quiet=True)


def test_a_task_that_was_only_evaluated_is_no_part_of_the_average():
    standing = Standing(tiny(episodes_per_task=1))

    def evaluated(episode, task, rate):
        line = {"kind": "eval", "episode": episode, "step": episode, "task": task}
        standing.take({**line, "success_rate": rate, "episodes": 1})
        return standing.average_performance

    def trained(episode, task):
        line = {"kind": "episode", "episode": episode, "step": episode, "task": task}
        standing.take({**line, "success": True, "length": 1})
        return standing.average_performance

    assert evaluated(0, "window-close", 1.0) is None
    assert trained(1, "window-close") is None, "of the last evaluation, not of this moment"
    assert evaluated(1, "window-close", 0.5) == 0.5
    assert evaluated(1, "button-press", 1.0) == 0.5
    assert trained(2, "button-press") == 0.5
    evaluated(2, "window-close", 0.5)
    assert evaluated(2, "button-press", 0.0) == 0.25


def test_results_leave_out_what_is_not_known(tmp_path):
    shown(tmp_path, terminal=False)
    lines = result_lines(summarize(tmp_path / "run"))
    assert lines[0] == "average performance: 1.000"
    assert not any("transfer" in line for line in lines)


def test_tensorboard_has_each_line_once_after_a_resume(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tmp_path / "run"
    for _ in range(2):
        execute(tiny("scripted", max_steps=100, tensorboard=True), folder)
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    found = events.Tensors("episode/success/button-press")
    assert [event.step for event in found] == sorted({event.step for event in found})
    assert len(found) == 3
    assert "eval/success_rate/window-close" in events.Tags()["tensors"]


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_missing_package_is_named(name, tmp_path, monkeypatch):
    monkeypatch.setattr(listeners.importlib.util, "find_spec", lambda package: None)
    with pytest.raises(MissingExtraError, match=f"pip install {name}"):
        execute(tiny(**{name: True}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_weights_and_biases_gets_the_lines(tmp_path, monkeypatch):
    class FakeRun:
        def __init__(self):
            self.logged, self.finished = [], False

        def log(self, values):
            self.logged.append(values)

        def finish(self):
            self.finished = True

    class FakePackage:
        def init(self, **settings):
            self.settings, self.run = settings, FakeRun()
            return self.run

    fake = FakePackage()
    monkeypatch.setattr(listeners.importlib.util, "find_spec", lambda package: package)
    monkeypatch.setattr(listeners.importlib, "import_module", lambda package: fake)
    execute(tiny(wandb=True), tmp_path / "run")
    assert fake.settings["config"]["agent"] == "random"
    assert fake.settings["resume"] == "allow"
    assert len(fake.run.logged) == 14
    assert fake.run.finished
