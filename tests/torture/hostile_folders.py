"""Run folders that nobody should trust: a table of small builders, each of a kind of its own.

A builder gets the folder of a good run, which it spoils, and a folder outside, to which nothing may
be written and from which nothing may be read.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from everlearn.runs.metrics_file import snapshot_names
from everlearn.support.archive import MAGIC

Builder = Callable[[Path, Path], None]

SECRET = "a-secret-that-lies-outside"
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[31mred"

KINDS: dict[str, Builder] = {}


def newest(run: Path) -> Path:
    """The newest snapshot of a run."""
    return run / "checkpoints" / snapshot_names(run / "checkpoints")[-1]


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# What stands where a file or folder should ------------------------------------------------


def link_to_file(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "secret.mp4")


def link_to_folder(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "folder")


def link_to_nothing(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "made-by-a-run")


def link_to_itself(path: Path, outside: Path) -> None:
    path.symlink_to(path.name)


def link_to_a_device(path: Path, outside: Path) -> None:
    path.symlink_to("/dev/zero")


def pipe(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path, outside: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # names of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def folder(path: Path, outside: Path) -> None:
    path.mkdir()
    (path / "inside").write_text("x")


def file(path: Path, outside: Path) -> None:
    path.write_text("x")


FILES: dict[str, Callable[[Path], Path]] = {
    "config": lambda run: run / "config.json",
    "metrics": lambda run: run / "metrics.jsonl",
    "environment": lambda run: run / "environment.json",
    "structure": lambda run: run / "structure.json",
    "lock": lambda run: run / ".lock",
    "cut lines": lambda run: run / "metrics.cut.jsonl",
    "agent": lambda run: newest(run) / "agent",
    "state": lambda run: newest(run) / "state",
    "transitions of an episode": lambda run: run / "transitions" / "000001.transitions",
    "video": lambda run: run / "videos" / "first-after.mp4",
}
FOLDERS: dict[str, Callable[[Path], Path]] = {
    "checkpoints": lambda run: run / "checkpoints",
    "snapshot": newest,
    "transitions": lambda run: run / "transitions",
    "videos": lambda run: run / "videos",
    "single": lambda run: run / "single",
    "task alone": lambda run: run / "single" / "second",
    "events": lambda run: run / "tensorboard",
}
LINKS = (link_to_file, link_to_folder, link_to_nothing, link_to_itself)


def in_place_of(where: Callable[[Path], Path], sort: Builder, run: Path, outside: Path) -> None:
    path = where(run)
    remove(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    sort(path, outside)


for _name, _where in FILES.items():
    for _sort in (*LINKS, link_to_a_device, pipe, unix_socket, folder):
        KINDS[f"{_name}: {_sort.__name__}"] = partial(in_place_of, _where, _sort)
for _name, _where in FOLDERS.items():
    for _sort in (*LINKS, pipe, file):
        KINDS[f"{_name}: {_sort.__name__}"] = partial(in_place_of, _where, _sort)


# What stands in files ---------------------------------------------------------------------


def content(where: Callable[[Path], Path], data: bytes | Callable[[bytes], bytes]) -> Builder:
    def build(run: Path, outside: Path) -> None:
        path = where(run)
        before = path.read_bytes() if path.exists() else b""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data(before))

    return build


def sparse(where: Callable[[Path], Path], size: int) -> Builder:
    def build(run: Path, outside: Path) -> None:
        path = where(run)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.truncate(path, size)

    return build


def unreadable(where: Callable[[Path], Path]) -> Builder:
    return lambda run, outside: where(run).chmod(0)


for _name, _where in FILES.items():
    KINDS[f"{_name}: empty"] = content(_where, b"")
    KINDS[f"{_name}: binary"] = content(_where, bytes(range(256)) * 20)
    KINDS[f"{_name}: nested"] = content(_where, b"[" * 100_000)
    KINDS[f"{_name}: 90 GB of nothing"] = sparse(_where, 90 << 30)
    KINDS[f"{_name}: cut in half"] = content(_where, lambda before: before[: len(before) // 2])
for _name in ("config", "metrics", "environment"):
    KINDS[f"{_name}: unreadable"] = unreadable(FILES[_name])
KINDS["checkpoints: unreadable"] = unreadable(FOLDERS["checkpoints"])

METRICS, CONFIG, ENVIRONMENT = FILES["metrics"], FILES["config"], FILES["environment"]


def lines_of(before: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in before.splitlines()]


def as_lines(lines: list[Any]) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def line_with(**values: Any) -> Builder:
    """The last training episode says something else."""

    def change(before: bytes) -> bytes:
        lines = lines_of(before)
        last = max(n for n, line in enumerate(lines) if line["kind"] == "episode")
        lines[last] |= values
        return as_lines(lines)

    return content(METRICS, change)


def evaluation_with(**values: Any) -> Builder:
    def change(before: bytes) -> bytes:
        lines = lines_of(before)
        last = max(n for n, line in enumerate(lines) if line["kind"] == "eval")
        lines[last] |= values
        return as_lines(lines)

    return content(METRICS, change)


def raw_line(text: bytes) -> Builder:
    return content(METRICS, lambda before: before + text + b"\n")


NUMBERS: dict[str, Any] = {
    "10**19": 10**19,
    "-10**19": -(10**19),
    "2**53 + 1": 2**53 + 1,
    "1e308": 1e308,
    "-1e308": -1e308,
    "1e-320": 1e-320,
    "true": True,
    "text": "1.5",
    "list": [1.5],
    "object": {"a": 1},
    "nan": float("nan"),
    "infinity": float("inf"),
}
for _name, _value in NUMBERS.items():
    KINDS[f"metrics: return of {_name}"] = line_with(**{"return": _value})
KINDS["metrics: return of 1e400"] = raw_line(
    b'{"kind":"episode","episode":4,"step":9,"task":"first","success":true,"length":1,'
    b'"return":1e400}'
)
KINDS["metrics: number of 4000 digits"] = raw_line(
    b'{"kind":"model","episode":4,"step":9,"task":"first","error":' + b"9" * 4000 + b"}"
)
KINDS["metrics: number of 60000 digits"] = raw_line(
    b'{"kind":"model","episode":4,"step":9,"task":"first","error":' + b"9" * 60_000 + b"}"
)
for _name, _values in {
    "episode of 10**15": {"episode": 10**15},
    "episode of -1": {"episode": -1},
    "length of 0": {"length": 0},
    "length of 10**15": {"length": 10**15},
    "step of 2**53": {"step": 2**53},
    "step of 0": {"step": 0},
    "no success": {"success": None},
    "success of 2": {"success": 2},
    "task with escapes": {"task": ESCAPES},
    "task with half a surrogate": {"task": "\ud800"},
    "task of a megabyte": {"task": "x" * 60_000},
    "task of nobody": {"task": "third"},
    "task that leads out": {"task": "../../outside/folder"},
    "kind of nobody": {"kind": "confession"},
    "kind that is a list": {"kind": ["episode"]},
    "name with markup": {"</script><script>alert(1)</script>": 1.0},
    "name with escapes": {ESCAPES: 1.0},
    "name with half a surrogate": {"\udfff": 1.0},
    "hundreds of values": {f"value {n}": float(n) for n in range(500)},
}.items():
    KINDS[f"metrics: {_name}"] = line_with(**_values)
for _name, _values in {
    "success rate of 2": {"success_rate": 2},
    "no success rate": {"success_rate": None},
    "evaluation after 10**12 episodes": {"episode": 10**12},
    "evaluation of nobody's task": {"task": "third"},
    "evaluation of a task with escapes": {"task": ESCAPES},
    "evaluation of 10**15 bursts": {"bursts": 10**15},
    "evaluation at another step": {"step": 1},
}.items():
    KINDS[f"metrics: {_name}"] = evaluation_with(**_values)
for _name, _text in {
    "a list": b"[]",
    "a number": b"7",
    "null": b"null",
    "text": b'"episode"',
    "two objects": b"{}{}",
    "UTF-16": '{"kind":"model"}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "zeros": b"\0" * 100,
    "not UTF-8": b'{"kind":"\xff"}',
    "a carriage return": b'{"kind":"model"}\r',
    "a line of 70,000 bytes": b'{"kind":"model","x":"' + b"x" * 70_000 + b'"}',
}.items():
    KINDS[f"metrics: {_name}"] = raw_line(_text)
KINDS["metrics: 100 MB without an end"] = sparse(METRICS, 100 << 20)
KINDS["metrics: only ends of lines"] = content(METRICS, b"\n" * 1000)
KINDS["metrics: twice"] = content(METRICS, lambda before: before * 2)
KINDS["metrics: backwards"] = content(
    METRICS, lambda before: b"".join(before.splitlines(keepends=True)[::-1])
)
KINDS["metrics: evaluations alone"] = content(
    METRICS, lambda before: as_lines([x for x in lines_of(before) if x["kind"] == "eval"])
)
KINDS["metrics: a last line that is cut short"] = content(METRICS, lambda before: before[:-9])
KINDS["metrics: of another run"] = content(
    METRICS, lambda before: before.replace(b'"first"', b'"third"')
)
KINDS["metrics: 30,000 models"] = content(
    METRICS,
    lambda before: (
        before
        + b'{"kind":"model","episode":4,"step":9,"task":"first","error_one_step":1}\n' * 30_000
    ),
)
KINDS["metrics: an evaluation after every episode there could be"] = content(
    METRICS,
    lambda before: (
        before
        + b"".join(
            b'{"kind":"eval","episode":%d,"step":%d,"task":"first","success_rate":1}\n' % (n, n)
            for n in range(100, 20_000)
        )
    ),
)


# Configs ----------------------------------------------------------------------------------


def config_with(**values: Any) -> Builder:
    """Settings that were changed by hand; a value of `...` removes one."""

    def change(before: bytes) -> bytes:
        settings = json.loads(before) | values
        kept = {name: value for name, value in settings.items() if value is not ...}
        return json.dumps(kept).encode()

    return content(CONFIG, change)


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


for _name, _values in {
    "no version": {"version": ...},
    "version 0": {"version": 0},
    "version 99": {"version": 99},
    "version true": {"version": True},
    "version of 300 digits": {"version": 10**300},
    "unknown setting": {"<b>x</b>": 1},
    "setting with escapes": {ESCAPES: 1},
    "10**15 episodes": {"episodes_per_task": 10**15},
    "0 episodes": {"episodes_per_task": 0},
    "half an episode": {"episodes_per_task": 0.5},
    "100,000 tasks": {"tasks": [f"task {n}" for n in range(100_000)]},
    "1,000 tasks": {"tasks": [f"task {n}" for n in range(1000)]},
    "1,000 tasks of 100 episodes": {
        "tasks": [f"task {n}" for n in range(1000)],
        "episodes_per_task": 100,
    },
    "no tasks": {"tasks": []},
    "tasks as text": {"tasks": "first"},
    "task that leads out": {"tasks": ["first", "../../outside/folder"]},
    "task from the root": {"tasks": ["first", "/etc"]},
    "task of two dots inside": {"tasks": ["first", "a/../../b"]},
    "task with escapes": {"tasks": ["first", ESCAPES]},
    "task with half a surrogate": {"tasks": ["first", "\ud83d"]},
    "task with a newline": {"tasks": ["first", "second\nthird"]},
    "task of 5,000 signs": {"tasks": ["first", "x" * 5000]},
    "task with markup": {"tasks": ["first", "[/bold]"]},
    "task with a tag": {"tasks": ["first", "<img src=x onerror=alert(1)>"]},
    "task from right to left": {"tasks": ["first", "\u202egnp.exe"]},
    "agent that leads out": {"agent": "../../outside/folder"},
    "agent of nobody": {"agent": "nobody"},
    "agent with a tag": {"agent": "<script>alert(1)<script>"},
    "world of nobody": {"world": "nowhere"},
    "world that leads out": {"world": "../outside"},
    "preset that leads out": {"preset": "../outside"},
    "module of nobody": {"imports": ["no_such_module_at_all"]},
    "module that leads out": {"imports": ["../outside/evil"]},
    "10,000 evaluators": {"evaluators": 10_000},
    "10**9 evaluators": {"evaluators": 10**9},
    "10,000 threads": {"threads": 10_000},
    "10**30 steps": {"max_steps": 10**30},
    "seed of 70 bits": {"seed": 2**70},
    "seed below 0": {"seed": -1},
    "noise of 1e308": {"reset_noise": 1e308},
    "10**12 evaluation episodes": {"evaluation": {"every": 1, "episodes": 10**12}},
    "evaluation as a list": {"evaluation": [1]},
    "unknown evaluation": {"evaluation": {"often": 1}},
    "options as a list": {"options": [1]},
    "option with escapes": {"options": {"x": ESCAPES}},
    "option with half a surrogate": {"options": {"x": "\udead"}},
    "option name with half a surrogate": {"options": {"\udead": 1}},
    "option with a tag": {"options": {"x": "<script>alert(1)</script>[a](javascript:alert(1))"}},
    "option with a formula": {"options": {"x": '=HYPERLINK("http://x")'}},
    "option of 400 digits": {"options": {"x": 10**400}},
    "option nested 500 deep": {"options": {"x": deep(500)}},
    "50,000 options": {"options": {f"x{n}": n for n in range(50_000)}},
    "settings of 400 digits": {"resolved": {"x": 10**400}},
    "settings with escapes": {"resolved": {ESCAPES: ESCAPES}},
    "told with escapes": {"told": [ESCAPES]},
    "given a million words": {"given": ["x" * 900] * 4000},
    "measure of nobody": {"measure": "beauty"},
    "measure of return": {"measure": "return"},
    "snapshots never": {"snapshot_seconds": 1e300},
}.items():
    KINDS[f"config: {_name}"] = config_with(**_values)
KINDS["config: number beyond all numbers"] = content(
    CONFIG, lambda before: before.replace(b'"reset_noise": 0.0', b'"reset_noise": 1e400')
)
KINDS["config: not a number"] = content(
    CONFIG, lambda before: before.replace(b'"reset_noise": 0.0', b'"reset_noise": NaN')
)
KINDS["config: 5 MB of spaces"] = content(CONFIG, lambda before: before + b" " * 5_000_000)
KINDS["config: UTF-16"] = content(CONFIG, lambda before: before.decode().encode("utf-16"))
KINDS["config: a list"] = content(CONFIG, b"[]")


# Environments, snapshots, videos, caches ---------------------------------------------------

for _name, _value in {
    "a list": [],
    "escapes": {"processor": ESCAPES, "versions": {ESCAPES: ESCAPES}, "resumed_with": []},
    "half a surrogate": {"processor": "\udead", "resumed_with": []},
    "tags": {"processor": "<script>alert(1)</script>", "python": ["<b>"], "versions": [1]},
    "resumed with a number": {"resumed_with": 7},
    "resumed with text": {"resumed_with": ["x"]},
    "resumed with nothing": {"resumed_with": [None]},
    "numbers beyond all numbers": {"threads": 10**400, "resumed_with": []},
}.items():
    KINDS[f"environment: {_name}"] = content(ENVIRONMENT, json.dumps(_value).encode())


TOUCH = {"entry": 0, "name": "x", "beside": None, "beside_name": ""}
TOUCH |= {"offset": 0.0, "spread": 0.0, "share": 0.0}
for _name, _value in {
    "a list": [],
    "escapes": {"steps": 1, "resting": [], "objects": [], "episode": ESCAPES},
    "a name with escapes": {
        "steps": 1,
        "resting": [{"entry": 0, "name": ESCAPES, "still": 1, "tolerance": None}],
        "objects": [],
    },
    "tags": {
        "steps": 1,
        "resting": [],
        "objects": [
            {
                "entries": [0],
                "names": ["<script>alert(1)</script>"],
                "began": 9,
                "touches": [{**TOUCH, "name": "<script>alert(1)</script>"}],
            }
        ],
    },
    "numbers beyond all numbers": {"steps": 10**400, "resting": [], "objects": []},
    "a million objects": {"steps": 1, "resting": [], "objects": [0] * 10**6},
}.items():
    KINDS[f"structure: {_name}"] = content(FILES["structure"], json.dumps(_value).encode())


def snapshot_named(name: str) -> Builder:
    def build(run: Path, outside: Path) -> None:
        (run / "checkpoints" / name).mkdir()

    return build


for _name in ("999999-2-evaluated", "²-2-evaluated", "0" * 200 + "-1-trained", "1\x1b[2J", "7"):
    KINDS[f"checkpoints: an empty folder {_name[:24]!r}"] = snapshot_named(_name)


def archive(header: object, rest: bytes = b"") -> bytes:
    raw = json.dumps(header).encode()
    start = MAGIC + len(raw).to_bytes(8, "little") + raw
    start += hashlib.sha256(start).digest() + rest
    return start + hashlib.sha256(start).digest()


def claimed(kind: str, shape: list[int]) -> dict[str, Any]:
    entry = {"name": "a", "dtype": "<f8", "shape": shape}
    return {"kind": kind, "version": 1, "meta": {}, "arrays": [entry]}


HUGE = [12 << 30]
for _name, _kind in {"state": "everlearn-run-state", "agent": "random-agent"}.items():
    KINDS[f"{_name}: a header that claims 90 GB"] = content(
        FILES[_name], archive(claimed(_kind, HUGE))
    )
    KINDS[f"{_name}: of another kind"] = content(FILES[_name], archive(claimed("thing", [0])))
    KINDS[f"{_name}: a header of 2**60 bytes"] = content(
        FILES[_name], MAGIC + (2**60).to_bytes(8, "little") + b"{}"
    )


def holes(run: Path, outside: Path) -> None:
    """A file of 90 GB that fits its header, and takes no room on the disk."""
    path = FILES["agent"](run)
    path.write_bytes(archive(claimed("random-agent", HUGE))[:-32])
    os.truncate(path, path.stat().st_size + 8 * HUGE[0] + 32)


KINDS["agent: a header that claims 90 GB, and they are there"] = holes


def video(name: str, size: int = 10) -> Builder:
    def build(run: Path, outside: Path) -> None:
        (run / "videos").mkdir(exist_ok=True)
        (run / "videos" / name).touch()
        os.truncate(run / "videos" / name, size)

    return build


KINDS["video: of 90 GB"] = video("first-after.mp4", 90 << 30)
KINDS["strip: of 90 GB"] = video("first-after-solved-5.png", 90 << 30)
KINDS["video: with a tag in its name"] = video("<script>alert(1)<script>.mp4")
KINDS["video: with escapes in its name"] = video("first-\x1b[2J.mp4")


def forged_cache(run: Path, outside: Path) -> None:
    """What an earlier version stored beside the metrics, trusted by size and time."""
    path = run / ".columns"
    path.write_bytes(archive(claimed("columns", [0])))
    status = METRICS(run).stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


KINDS["a forged cache of the metrics"] = forged_cache


def temporary_links(run: Path, outside: Path) -> None:
    for place in (run, run / "transitions", run / "checkpoints"):
        (place / ".left.tmp").symlink_to(outside / "folder")
        (place / ".gone.tmp").symlink_to(outside / "secret.mp4")


KINDS["temporary files that are links"] = temporary_links


def numbered_links(run: Path, outside: Path) -> None:
    """Names that copies of files would get."""
    for name in ("metrics.jsonl.1", "config.json.1", "environment.json.1"):
        (run / name).symlink_to(outside / "made-by-a-run")
    settings = json.loads(CONFIG(run).read_bytes())
    ENVIRONMENT(run).write_bytes(b"[]")
    CONFIG(run).write_text(json.dumps(settings))


KINDS["copies that are links"] = numbered_links


def deep_tree(run: Path, outside: Path) -> None:
    path = run
    for _ in range(400):
        path = path / "deeper"
    path.mkdir(parents=True)
    shutil.copy(CONFIG(run), path)
    shutil.copy(METRICS(run), path)


KINDS["a folder 400 levels deep"] = deep_tree


def many_folders(run: Path, outside: Path) -> None:
    for number in range(300):
        (run / "many" / str(number)).mkdir(parents=True)


KINDS["300 folders"] = many_folders


def run_in_a_run(run: Path, outside: Path) -> None:
    shutil.copytree(run, run.with_name("again"))
    shutil.move(run.with_name("again"), run / "transitions" / "again")


KINDS["a run in a run"] = run_in_a_run


def no_checkpoints(run: Path, outside: Path) -> None:
    shutil.rmtree(run / "checkpoints")


KINDS["finished, without snapshots"] = no_checkpoints


def begun_without_checkpoints(run: Path, outside: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    METRICS(run).write_bytes(b"".join(METRICS(run).read_bytes().splitlines(keepends=True)[:3]))


KINDS["begun, without snapshots"] = begun_without_checkpoints


def shuffled_bytes(run: Path, outside: Path) -> None:
    chance = random.Random(0)
    for path in run.rglob("*"):
        if path.is_file():
            data = bytearray(path.read_bytes())
            for _ in range(min(len(data), 5)):
                data[chance.randrange(len(data))] ^= 0x55
            path.write_bytes(data)


KINDS["bytes flipped in every file"] = shuffled_bytes

FOLDER_NAMES = {
    "escapes": ESCAPES.replace("/", "").encode(),
    "a newline": b"two\nlines",
    "bytes that are no text": b"\xff\xfe",
    "a tag": b"<script>alert(1)<script>",
    "a formula": b'=HYPERLINK("x")',
    "markup": b"[bold]x[\\bold]",
    "from right to left": "\u202egnp".encode(),
}
"""Names of the run's folder itself."""


def build(kind: str, good: Path, place: Path, outside: Path) -> Path:
    """Copy a good run to below `place`, spoil it, and return where it is."""
    name = FOLDER_NAMES.get(kind.removeprefix("folder named: "), b"hostile")
    run = place / os.fsdecode(name)
    shutil.copytree(good, run)
    if kind in KINDS:
        KINDS[kind](run, outside)
    return run


def make_outside(outside: Path) -> None:
    """Files that no command may read, change or add to."""
    (outside / "folder").mkdir(parents=True)
    (outside / "secret.mp4").write_text(f'{{"kind":"{SECRET}"}}\n')
    (outside / "folder" / ".left.tmp").write_text(SECRET)
    (outside / "folder" / "config.json").write_text(SECRET)
    (outside / "folder" / "first-after.mp4").write_text(SECRET)


ALL = [*KINDS, *(f"folder named: {name}" for name in FOLDER_NAMES)]
