"""What pages, of this or of other sites, must not be able to do."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

pytest.importorskip("viser")

from websockets.exceptions import InvalidStatus

from benchmarks.page_client import Client
from everlearn.support.errors import InvalidInputError
from everlearn.view.server import start_server, stop_server


@pytest.fixture
def server() -> Iterator[Any]:
    made = start_server("127.0.0.1", 0)
    made.scene.set_up_direction("+z")
    yield made
    stop_server(made)


def url(server: Any) -> str:
    return f"http://127.0.0.1:{server.get_port()}"


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux")
def test_it_listens_on_loopback_only(server: Any) -> None:
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path("/proc/net", table).read_text().splitlines()[1:]
    ]
    port = f"{server.get_port():04X}"
    listening = [row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{port}")]
    assert listening == [f"0100007F:{port}"]


@pytest.mark.parametrize("origin", ["https://example.org", "null", "http://localhost.example.org"])
def test_pages_of_other_sites_cannot_connect(server: Any, origin: str) -> None:
    with pytest.raises(InvalidStatus, match="403"):
        Client(url(server), origin=origin)


def test_its_own_page_can(server: Any) -> None:
    Client(url(server), origin=f"http://localhost:{server.get_port()}").close()


def test_no_page_can_ask_for_a_public_address_or_send_files(server: Any) -> None:
    called: list[str] = []
    server.request_share_url = lambda *_, **__: called.append("share")
    box = server.gui.add_text("name", "first")
    client = Client(url(server))
    client.until_controls("name")
    uuid = client.controls["name"]["uuid"]
    client.send(type="ShareUrlRequest")
    client.send(
        type="FileTransferStartUpload",
        source_component_uuid=uuid,
        transfer_uuid="t",
        filename="../../x",
        mime_type="text/plain",
        part_count=1,
        size_bytes=5,
    )
    client.send(
        type="FileTransferPart",
        source_component_uuid=uuid,
        transfer_uuid="t",
        part_index=0,
        content=b"hello",
    )
    client.send(type="GuiUpdateMessage", uuid=uuid, updates={"update_cb": ["x"], "value": "odd"})
    client.send(type="GuiUpdateMessage", uuid=uuid, updates={"value": "second"})
    for _ in range(50):
        if box.value == "second":
            break
        client.receive(0.1)
    assert box.value == "second"
    assert called == []
    assert server.gui._current_file_upload_states == {}
    assert box._impl.update_cb == []
    client.close()


def test_only_the_page_itself_is_served(server: Any) -> None:
    address = urlparse(url(server))
    for path, status in (("/", 200), ("/../../../etc/passwd", 404), ("/%2e%2e/setup.py", 404)):
        connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=10)
        connection.request("GET", path)
        assert connection.getresponse().status == status
        connection.close()


def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="0 to 65535"):
        start_server("127.0.0.1", 70_000)


def test_a_busy_port_gives_the_next_one(server: Any) -> None:
    other = start_server("127.0.0.1", server.get_port())
    try:
        assert other.get_port() != server.get_port()
    finally:
        stop_server(other)
