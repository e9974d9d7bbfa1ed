"""A real Chromium, driven over the WebDriver protocol: plain HTTP, so nothing to install for it."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Browser:
    """One tab."""

    def __init__(self, session: str) -> None:
        self._session = session

    def open(self, page: Path) -> None:
        self.visit(page.resolve().as_uri())

    def visit(self, url: str) -> None:
        _ask(f"{self._session}/url", {"url": url})

    def run(self, script: str) -> Any:
        """Run a script, and return what it returns."""
        return _ask(f"{self._session}/execute/sync", {"script": script, "args": []})

    def command(self, name: str, **parameters: Any) -> Any:
        """Give a command of the DevTools protocol."""
        return _ask(f"{self._session}/goog/cdp/execute", {"cmd": name, "params": parameters})

    def resize(self, width: int, height: int, phone: bool = False) -> None:
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        time.sleep(0.3)  # curves are drawn again when the layout has settled

    def move_to(self, x: float, y: float) -> None:
        self.command("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, file: Path, whole: bool = False) -> None:
        options = {"captureBeyondViewport": True} if whole else {}
        if whole:
            size = self.command("Page.getLayoutMetrics")["cssContentSize"]
            options["clip"] = {**size, "scale": 1}
        data = self.command("Page.captureScreenshot", format="png", **options)["data"]
        file.write_bytes(base64.b64decode(data))

    def messages(self) -> list[str]:
        """What the console says."""
        found = _ask(f"{self._session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in found]


WEBGL = ("--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist")
"""Flags that let pages draw in 3D without a graphics card."""


@contextmanager
def chromium(*flags: str) -> Iterator[Browser]:
    """Start Chromium, or skip the test where it is not installed."""
    driver, program = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or program is None:
        pytest.skip("needs the Debian packages chromium and chromium-driver")
    with tempfile.TemporaryDirectory() as profile:
        process = subprocess.Popen(
            [driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            root = f"http://127.0.0.1:{_port(process)}"
            options = {"args": [*FLAGS, *flags, f"--user-data-dir={profile}"], "binary": program}
            wanted = {
                "goog:chromeOptions": options,
                "goog:loggingPrefs": {"browser": "ALL"},
                "timeouts": {"script": 120_000},  # a busy machine draws slowly
            }
            opened = _ask(f"{root}/session", {"capabilities": {"alwaysMatch": wanted}})
            session = f"{root}/session/{opened['sessionId']}"
            try:
                yield Browser(session)
            finally:
                _ask(session, None, "DELETE")
        finally:
            process.terminate()
            process.wait(20)


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        if "successfully on port" in line:
            return int(line.rstrip().rstrip(".").split()[-1])
    raise AssertionError("chromedriver ended before it listened")


def _ask(url: str, values: dict[str, Any] | None, method: str = "POST") -> Any:
    body = None if values is None else json.dumps(values).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method=method)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=120) as answer:
        return json.load(answer)["value"]
