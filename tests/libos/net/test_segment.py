"""Segments as bytes (libos/net/segment.h): fields survive the wire, and no bytes make the reader err."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from corelane.libos._native import ffi, lib

u8, u16, u32 = st.integers(0, 255), st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1)
options = st.fixed_dictionaries(
    {},
    optional={
        "mss": u16,
        "wscale": st.integers(0, 14),
        "sack_ok": st.just(True),
        "times": st.tuples(u32, u32),
        "sack": st.lists(st.tuples(u32, u32), min_size=1, max_size=4),
    },
)


def segment(seq: int, ack: int, flags: int, window: int, chosen: dict[str, Any]) -> Any:
    s = ffi.new("struct cl_tcp_segment *")
    s.seq, s.ack, s.flags, s.window = seq, ack, flags, window
    o = s.options
    for name, bit in (
        ("mss", lib.CL_TCPO_MSS),
        ("wscale", lib.CL_TCPO_WSCALE),
        ("sack_ok", lib.CL_TCPO_SACK_OK),
        ("times", lib.CL_TCPO_TIMES),
    ):
        if name in chosen:
            o.has |= bit
    o.mss, o.wscale = chosen.get("mss", 0), chosen.get("wscale", 0)
    o.ts_val, o.ts_ecr = chosen.get("times", (0, 0))
    for i, (first, end) in enumerate(chosen.get("sack", ())):
        o.sack[i].__setattr__("from", first)
        o.sack[i].to = end
    o.n_sack = len(chosen.get("sack", ()))
    return s


def write(s: Any) -> bytes:
    out = ffi.new("uint8_t[60]")
    return bytes(ffi.buffer(out, lib.cl_tcp_segment_write(s, 1000, 80, out)))


def read(data: bytes) -> Any:
    """None: it has no header."""
    s = ffi.new("struct cl_tcp_segment *")
    return s if lib.cl_tcp_segment_read(data, len(data), s) else None


@given(seq=u32, ack=u32, flags=u8, window=u16, chosen=options, data=st.binary(max_size=40))
def test_fields_survive_the_wire(
    seq: int, ack: int, flags: int, window: int, chosen: dict[str, Any], data: bytes
) -> None:
    wire = write(segment(seq, ack, flags, window, chosen))
    assert len(wire) % 4 == 0
    assert wire[:4] == bytes([1000 >> 8, 1000 & 255, 0, 80])
    s = read(wire + data)
    assert (s.seq, s.ack, s.flags, s.window, s.len) == (seq, ack, flags, window, len(data))
    assert s.header_len == len(wire)
    assert not s.options.malformed
    o = s.options
    fits = min(len(chosen.get("sack", ())), (40 - 4 - (len(wire) - 20 - (4 + 8 * o.n_sack if o.n_sack else 0))) // 8)
    assert o.n_sack == max(fits, 0)
    for i, (first, end) in enumerate(chosen.get("sack", ())[: o.n_sack]):
        assert (getattr(o.sack[i], "from"), o.sack[i].to) == (first, end)
    assert (o.mss, o.wscale) == (chosen.get("mss", 0), chosen.get("wscale", 0))
    assert (o.ts_val, o.ts_ecr) == chosen.get("times", (0, 0))
    assert bool(o.has & lib.CL_TCPO_SACK_OK) == ("sack_ok" in chosen)


@given(data=st.binary(max_size=80), header=st.integers(0, 15))
def test_no_bytes_make_it_err(data: bytes, header: int) -> None:
    if len(data) > 12:
        data = data[:12] + bytes([header << 4]) + data[13:]
    s = read(data)
    whole = len(data) >= 20 and 20 <= 4 * header <= len(data)
    assert (s is not None) == whole
    if s is not None:
        assert s.len == len(data) - 4 * header
        assert s.options.n_sack <= 4
        assert s.options.wscale <= 14


def with_options(raw: bytes) -> Any:
    padded = raw + bytes(-len(raw) % 4)
    return read(bytes(12) + bytes([(20 + len(padded)) // 4 << 4]) + bytes(7) + padded)


def test_unknown_options_are_skipped_and_wrong_ones_end_the_list() -> None:
    s = with_options(bytes([1, 254, 4, 9, 9, 1, 2, 4, 5, 180]))
    assert s.options.mss == 1460
    assert not s.options.malformed
    for wrong in ([254, 1], [254, 0], [2, 3, 1], [3, 4, 1, 1], [8, 9] + [0] * 7, [5, 9] + [0] * 7, [254, 99]):
        s = with_options(bytes([2, 4, 5, 180, *wrong, 3, 3, 7]))
        assert s.options.mss == 1460
        assert s.options.malformed
        assert s.options.wscale == 0, wrong
    s = with_options(bytes([0, 2, 4, 5, 180]))  # behind the end nothing counts
    assert s.options.mss == 0
    assert not s.options.malformed


@given(seq=u32, ack=u32, flags=u8, data=st.binary(max_size=40))
def test_the_reset_that_answers_a_stranger(seq: int, ack: int, flags: int, data: bytes) -> None:
    """RFC 9293, section 3.10.7.1, for all flags."""
    s, reset = read(write(segment(seq, ack, flags, 0, {})) + data), ffi.new("struct cl_tcp_segment *")
    answers = lib.cl_tcp_segment_refuse(s, reset)
    assert answers == (not flags & lib.CL_TCPF_RST)
    if flags & lib.CL_TCPF_ACK:
        assert (reset.flags, reset.seq, reset.ack) == (lib.CL_TCPF_RST, ack, 0)
    else:
        reach = len(data) + bool(flags & lib.CL_TCPF_SYN) + bool(flags & lib.CL_TCPF_FIN)
        assert reset.flags == lib.CL_TCPF_RST | lib.CL_TCPF_ACK
        assert (reset.seq, reset.ack) == (0, (seq + reach) % 2**32)
    assert (reset.len, reset.window, reset.options.has) == (0, 0, 0)
