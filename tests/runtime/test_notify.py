"""sd_notify to a socket that listens, to none, and to one that nobody reads."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from corelane.runtime.notify import READY, STOPPING, notify


@pytest.fixture(params=["path", "abstract"])
def listener(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A socket in systemd's place, which NOTIFY_SOCKET names."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path if request.param == "path" else f"\0{path}")
        sock.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", path if request.param == "path" else f"@{path}")
        yield sock


def test_assignments_are_lines_of_a_datagram(listener: socket.socket) -> None:
    assert notify(READY, "STATUS=serves \udcff")
    assert notify(STOPPING)
    assert listener.recv(1000) == b"READY=1\nSTATUS=serves ?"
    assert listener.recv(1000) == b"STOPPING=1"


@pytest.mark.parametrize("name", ["", "relative", "/nonexistent/socket", "@corelane-nobody", "/" + 200 * "x"])
def test_without_a_listener_nothing_happens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    assert not notify(READY)
    monkeypatch.delenv("NOTIFY_SOCKET")
    assert not notify(READY)
