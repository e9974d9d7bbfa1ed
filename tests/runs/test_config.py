"""Configs survive JSON, and what makes no sense is refused before anything is created."""

import dataclasses
import json
from pathlib import Path

import pytest

from everlearn.agents import AGENTS
from everlearn.continual_bench import PAPER_TASKS
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.planning.presets import OA
from everlearn.runs.config import EvaluationSchedule, RunConfig
from everlearn.runs.loop import execute
from everlearn.runs.presets import PRESETS, checked, compose_config, preset_config
from everlearn.runs.reload import load_run
from everlearn.support.errors import EverlearnError, InvalidInputError, UnknownNameError
from everlearn.support.settings import options_of, values_of, with_options
from tests.runs.worker import tiny


def resolved_options(agent, options):
    """All options of an agent in Continual Bench, by path."""
    settings = AGENTS.get(agent).settings(ContinualBenchEnv("door-open"))
    return values_of(with_options(settings, options))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("agent", AGENTS)
def test_every_preset_of_every_agent_survives_json(preset, agent):
    config = preset_config(preset, agent, seed=7)
    assert RunConfig.from_json(config.to_json()) == config
    assert checked(config) == config


def test_the_preset_with_noise_is_the_paper_with_other_resets():
    plain, noisy = preset_config("paper", seed=3), preset_config("paper-noise", seed=3)
    assert (plain.reset_noise, noisy.reset_noise) == (0.0, 0.03)
    assert plain.differences(noisy) == [
        'preset: "paper" and now "paper-noise"',
        "reset_noise: 0.0 and now 0.03",
    ]


def test_the_paper_preset_is_the_papers_protocol():
    config = preset_config("paper")
    assert config.tasks == PAPER_TASKS
    assert (config.episodes_per_task, config.max_steps, config.episodes) == (100, 500, 600)
    assert config.evaluation == EvaluationSchedule(20, 5, 20, 1000)
    assert config.options == {}


def test_a_config_from_a_newer_version_is_refused():
    values = {**json.loads(RunConfig().to_json()), "version": 3}
    with pytest.raises(InvalidInputError, match=r"version 3.*newer everlearn"):
        RunConfig.from_json(json.dumps(values))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"epsiodes": 3}, UnknownNameError),
        ({"agent": ""}, InvalidInputError),
        ({"agent": 3}, InvalidInputError),
        ({"world": None}, InvalidInputError),
        ({"tasks": [3]}, InvalidInputError),
        ({"tasks": ["../../elsewhere"]}, InvalidInputError),
        ({"agent": "a/b"}, InvalidInputError),
        ({"imports": "mine"}, InvalidInputError),
        ({"told": "boundaries"}, InvalidInputError),
        ({"measure": "speed"}, InvalidInputError),
        ({"tasks": []}, InvalidInputError),
        ({"tasks": "door-open"}, InvalidInputError),
        ({"episodes_per_task": 0}, InvalidInputError),
        ({"episodes_per_task": 10**15}, InvalidInputError),
        ({"tasks": tuple(map(str, range(1001))), "episodes_per_task": 1}, InvalidInputError),
        ({"tasks": tuple(map(str, range(11))), "episodes_per_task": 10_000}, InvalidInputError),
        ({"episodes_per_task": 2.5}, InvalidInputError),
        ({"max_steps": 0}, InvalidInputError),
        ({"seed": -1}, InvalidInputError),
        ({"seed": True}, InvalidInputError),
        ({"threads": 0}, InvalidInputError),
        ({"evaluators": 0}, InvalidInputError),
        ({"evaluators": 1.5}, InvalidInputError),
        ({"reset_noise": -1.0}, InvalidInputError),
        ({"snapshot_seconds": -1}, InvalidInputError),
        ({"record": "yes"}, InvalidInputError),
        ({"options": [1]}, InvalidInputError),
        ({"evaluation": 3}, InvalidInputError),
        ({"evaluation": {"evry": 3}}, UnknownNameError),
        ({"evaluation": {"every": 3, "episodes": 0}}, InvalidInputError),
        ({"version": "1"}, InvalidInputError),
    ],
)
def test_nonsense_is_refused(change, error):
    values = {**json.loads(RunConfig().to_json()), **change}
    with pytest.raises(error):
        RunConfig.from_json(json.dumps(values))


@pytest.mark.parametrize("text", ["", "[]", "{", "{}"])
def test_what_is_no_config_is_refused(text):
    with pytest.raises(InvalidInputError):
        RunConfig.from_json(text)


