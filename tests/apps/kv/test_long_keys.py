"""Keys at and beyond memcached's limit of 250 bytes (memcached, doc/protocol.txt, "Keys"). Needs no memcached."""

from __future__ import annotations

import pytest

from corelane.apps.kv import Session, Store

LONGEST, TOO_LONG = b"k" * 250, b"k" * 251
REFUSED = b"CLIENT_ERROR bad command line format\r\n"


def test_the_longest_key_works_in_every_command(store: Store) -> None:
    session = Session(store)
    assert session.execute(b"set %b 7 0 1\r\n5\r\n" % LONGEST) == b"STORED\r\n"
    assert session.execute(b"get %b\r\n" % LONGEST) == b"VALUE %b 7 1\r\n5\r\nEND\r\n" % LONGEST
    assert session.execute(b"incr %b 2\r\n" % LONGEST) == b"7\r\n"
    assert session.execute(b"touch %b 0\r\n" % LONGEST) == b"TOUCHED\r\n"
    assert session.execute(b"append %b 0 0 1\r\n1\r\n" % LONGEST) == b"STORED\r\n"
    assert session.execute(b"gat 0 %b\r\n" % LONGEST) == b"VALUE %b 7 2\r\n71\r\nEND\r\n" % LONGEST
    assert session.execute(b"delete %b\r\n" % LONGEST) == b"DELETED\r\n"


@pytest.mark.parametrize("length", [251, 252, 255, 256, 257, 506, 4096, 65000])
@pytest.mark.parametrize(
    "command", [b"get %b", b"gets a %b", b"get %b a", b"gat 0 %b", b"delete %b", b"incr %b 1", b"touch %b 0"]
)
def test_a_longer_key_is_refused_and_the_next_command_is_executed(store: Store, command: bytes, length: int) -> None:
    session = Session(store)
    assert session.execute(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
    line = command % (b"k" * length) + b"\r\n"
    assert session.execute(line + b"get a\r\n") == REFUSED + b"VALUE a 0 1\r\nx\r\nEND\r\n"
    assert not session.closed


@pytest.mark.parametrize("verb", [b"set", b"add", b"replace", b"append", b"prepend"])
def test_nothing_is_stored_under_a_longer_key(store: Store, verb: bytes) -> None:
    """The data block of a refused store is skipped; memcached takes it for a command of its own."""
    session = Session(store)
    line = b"%b %b 0 0 1\r\nx\r\n" % (verb, TOO_LONG)
    assert session.execute(line + b"get %b\r\n" % LONGEST) == REFUSED + b"END\r\n"
    assert store.usage()["items"] == 0
