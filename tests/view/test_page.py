"""The page in a real Chromium: it draws, its controls work, and it leaves no trace."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

viser = pytest.importorskip("viser")

from everlearn.continual_bench.rewards import BLOCK_TARGET
from everlearn.view.page import Controls, Page
from everlearn.view.scene import Simulation
from tests.report.browser import WEBGL, Browser, chromium
from tests.view.test_live import Running

pytestmark = pytest.mark.xdist_group("report")  # one browser at a time

WIDTH, HEIGHT = 560, 420
FIELD_OF_VIEW = np.radians(75.0)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    made = Running("pick-place")
    made.wait(lambda: made.steps > 2)
    made.client.use("pause")
    made.wait(lambda: made.session.pace.paused)
    yield made
    made.close()


@pytest.fixture(scope="module")
def browser(running: Running) -> Iterator[Browser]:
    with chromium(*WEBGL) as opened:
        opened.resize(WIDTH, HEIGHT)
        opened.visit(running.session.page.url)
        wait(lambda: "pick-place" in str(opened.run("return document.body.innerText")))
        yield opened


def wait(holds: Callable[[], Any], seconds: float = 60.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)
    return found


def pixels(browser: Browser, tmp_path: Path) -> np.ndarray:
    import matplotlib.image

    browser.screenshot(tmp_path / "page.png")
    return np.asarray(matplotlib.image.imread(tmp_path / "page.png"))[:, :, :3]


def test_the_page_draws_the_robot(browser: Browser, tmp_path: Path) -> None:
    def red() -> bool:
        # An empty scene is white: the arm is the only red thing of that size.
        shown = pixels(browser, tmp_path)
        strong = (shown[:, :, 0] > 0.4) & (shown[:, :, 1] < 0.45) & (shown[:, :, 2] < 0.45)
        return int(strong.sum()) > 0.004 * strong.size

    wait(red, 180)


def at(point: tuple[float, ...], camera: Any) -> tuple[float, float]:
    """Where on the page a point of the scene is: a pinhole camera, worked out here."""
    eye, centre = np.array(camera.camera), np.array(camera.centre)
    forward = (centre - eye) / np.linalg.norm(centre - eye)
    right = np.cross(forward, (0.0, 0.0, 1.0))
    right /= np.linalg.norm(right)
    up = np.cross(right, forward)
    away = np.array(point) - eye
    scale = HEIGHT / 2 / np.tan(FIELD_OF_VIEW / 2) / (away @ forward)
    return WIDTH / 2 + float(away @ right) * scale, HEIGHT / 2 - float(away @ up) * scale


def mouse(browser: Browser, kind: str, x: float, y: float) -> None:
    pressed = {"button": "left", "buttons": 0 if kind == "mouseReleased" else 1, "clickCount": 1}
    if kind == "mouseMoved":
        pressed = {"buttons": 1}
    browser.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, **pressed)


def test_dragging_the_goal_changes_the_plan(running: Running, browser: Browser) -> None:
    session = running.session
    drawing = session.page._drawing
    assert session.observer.goal == BLOCK_TARGET
    plan, steps = running.agent.last_plan, running.steps
    across, along, height = BLOCK_TARGET
    x, y = at((across, along, height + 0.12), drawing)  # the upward arrow
    browser.move_to(x, y)
    time.sleep(0.5)
    mouse(browser, "mousePressed", x, y)
    for part in range(1, 6):
        mouse(browser, "mouseMoved", x, y - 8 * part)
        time.sleep(0.1)
    mouse(browser, "mouseReleased", x, y - 40)
    goal = wait(lambda: session.observer.goal != BLOCK_TARGET and session.observer.goal)
    wait(lambda: running.agent.last_plan is not plan)
    assert goal[2] > BLOCK_TARGET[2] + 0.01, "up"
    assert goal[:2] == pytest.approx(BLOCK_TARGET[:2], abs=1e-3)
    assert running.steps == steps, "the robot has not moved"


def click_text(browser: Browser, selector: str, text: str) -> None:
    """Click an element with that text or value, as a user does."""
    found = browser.run(
        f"const e = [...document.querySelectorAll({json.dumps(selector)})].find("
        f"e => e.textContent.trim() === {json.dumps(text)} || e.value === {json.dumps(text)});"
        "if (!e) return null; e.scrollIntoView({block: 'center'});"
        "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]"
    )
    assert found, f"{text!r} is not on the page"
    mouse(browser, "mousePressed", *found)
    mouse(browser, "mouseReleased", *found)


def test_the_task_is_switched_with_its_control(running: Running, browser: Browser) -> None:
    assert running.session.task == "pick-place"
    click_text(browser, "input", "pick-place")
    wait(lambda: browser.run("return document.querySelectorAll('[role=option]').length") >= 6)
    click_text(browser, "[role=option]", "door-open")
    wait(lambda: running.session.task == "door-open")
    wait(lambda: "door-open" in str(browser.run("return document.body.innerText")))


def test_the_page_reports_no_errors(browser: Browser) -> None:
    severe = [
        text for text in browser.messages() if "error" in text.lower() or "failed" in text.lower()
    ]
    # Chromium's own words about drawing in software say contextCreationFailed: false.
    assert [text for text in severe if "contextCreationFailed: false" not in text] == []


def test_the_page_fits_a_phone(browser: Browser, tmp_path: Path) -> None:
    browser.resize(390, 700, phone=True)
    assert browser.run("return document.documentElement.scrollWidth") <= 390
    assert len(np.unique(pixels(browser, tmp_path).reshape(-1, 3), axis=0)) > 50


def test_forty_pages_leave_no_thread_and_no_memory(browser: Browser) -> None:
    env = gymnasium.make("Reacher-v5")
    page = Page(Simulation.of(env), Controls(pace=True), port=0)
    websockets = page._server._websock_server
    browser.visit(f"{page.url}/nothing-here")  # of the same origin, with nothing else to do

    def visit(times: int) -> None:
        browser.run(
            "window.done = 0; const one = n => { if (n < 1) return;"
            f"const s = new WebSocket({json.dumps(page.url.replace('http', 'ws'))},"
            f"{json.dumps('viser-v' + viser.__version__)});"
            "s.onmessage = () => s.close();"
            "s.onclose = () => { window.done += 1; one(n - 25); }; };"
            f"for (let k = 0; k < 25; k += 1) one({times} - k);"
        )
        wait(lambda: browser.run("return window.done") == times, 200)
        wait(lambda: not websockets._client_state_from_id)

    visit(10)
    gc.collect()
    threads, objects = threading.active_count(), len(gc.get_objects())
    visit(40)
    gc.collect()
    assert threading.active_count() <= threads
    assert len(gc.get_objects()) < objects + 800, "objects of pages that are gone"
    assert not websockets._live_connections
    assert not websockets._broadcast_buffer.generator_cursors
    page.close()
    env.close()
