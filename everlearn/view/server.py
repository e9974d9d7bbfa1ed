"""A viser server that is nothing but a page: closed to other sites, other machines and files.

What viser offers beyond that is taken away: any page in the user's browser could otherwise connect
to it, ask for a public address of this machine's server, send files, or set any attribute of a
control.
"""

from __future__ import annotations

import contextlib
import functools
import io
import re
from collections.abc import Iterator
from typing import Any

from everlearn.support.errors import InvalidInputError, NotReadyError, needs_extra

LOOPBACK = ("127.0.0.1", "localhost", "::1")

LOCAL_ORIGIN = re.compile(r"http://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")
"""Pages that may connect to a server on loopback: those that it served itself."""

ACCEPTED = (
    "ViewerCameraMessage",
    "GuiUpdateMessage",
    "TransformControlsUpdateMessage",
    "TransformControlsDragStartMessage",
    "TransformControlsDragEndMessage",
)
"""Messages of a page that are listened to; all others are ignored."""

MAX_MESSAGE = 1 << 16
"""Bytes of a message of a page."""


def start_server(host: str, port: int) -> Any:
    """Start a viser server for one page on `host`, at `port` or the next one that is free."""
    with needs_extra("the viewer", "viser", "view"):
        import viser
        from viser.infra import _infra
    if not 0 <= port <= 65535:
        raise InvalidInputError(f"port is {port}; expected 0 to 65535, 0 for any that is free")
    serving = _infra.websockets.asyncio.server
    real = serving.serve
    limits: dict[str, Any] = {"max_size": MAX_MESSAGE}
    if host in LOOPBACK:
        limits["origins"] = [LOCAL_ORIGIN, None]  # None: what is no browser says no origin

    @functools.wraps(real)
    def serve(*args: Any, **options: Any) -> Any:
        return real(*args, **{**options, **limits})

    serving.serve = serve
    try:
        with _quiet():
            server = viser.ViserServer(host=host, port=port, label="everlearn", verbose=False)
    finally:
        serving.serve = real
    try:
        _close_doors(server)
    except AttributeError as error:
        server.stop()
        raise NotReadyError(
            f"this version of viser ({viser.__version__}) is built otherwise than the one that "
            f"the viewer was tested with ({error}); pip install 'everlearn[view]' again"
        ) from error
    return server


def stop_server(server: Any) -> None:
    """Stop a server and the threads that answered its pages."""
    with _quiet():
        server.stop()
    server._thread_executor.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep viser's banners to itself: commands say what the user should know."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def _close_doors(server: Any) -> None:
    connection = server._websock_server
    _keep_accepted(connection._incoming_handlers)
    connection.on_client_connect(lambda client: _keep_accepted(client._incoming_handlers))


def _keep_accepted(handlers: dict[Any, list[Any]]) -> None:
    for kind in list(handlers):
        if kind.__name__ not in ACCEPTED:
            del handlers[kind]
        elif kind.__name__ == "GuiUpdateMessage":
            handlers[kind] = [_values_only(handler) for handler in handlers[kind]]


def _values_only(handler: Any) -> Any:
    """Let an update of a control set its value and nothing else."""

    @functools.wraps(handler)
    async def checked(client: Any, message: Any) -> None:
        if set(message.updates) == {"value"}:
            await handler(client, message)

    return checked
