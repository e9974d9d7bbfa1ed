"""Every example in the documentation runs, and does what its docstring says."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
SMALL: dict[str, Any] = {
    "max_steps": 15,
    "model.features": 10,
    "planner.candidates": 20,
    "planner.elites": 5,
}


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


def named(name: str) -> ModuleType:
    return loaded(EXAMPLES[0].parent / f"{name}.py")


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES} == {
        "endless_environment",
        "learn_the_reward",
        "own_environment",
        "pendulum",
        "reacher",
        "resume_on_another_day",
    }


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(
    path: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    figures = loaded(path).main(episodes=2, **SMALL)
    assert len(figures) == 2
    assert np.isfinite(figures).all()
    assert "episode 2" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_docstring_says_how_to_run_it(path: Path) -> None:
    text = inspect.getdoc(loaded(path)) or ""
    assert f"    python examples/{path.name}" in text
    assert "print" in text


def test_cart_and_hidden_target_are_reached() -> None:
    # As they are, small enough for a test.
    assert abs(named("own_environment").main()[-1]) < 0.1
    assert named("learn_the_reward").main()[-1] < 0.1


def test_the_second_day_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "agent.everlearn"
    example = named("resume_on_another_day")
    for _ in range(2):
        example.main(path=path, **SMALL)
    printed = capsys.readouterr().out
    assert f"loaded {path}: 15 steps learned" in printed
    assert f"saved {path}: 30 steps learned" in printed


@pytest.mark.parametrize(
    ("name", "function", "environment"),
    [
        ("pendulum", "upright", "Pendulum-v1"),
        ("resume_on_another_day", "upright", "Pendulum-v1"),
        ("reacher", "near", "Reacher-v5"),
    ],
)
def test_reward_functions_are_those_of_the_environments(
    name: str, function: str, environment: str
) -> None:
    example = named(name)
    weight = getattr(example, "CONTROL_WEIGHT", None)
    settings = {} if weight is None else {"reward_control_weight": weight}
    env = gymnasium.make(environment, **settings)
    env.action_space.seed(0)
    obs, _ = env.reset(seed=0)
    for _ in range(20):
        action = env.action_space.sample()
        after, reward, *_ = env.step(action)
        assert getattr(example, function)(obs[None], action[None], after[None])[0] == pytest.approx(
            reward, abs=1e-5
        )
        obs = after