@pytest.mark.parametrize(
    "config",
    [
        tiny(options={"noise": 1.0}),
        tiny("ao"),
        tiny(world="continual"),
        tiny(tasks=("door",)),
        tiny(reset_noise=1.0),
        tiny("oa", options={"features": 10}),
        tiny("oa", options={"model.featurs": 10}),
        tiny("oa", options={"model.features": "ten"}),
        tiny("oa", options={"planner.elites": 20, "planner.candidates": 10}),
        tiny("oa", options={"seed": 3}),
        tiny("scripted", options={"noise": -1.0}),
        tiny(threads=10_000),
        tiny(wandb=True),
    ],
)
def test_a_run_that_cannot_start_creates_nothing(config, tmp_path):
    with pytest.raises(EverlearnError):
        execute(config, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_names_are_looked_up_when_a_run_is_made_and_not_before():
    config = tiny("nobody", world="nowhere", tasks=("nothing",), options={"x.y": [1]})
    assert RunConfig.from_json(config.to_json()) == config
    with pytest.raises(UnknownNameError, match="unknown agent 'nobody'"):
        checked(config)
    with pytest.raises(UnknownNameError, match="unknown world 'nowhere'"):
        checked(dataclasses.replace(config, agent="random", options={}))
    with pytest.raises(UnknownNameError, match="unknown task 'nothing'"):
        checked(tiny(tasks=("nothing",)))


def test_what_is_said_goes_before_the_preset(tmp_path):
    config = compose_config(
        preset="smoke", options=["model.features=15"], evaluation={"every": 0}, seed=3
    )
    assert config.options["model.features"] == 15
    small = PRESETS.get("smoke").options["oa"]
    assert config.options["planner.candidates"] == small["planner.candidates"]
    assert (config.evaluation.every, config.evaluation.episodes, config.seed) == (0, 1, 3)
    saved = tmp_path / "run.json"
    saved.write_text(config.to_json())
    assert compose_config(config=saved) == config
    assert compose_config(config=saved, seed=4) == dataclasses.replace(config, seed=4)
    with pytest.raises(InvalidInputError, match="both preset"):
        compose_config(preset="smoke", config=saved)
    with pytest.raises(InvalidInputError, match="no config"):
        compose_config(config=tmp_path / "none.json")


@pytest.mark.parametrize("agent", AGENTS)
def test_resolved_options_are_all_options_and_make_the_same_agent(agent):
    given = tiny(agent).options
    resolved = resolved_options(agent, given)
    settings = AGENTS.get(agent).settings(ContinualBenchEnv("door-open"))
    assert set(resolved) == set(options_of(settings))
    assert {name: resolved[name] for name in given} == given
    # Given in full they are a fixed point: nothing is left to a default.
    assert resolved_options(agent, resolved) == resolved


def test_resolved_options_say_what_the_defaults_were():
    pytest.importorskip("torch")
    assert resolved_options("oa", {"model.bins": 7})["model.ridge"] == OA.model.ridge
    assert resolved_options("oa-paper", {})["model.ridge"] == 0.005
    assert resolved_options("mlp-coreset", {})["model.strategy.capacity"] == 10_000
    assert resolved_options("scripted", {"noise": 0.5}) == {"noise": 0.5}


def test_a_run_says_all_that_it_used_and_can_be_repeated_from_that(tmp_path):
    config = tiny("scripted", episodes_per_task=1)
    execute(config, tmp_path / "run")
    stored = RunConfig.read(tmp_path / "run" / "config.json")
    assert (stored.options, stored.resolved) == ({}, {"noise": 0.0})
    again = compose_config(config=tmp_path / "run" / "config.json", options=["noise=0.1"])
    assert (again.options, again.resolved) == ({"noise": 0.1}, None)
    other = compose_config(config=tmp_path / "run" / "config.json", agent="random")
    assert (other.options, other.resolved) == ({}, None)


def test_resuming_checks_what_the_defaults_were(tmp_path):
    execute(tiny("scripted", episodes_per_task=1), tmp_path / "run")
    file = tmp_path / "run" / "config.json"
    stored = json.loads(file.read_text())
    # As if the default had been another one when the run began.
    file.write_text(json.dumps({**stored, "resolved": {"noise": 0.2}}))
    with pytest.raises(InvalidInputError, match=r"option noise: 0\.2 and now 0\.0"):
        execute(tiny("scripted", episodes_per_task=1), tmp_path / "run")
    said = tiny("scripted", episodes_per_task=1, options={"noise": 0.2})
    assert execute(said, tmp_path / "run").finished
    # Folders from before have no such table; what was given is all that can be compared.
    file.write_text(json.dumps({name: stored[name] for name in stored if name != "resolved"}))
    assert execute(tiny("scripted", episodes_per_task=1), tmp_path / "run").finished
    assert RunConfig.read(file).resolved is None, "what it was is not known"


def test_settings_that_came_with_a_version_must_be_said():
    before = tiny("oa", resolved={"model.ridge": 1.0})
    after = tiny("oa", resolved={"model.ridge": 1.0, "model.bins": 9})
    assert before.differences(after) == ["option model.bins: not known and now 9"]
    assert before.differences(dataclasses.replace(after, options={"model.bins": 9})) == []
    assert after.differences(before) == ["option model.bins: 9 and now not known"]


def test_a_loaded_agent_has_the_settings_of_its_run(tmp_path):
    execute(tiny("oa", episodes_per_task=1), tmp_path / "run")
    file = tmp_path / "run" / "config.json"
    stored = json.loads(file.read_text())
    stored["resolved"]["objective.success_bonus"] = 3.25  # not what is the default today
    file.write_text(json.dumps(stored))
    _, _, agent = load_run(tmp_path / "run")
    assert agent.blueprint.config.objective.success_bonus == 3.25


# Configs of version 1 -------------------------------------------------------------------------

OLD = sorted((Path(__file__).parents[2] / "results").rglob("config.json"))
GONE = {
    "model.onset_weight": 1.0,
    "model.place_gain": 0.0,
    "model.ridge_growth": "fixed",
    "planner.execute": "best",
    "planner.mean_candidate": False,
    "planner.minimum_deviation": 0.0,
    "planner.population_decay": 1.0,
}
"""Options that are no more, with the only values that they had in runs that are kept."""


def test_all_kept_configs_are_read_and_have_todays_names():
    pytest.importorskip("torch")
    assert len(OLD) > 150
    for file in OLD:
        config = RunConfig.read(file)
        if json.loads(file.read_text())["version"] != 1:
            continue
        assert config.measure == "success"
        assert config.told is not None
        settings = AGENTS.get(config.agent).config
        used = {**(config.resolved or {}), **config.options}
        for path, value in used.items():
            if path in GONE:
                assert value == GONE[path], f"{file}: {path}={value} changed the run"
        parts = {path: value for path, value in used.items() if path == "memory"}
        known = options_of(with_options(settings, parts))
        # A run without a memory has the gains of the one that it would have had.
        unknown = [path for path in used if path not in known and path not in GONE]
        assert all(path.startswith("memory.") and used["memory"] == "none" for path in unknown)
        assert RunConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        ("oa", ()),
        ("mlp-coreset", ()),
        ("mlp-ewc", ("boundaries",)),
        ("sac-packnet", ("boundaries", "name")),
        ("scripted", ("boundaries", "name")),
    ],
)
def test_old_configs_know_what_their_agents_were_told(agent, told):
    found = {RunConfig.read(file).told for file in OLD if RunConfig.read(file).agent == agent}
    assert found == {told}


