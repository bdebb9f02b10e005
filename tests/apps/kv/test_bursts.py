"""A burst of requests is answered as its requests one after the other: stages that look ahead change no answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.apps._native import ffi, lib
from corelane.apps.kv import Store

ROOM = 1458  # of a reply in a frame of 1500 bytes
KEYS = [b"a", b"bb", b"key-of-16-bytes!", b"x" * 250]
keys = st.sampled_from(KEYS)
values = st.one_of(st.binary(max_size=400), st.integers(0, 999).map(lambda n: b"%d" % n))


def stored(name: bytes, key: bytes, value: bytes) -> bytes:
    return b"%b %b 5 0 %d\r\n%b\r\n" % (name, key, len(value), value)


requests = st.one_of(
    st.builds(lambda key: b"get %b\r\n" % key, keys),
    st.builds(stored, st.sampled_from([b"set", b"add", b"replace", b"append"]), keys, values),
    st.builds(lambda name, key: b"%b %b\r\n" % (name, key), st.sampled_from([b"delete", b"gets"]), keys),
    st.builds(lambda key: b"incr %b 7\r\n" % key, keys),
    st.builds(lambda a, b: b"get %b %b\r\n" % (a, b), keys, keys),
    st.sampled_from([b"flush_all\r\n", b"get \r\n", b"get", b"", b"STORED\r\n"]),
)


@contextmanager
def server() -> Iterator[Any]:
    """A store's side of a server, of which two are equal in all but how they are asked."""
    with Store(1 << 20, item_max_bytes=1024, manual_clock=True, seed=3, huge_pages=0) as store:
        out = ffi.new("struct cl_kv_server **")
        assert lib.cl_kv_server_new(store.ptr, ffi.NULL, out) == 0
        try:
            yield lib.cl_kv_server_udp(out[0], 0)
        finally:
            lib.cl_kv_server_delete(out[0])
            store.check()


def ask(udp: Any, texts: Sequence[bytes]) -> list[bytes]:
    """The answers to one burst; empty ones where there is none."""
    reqs = ffi.new("struct cl_udp_req[]", len(texts))
    data = [ffi.new("uint8_t[]", n.to_bytes(2, "big") + b"\0\0\0\1\0\0" + text) for n, text in enumerate(texts)]
    replies = [ffi.new("uint8_t[]", ROOM) for _ in texts]
    for req, bytes_in, reply, text in zip(reqs, data, replies, texts, strict=True):
        req.data, req.len, req.reply, req.room = bytes_in, len(text) + lib.CL_KV_UDP_HEADER, reply, ROOM
    lib.cl_kv_udp_batch(udp, reqs, len(texts))
    return [bytes(ffi.buffer(reply, req.reply_len)) for req, reply in zip(reqs, replies, strict=True)]


@settings(max_examples=60)
@given(bursts=st.lists(st.lists(requests, min_size=1, max_size=100), max_size=4))
def test_a_burst_is_its_requests_in_their_order(bursts: list[list[bytes]]) -> None:
    with server() as together, server() as alone:
        for texts in bursts:
            one_by_one = [ask(alone, [text])[0] for text in texts]
            numbered = [n.to_bytes(2, "big") + answer[2:] if answer else b"" for n, answer in enumerate(one_by_one)]
            assert ask(together, texts) == numbered
        for counter in ("answered", "silent", "answers", "fast_gets"):
            assert getattr(together, counter) == getattr(alone, counter)


def test_a_get_sees_what_its_own_burst_has_set() -> None:
    """The look-ahead has seen another item, or none, where the answer finds this one."""
    get, gone = b"get a\r\n", b"END\r\n"
    with server() as udp:
        burst = [get, stored(b"set", b"a", b"1"), get, stored(b"set", b"a", b"2" * 300), get, b"delete a\r\n", get]
        answers = [answer[lib.CL_KV_UDP_HEADER :] for answer in ask(udp, burst)]
        first, second = b"VALUE a 5 1\r\n1\r\n" + gone, b"VALUE a 5 300\r\n" + b"2" * 300 + b"\r\n" + gone
        assert answers == [gone, b"STORED\r\n", first, b"STORED\r\n", second, b"DELETED\r\n", gone]
