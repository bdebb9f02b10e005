"""Items as commands: what is exported makes the same items when it is executed."""

from __future__ import annotations

import kvbinary as kb

from corelane.apps._native import ffi, lib
from corelane.apps.kv import Session, Store


def exported(store: Store) -> bytes:
    at, buffer, out = ffi.new("uint64_t *"), ffi.new("uint8_t[]", 4096), b""
    while n := lib.cl_kv_export(store.ptr, at, store.time_s, 0, buffer, 4096):
        assert n > 0
        out += bytes(ffi.buffer(buffer, n))
    return out


def test_keys_that_are_no_words_are_exported_in_base64(store: Store) -> None:
    keys = [b"plain", b"two words", b"line\r\nend", b"\0", b"\xff\xfe", b"tab\t", b"del\x7f"]
    binary = b"".join(kb.store(kb.SET, key, b"value of " + key, 7) for key in keys)
    assert all(a.status == kb.OK for a in kb.answers(Session(store).execute(binary)))
    text = exported(store)
    assert text.count(b"set ") == 2  # of the word, and of one whose bytes are not of a text but can stand in a line
    with Store(4 << 20, huge_pages=0) as other:
        session = Session(other)
        answers = session.execute(text).split(b"\r\n")
        assert sorted(answers) == [b"", *[b"HD"] * 5, *[b"STORED"] * 2]
        got = kb.answers(Session(other).execute(b"".join(kb.request(kb.GET, key) for key in keys)))
        assert [(a.value, a.extras) for a in got] == [(b"value of " + key, b"\0\0\0\7") for key in keys]
