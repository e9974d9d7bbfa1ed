"""A stored run as one HTML file: a recording that opens in any browser, without a network."""

from __future__ import annotations

import html
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from everlearn.runs.metrics_file import Line, Notify
from everlearn.support.errors import InvalidInputError
from everlearn.support.files import write_text
from everlearn.view.drawing import Drawing
from everlearn.view.replay import Recording, StoredRun, frame_of, outcome
from everlearn.view.server import start_server, stop_server

LARGEST = 10_000_000
"""Bytes of a file."""

STEP_SECONDS = 1 / 80
"""Seconds that a step of the recording takes."""

EVERY = (4, 8, 16, 32)
"""Steps between two frames: the first with which the file is small enough is taken."""

LINGER = 1.0
"""Seconds for which the end of an episode is shown."""

TITLE = "<title>Viser</title>"


def export_run(run: Path, file: Path, notify: Notify = lambda text: None) -> int:
    """Write a recording of a run to `file`, and return its size in bytes.

    It shows the first and the last recorded episode of each task.
    """
    if file.suffix.lower() not in (".html", ".htm"):
        raise InvalidInputError(f"a recording is an HTML file; give a name like {file.stem}.html")
    with closing(StoredRun(run, notify)) as stored:
        recordings = [stored.episode(number) for number in chosen_episodes(stored)]
        for every in EVERY:
            text = _recorded(stored, recordings, every)
            size = len(text.encode())
            if size <= LARGEST:
                break
        else:
            raise InvalidInputError(
                f"the recording of {run} has {size:,} bytes even at one frame in {EVERY[-1]} "
                f"steps, more than {LARGEST:,}; record a run with shorter episodes"
            )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, text)
    return size


def chosen_episodes(run: StoredRun) -> list[int]:
    """Return the first and the last recorded episode of each task."""
    by_task: dict[str, list[int]] = {}
    for line in run.lines:
        if line["kind"] == "episode" and line["episode"] in run.episodes:
            by_task.setdefault(line["task"], []).append(line["episode"])
    return sorted({number for found in by_task.values() for number in (found[0], found[-1])})


def _recorded(stored: StoredRun, recordings: list[Recording], every: int) -> str:
    """Return the page with all recordings, a frame every so many steps."""
    server = start_server("127.0.0.1", 0)
    try:
        drawing = Drawing(server.scene, stored.simulation)
        server.initial_camera.position = drawing.camera
        server.initial_camera.look_at = drawing.centre
        label = server.scene.add_label("/told", "", position=(0.0, 0.0, 0.9))
        serializer = server.get_scene_serializer()
        begins, clock = [], 0.0
        for recording in recordings:
            begins.append(clock)
            for step in _shown_steps(recording, every):
                drawing.show(frame_of(recording, step, stored.bodies))
                label.text = _said(recording, step)
                seconds = LINGER if step == recording.steps else every * STEP_SECONDS
                serializer.insert_sleep(seconds)
                clock += seconds
        page: str = serializer.as_html()
    finally:
        stop_server(server)
    return _with_heading(page, stored, recordings, begins)


def _shown_steps(recording: Recording, every: int) -> Iterator[int]:
    yield from range(0, recording.steps, every)
    yield recording.steps


def _said(recording: Recording, step: int) -> str:
    ended = f" {outcome(recording.solved)}" if step == recording.steps else ""
    return f"{recording.task}, episode {recording.number}, step {step}{ended}"


# The heading over the scene ------------------------------------------------------------

_STYLE = """
#told-by-everlearn{position:fixed;right:12px;top:12px;z-index:5;max-width:calc(100vw - 24px);
box-sizing:border-box;max-height:70vh;overflow:auto;font:13px/1.4 sans-serif;color:#222;
background:#ffffffe6;border-radius:8px;padding:8px 12px;box-shadow:0 1px 4px #0003}
#told-by-everlearn summary{cursor:pointer;font-weight:bold}
#told-by-everlearn table{border-collapse:collapse;margin:6px 0}
#told-by-everlearn td,#told-by-everlearn th{padding:1px 10px 1px 0;text-align:left;
white-space:nowrap}
#told-by-everlearn div,#told-by-everlearn svg{display:block;max-width:320px;margin-top:4px}
"""

# On a phone the table would hide the scene, so it waits to be asked for there.
_OPENED = "if(innerWidth>700)document.getElementById('told-by-everlearn').open=true"


def _with_heading(
    page: str, stored: StoredRun, recordings: list[Recording], begins: list[float]
) -> str:
    """Add what the recording is, when its episodes begin, and the run's curve."""
    config = stored.config
    rows = "".join(
        f"<tr><td>{begin:.0f} s</td><td>{html.escape(recording.task)}</td>"
        f"<td>{recording.number}</td><td>{_outcome(recording)}</td></tr>"
        for recording, begin in zip(recordings, begins, strict=True)
    )
    name = f"{config.agent} in {config.world}, seed {config.seed}"
    heading = (
        f"<style>{_STYLE}</style><details id='told-by-everlearn'>"
        f"<summary>{html.escape(name)}</summary>"
        "<table><tr><th>at</th><th>task</th><th>episode</th><th></th></tr>"
        f"{rows}</table>"
        "<div>black: where hand and objects go; red: where the model of the end of the run "
        "expects them to go with the same actions</div>"
        f"{_curve(stored.lines)}</details><script>{_OPENED}</script>"
    )
    page = page.replace(TITLE, f"<title>{html.escape(name)}</title>")
    end = page.rindex("</body>")
    return page[:end] + heading + page[end:]


def _outcome(recording: Recording) -> str:
    if recording.solved is None:
        return f"return {float(recording.rewards.sum()):.0f}"
    return f"{outcome(recording.solved)}, {recording.steps} steps"


def _curve(lines: list[Line], width: int = 300, height: int = 90) -> str:
    """Draw the steps of all episodes of the run, as SVG."""
    episodes = [line for line in lines if line["kind"] == "episode"]
    if len(episodes) < 2:
        return ""
    longest = max(line["length"] for line in episodes)
    step = width / len(episodes)
    bars = "".join(
        f"<rect x='{place * step:.1f}' width='{max(step - 1, 0.5):.1f}' "
        f"y='{height - height * line['length'] / longest:.1f}' "
        f"height='{height * line['length'] / longest:.1f}' "
        f"fill='{_colour(line)}'><title>{_bar(line)}</title></rect>"
        for place, line in enumerate(episodes)
    )
    return (
        f"<svg viewBox='0 0 {width} {height}' role='img' aria-label='steps of each episode'>"
        f"{bars}</svg><div>steps of each training episode, up to {longest}; dark: solved</div>"
    )


def _colour(line: Line) -> str:
    return "#1f5fa8" if line.get("success") in (True, None) else "#c9ced6"


def _bar(line: Any) -> str:
    return html.escape(f"episode {line['episode']}, {line['task']}: {line['length']} steps")
