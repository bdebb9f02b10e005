"""What memcached's -F, -W, -X and -B forbid clients, in its words."""

from __future__ import annotations

import pytest

from corelane.apps.kv import Session, Store
from corelane.apps.kv.app import Options
from corelane.apps.kv.flags import options_of

FLUSH = bytes([0x80, 0x08]) + bytes(22)
VERSION = bytes([0x80, 0x0B]) + bytes(22)


def settings(session: Session) -> dict[str, str]:
    lines = session.execute(b"stats settings\r\n").decode().splitlines()[:-1]
    return dict(line.split(" ", 2)[1:] for line in lines)


def test_flush_all() -> None:
    with Store(no_flush=True) as store:
        session = Session(store)
        session.execute(b"set a 0 0 1\r\nx\r\n")
        assert session.execute(b"flush_all\r\n") == b"CLIENT_ERROR flush_all not allowed\r\n"
        assert session.execute(b"flush_all 10\r\n") == b"CLIENT_ERROR flush_all not allowed\r\n"
        assert session.execute(b"flush_all noreply\r\nget a\r\n") == b"VALUE a 0 1\r\nx\r\nEND\r\n"
        answer = Session(store).execute(FLUSH)
        assert (answer[6:8], answer[24:]) == (b"\0\x20", b"Auth failure.")
        assert store.get(b"a") is not None
        assert settings(session)["flush_enabled"] == "no"


def test_watch_and_listings() -> None:
    with Store(no_watch=True, no_dump=True) as store:
        session = Session(store)
        session.execute(b"set a 0 0 1\r\nx\r\n")
        assert session.execute(b"watch fetchers\r\n") == b"CLIENT_ERROR watch commands not allowed\r\n"
        assert session.execute(b"lru_crawler metadump all\r\n") == b"ERROR metadump not allowed\r\n"
        assert session.execute(b"stats cachedump 1 0\r\n") == b"CLIENT_ERROR stats cachedump not allowed\r\n"
        assert session.execute(b"lru_crawler crawl all\r\n") == b"OK\r\n"
        assert settings(session)["dump_enabled"] == "no"


def test_one_protocol() -> None:
    with Store(protocol="ascii") as store:
        session = Session(store)
        assert session.execute(VERSION + b"\r\n").startswith(b"ERROR")
        assert settings(Session(store))["binding_protocol"] == "ascii"
    with Store(protocol="binary") as store:
        assert Session(store).execute(VERSION)[24:].startswith(b"1.6.18-corelane")
        session = Session(store)
        assert session.execute(b"version\r\n") == b""
        assert session.closed


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [("-F", "no_flush", True), ("-W", "no_watch", True), ("-X", "no_dump", True), ("-B ascii", "protocol", "ascii")],
)
def test_by_memcached_s_options(line: str, field: str, value: object) -> None:
    made = options_of(line)
    assert made == {field: value}
    assert getattr(Options(**made), field) == value