def test_old_names_become_paths():
    old = {
        "version": 1,
        "agent": "mlp-coreset",
        "options": {"hidden": 100, "capacity": 500, "horizon": 5, "patience": 0, "thing_gain": 2.0},
        "checkpoint_seconds": 60.0,
    }
    config = RunConfig.from_json(json.dumps(old))
    assert config.options == {
        "model.hidden": 100,
        "model.strategy.capacity": 500,
        "planner.horizon": 5,
        "escape.patience": 0,
        "memory.object_gain": 2.0,
    }
    assert config.snapshot_seconds == 60
    sac = RunConfig.from_json(
        json.dumps({**old, "agent": "sac-coreset", "options": {"capacity": 9, "hidden": 8}})
    )
    assert sac.options == {"strategy.capacity": 9, "hidden": 8}
    for wrong in ({"options": [1]}, {"agent": 3}):
        with pytest.raises(InvalidInputError):
            RunConfig.from_json(json.dumps({**old, **wrong}))
    with pytest.raises(UnknownNameError, match="unknown setting 'epsiodes'"):
        RunConfig.from_json(json.dumps({**old, "epsiodes": 3}))


def test_a_kept_run_cannot_be_mistaken_for_one_to_resume(tmp_path):
    """Its folder is left as it is, whatever of it is gone."""
    for agent in ("oa", "random"):
        # One from before runs stored all settings that they used.
        kept = (file for file in OLD if "archive" not in file.parts)
        source = next(file.parent for file in kept if RunConfig.read(file).agent == agent)
        folder = tmp_path / agent
        folder.mkdir()
        for name in ("config.json", "metrics.jsonl", "environment.json"):
            (folder / name).write_bytes((source / name).read_bytes())
        before = {file.name: file.read_bytes() for file in folder.iterdir()}
        config = dataclasses.replace(
            RunConfig.read(folder / "config.json"), resolved=None, told=None, measure=None
        )
        assert execute(config, folder).finished
        after = {file.name: file.read_bytes() for file in folder.iterdir() if file.name[0] != "."}
        assert after == before
