"""What a page says and hears, without a browser: the messages of viser's client over its socket."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import viser
import zstandard
from websockets.sync.client import connect

CAMERA = {
    "type": "ViewerCameraMessage",
    "wxyz": [1.0, 0.0, 0.0, 0.0],
    "position": [0.0, 0.0, 2.0],
    "fov": 1.0,
    "near": 0.01,
    "far": 100.0,
    "image_height": 300,
    "image_width": 400,
    "look_at": [0.0, 0.0, 0.0],
    "up_direction": [0.0, 0.0, 1.0],
}


class Client:
    """A connection as a page makes it; `controls` has what it was told of controls, by label."""

    def __init__(self, url: str, origin: str | None = None, version: str = "") -> None:
        self.socket = connect(
            url.replace("http", "ws").replace("localhost", "127.0.0.1"),
            subprotocols=[f"viser-v{version or viser.__version__}"],
            origin=origin,
            max_size=None,
            proxy=None,
        )
        self.controls: dict[str, dict[str, Any]] = {}
        self.messages: list[dict[str, Any]] = []
        self.send(**CAMERA)

    def send(self, **message: Any) -> None:
        self.socket.send(msgspec.msgpack.encode(message))

    def receive(self, timeout: float = 1.0) -> list[dict[str, Any]]:
        """Messages of the next window."""
        try:
            raw = self.socket.recv(timeout)
        except TimeoutError:
            return []
        assert isinstance(raw, bytes)
        packed = int.from_bytes(raw[8:16], "little")
        size = int.from_bytes(raw[:8], "little")
        inner = zstandard.ZstdDecompressor().decompress(raw[16 : 16 + packed], size)
        found: list[dict[str, Any]] = msgspec.msgpack.decode(inner)["messages"]
        for message in found:
            label = message.get("props", {}).get("label")
            if label:
                self.controls[label] = message
        self.messages += found
        return found

    def until(self, wanted: Callable[[dict[str, Any]], bool], seconds: float = 20.0) -> Any:
        """Wait for a message, and return it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for message in self.receive():
                if wanted(message):
                    return message
        raise AssertionError("the page was not told what it waits for")

    def until_controls(self, *labels: str) -> None:
        self.until(lambda _: all(label in self.controls for label in labels))

    def use(self, label: str, value: Any = True) -> None:
        """Set a control, as a user does."""
        uuid = self.controls[label]["uuid"]
        self.send(type="GuiUpdateMessage", uuid=uuid, updates={"value": value})

    def drag_goal(self, *point: float) -> None:
        self.send(
            type="TransformControlsUpdateMessage",
            name="/goal",
            wxyz=[1.0, 0.0, 0.0, 0.0],
            position=list(point),
        )

    def close(self) -> None:
        self.socket.close()
