"""Files from strangers: agents, run folders, archives. They are data: at worst they are refused."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everlearn.agents import AGENTS
from everlearn.cli import main
from everlearn.continual_bench import TASKS
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.registry import Registry
from everlearn.runs import metrics_file, snapshots
from everlearn.runs.config import RunConfig
from everlearn.runs.loop import execute
from everlearn.support.archive import MAGIC, load_archive, save_archive
from everlearn.support.errors import DamagedFileError, EverlearnError, InvalidInputError
from tests.contracts.test_agents import make, play
from tests.runs.worker import outcome, tiny
from tests.torture.forgery import sampled, save_anything
from tests.torture.length import often

TASK = "button-press"
CONFIG = tiny(episodes_per_task=2, max_steps=3)


def kind_of(path: Path) -> tuple[str, int]:
    content = path.read_bytes()
    length = int.from_bytes(content[8:16], "little")
    header = json.loads(content[16 : 16 + length])
    return header["kind"], header["version"]


@pytest.mark.parametrize(
    "count", [25, pytest.param(None, marks=[pytest.mark.torture, pytest.mark.timeout(3000)])]
)
@pytest.mark.parametrize("name", AGENTS.names())
@pytest.mark.filterwarnings("ignore")  # imagination with forged weights may overflow
def test_forged_agents_are_refused_or_harmless(name, count, tmp_path, tally):
    env, agent = make(name)
    play(env, agent, 6)
    agent.save(tmp_path / "good")
    kind, version = kind_of(tmp_path / "good")
    arrays, meta = load_archive(tmp_path / "good", kind, version)
    good = (tmp_path / "good").read_bytes()
    obs = ContinualBenchEnv(TASK).reset()[0]
    for what, content in sampled(arrays, meta, count):
        save_anything(tmp_path / "forged", kind, version, content)
        try:
            agent.load(tmp_path / "forged")
        except EverlearnError:
            agent.save(tmp_path / "after")
            assert (tmp_path / "after").read_bytes() == good, f"{what}: refused, but changed"
            tally["forged files refused"] += 1
            continue
        # Other numbers may be fine; what matters is that nothing breaks out.
        agent.begin_task(TASK, TASKS.get(TASK).objective())
        try:
            action = agent.act(obs)
            agent.observe(obs, action, obs, 0.0, False)
        except EverlearnError:
            pass
        tally["forged files taken without harm"] += 1
        agent.load(tmp_path / "good")


# Archives ---------------------------------------------------------------------------------


def forge_header(path: Path, header: object) -> None:
    """An archive of no content with any header and right checksums."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    start = MAGIC + len(raw).to_bytes(8, "little") + raw
    start += hashlib.sha256(start).digest()
    path.write_bytes(start + hashlib.sha256(start).digest())


GOOD = {"kind": "thing", "version": 1, "meta": {}, "arrays": []}


def entry(dtype: object = "<f8", shape: object = (0,), name: object = "a") -> dict:
    return {**GOOD, "arrays": [{"name": name, "dtype": dtype, "shape": shape}]}


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b"1" * 5000,
        [],
        None,
        {},
        {**GOOD, "version": "1"},
        {**GOOD, "version": True},
        {**GOOD, "kind": 1},
        {**GOOD, "meta": []},
        {**GOOD, "arrays": {}},
        {**GOOD, "arrays": [3]},
        {**GOOD, "arrays": [{}]},
        entry("O"),
        entry("|O8"),
        entry("V8"),
        entry("f8,O"),
        entry("<f3"),
        entry("S0", [10**11]),
        entry("U", [10**11]),
        entry(3),
        entry(shape=[-1]),
        entry(shape=[-1, 0]),
        entry(shape=[0, 2**62]),
        entry(shape=[0, 2**39, 2**39]),
        entry(shape=[0] * 40),
        entry(shape=[0.0]),
        entry(shape=[True, 0]),
        entry(shape=None),
        entry(name=None),
        {**GOOD, "arrays": entry()["arrays"] * 2},
    ],
    ids=lambda header: str(header)[:40],
)
def test_archives_with_odd_headers_are_refused(header, tmp_path):
    forge_header(tmp_path / "file", header)
    with pytest.raises(DamagedFileError):
        load_archive(tmp_path / "file", "thing", 1)


def test_the_forger_itself_works(tmp_path):
    forge_header(tmp_path / "file", entry())
    arrays, _ = load_archive(tmp_path / "file", "thing", 1)
    assert arrays["a"].shape == (0,)


# Run folders ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile") / "run"
    execute(CONFIG, folder)
    return folder


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inside: st.one_of(
        st.lists(inside, max_size=3), st.dictionaries(st.text(max_size=8), inside, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def altered(draw, content: bytes):
    """A file's content, changed somewhere or replaced."""
    way = draw(st.sampled_from(["bytes", "json", "cut", "splice", "value", "deep", "empty"]))
    if way == "bytes":
        return draw(st.binary(max_size=200))
    if way == "json":
        return json.dumps(draw(JSON)).encode()
    if way == "deep":
        return b"[" * 100_000
    if way == "empty":
        return b""
    place = draw(st.integers(0, len(content)))
    if way == "cut":
        return content[:place]
    if way == "splice":
        return content[:place] + draw(st.binary(max_size=20)) + content[place + 3 :]
    lines = content.splitlines(keepends=True) or [b""]
    number = draw(st.integers(0, len(lines) - 1))
    try:
        line = json.loads(lines[number] if len(lines) > 30 else content)
    except ValueError:
        line = None
    if isinstance(line, dict) and line:
        line[draw(st.sampled_from(sorted(line)))] = draw(JSON)
        whole = json.dumps(line).encode() + b"\n"
        if len(lines) <= 30:
            return whole
        lines[number] = whole
    return b"".join(lines)


def answered(words, capsys) -> tuple[object, str]:
    """Exit code of a command, and what it said on the side."""
    try:
        main(words)
    except SystemExit as end:
        return end.code, capsys.readouterr().err
    return 0, capsys.readouterr().err


FILES = ["config.json", "metrics.jsonl", "environment.json", ".columns", ".lock"]


@pytest.mark.parametrize(
    "examples",
    [10, pytest.param(often(400), marks=[pytest.mark.torture, pytest.mark.timeout(3000)])],
)
def test_hostile_run_folders_are_refused_in_a_line(examples, run, tmp_path, capsys, tally):
    """Every command on a folder with one file that is not what was written."""
    expected = outcome(run)
    folder = tmp_path / "run"

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def attack(data):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(run, folder)
        name = data.draw(st.sampled_from(FILES))
        before = (run / name).read_bytes() if (run / name).exists() else b"{}"
        (folder / name).write_bytes(data.draw(altered(before)))
        for words in (["list", "--runs", str(folder)], ["eval", str(folder), "--episodes", "1"]):
            code, said = answered(words, capsys)
            assert code in (0, 2)
            assert code == 0 or said.count("\n") == 1, said
        try:
            execute(CONFIG, folder)
        except EverlearnError:
            pass
        else:
            assert outcome(folder) == expected
        tally["hostile run folders"] += 1

    attack()


@pytest.mark.parametrize("count", [15, pytest.param(None, marks=pytest.mark.torture)])
def test_forged_states_of_runs_are_refused_or_repaired(count, run, tmp_path, tally):
    expected = outcome(run)
    newest = run / "checkpoints" / metrics_file.snapshot_names(run / "checkpoints")[-1]
    kind, version = snapshots.KIND, snapshots.VERSION
    arrays, meta = load_archive(newest / "state", kind, version)
    for what, content in sampled(arrays, meta, count):
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(run, folder)
        file = folder / "checkpoints" / newest.name / "state"
        save_anything(file, kind, version, content)
        try:
            execute(CONFIG, folder)
        except EverlearnError:
            pass
        else:
            # Another number of steps cannot be told from the right one; the rest can.
            assert "step" in what or outcome(folder) == expected, what
        tally["forged files refused"] += 1


# Paths ------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["../out", "/etc", "a/b", "..", "", "a\\b", "a\0b", "x\n", {}])
def test_no_name_in_a_config_leads_out_of_a_folder(word, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for setting in ("preset", "agent"):
        with pytest.raises(EverlearnError):
            RunConfig(**{setting: word})
    for named in ({"tasks": (word,)}, {"world": word}, {"imports": (word,)}):
        if word == "a/b":  # as in names of Gymnasium, and below the run's folder
            RunConfig(**named)
            continue
        with pytest.raises(EverlearnError):
            RunConfig(**named)
    values = {**json.loads(tiny().to_json()), "preset": word}
    (tmp_path / "hostile.json").write_text(json.dumps(values))
    with pytest.raises(SystemExit) as end:
        main(["run", "--config", "hostile.json"])
    assert end.value.code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["hostile.json"]
    with pytest.raises(InvalidInputError):
        Registry("thing").register(word, 1)


def test_what_a_run_writes_stays_in_its_folder(tmp_path):
    execute(tiny(preset="smoke"), tmp_path / "a" / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["run"]


# No code ----------------------------------------------------------------------------------

LOADERS = ("import pickle", "torch.load", "allow_pickle=True", "joblib", "shelve", "marshal")
LOADERS += ("yaml.load", "eval(", "exec(", "cloudpickle", "dill")


def test_no_source_loads_code_from_files():
    sources = (Path(__file__).parents[2] / "everlearn").rglob("*.py")
    found = [
        (path.name, line.strip())
        for path in sources
        for line in path.read_text().splitlines()
        for word in LOADERS
        if word in line and f"_{word}" not in line and f".{word}" not in line
    ]
    assert not found


@pytest.mark.parametrize("name", AGENTS.names())
def test_agents_come_back_without_pickle(name, tmp_path, monkeypatch):
    env, agent = make(name)
    play(env, agent, 3)
    agent.save(tmp_path / "agent")
    assert b"numpy.core" not in (tmp_path / "agent").read_bytes()

    def refused(*args, **options):
        raise AssertionError("a pickle was loaded")

    for place in ("pickle.loads", "pickle.load", "pickle.Unpickler", "pickle._Unpickler"):
        monkeypatch.setattr(place, refused)
    agent.load(tmp_path / "agent")
    with pytest.raises(AssertionError, match="a pickle"):
        np.load(_pickled(tmp_path), allow_pickle=True)


def _pickled(folder: Path) -> Path:
    np.save(folder / "object.npy", np.array([object], dtype=object))
    save_archive(folder / "plain", "thing", 1, {}, {})
    return folder / "object.npy"
