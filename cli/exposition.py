"""Metrics in the three formats that Prometheus reads: its text (0.0.4), OpenMetrics (1.0.0), and protocol buffers.

A scraper says which ones it takes (RFC 9110, section 12.5.1). Text is for people and for node_exporter's textfile
collector. OpenMetrics has exemplars: a value of a histogram with the trace that it is of. Protocol buffers
(io.prometheus.client.MetricFamily, delimited by their lengths) have native histograms besides: buckets that grow by
2^(1/8), of which only those with something in them are sent. Both kinds of buckets are made of the same counts.

A bucket of either kind counts a value by the upper end of the bucket that the program had it in: 0.1 % above it at
most, for the latency of services 6 %.
"""

from __future__ import annotations

import itertools
import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Labels = Mapping[str, str]
Kind = Literal["counter", "gauge", "histogram", "untyped"]

CLASSIC_S = (*(float(f"{m}e{e}") for e in range(-7, 1) for m in (1, 2.5, 5)), 10.0)  # 100 ns to 10 s
SCHEMA = 3  # of native histograms: 2^3 buckets a power of two
TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PROTOBUF = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"


@dataclass(frozen=True)
class Exemplar:
    """One value of a histogram, with labels that say where it came from (OpenMetrics: at most 128 characters)."""

    value_s: float
    labels: Labels
    at_s: float  # since 1970


@dataclass(frozen=True)
class Histogram:
    """buckets: (upper end in s, count) upwards, those with something in them. sum_s: of all values."""

    buckets: Sequence[tuple[float, int]]
    sum_s: float
    exemplars: Sequence[Exemplar] = ()

    @property
    def count(self) -> int:
        return sum(n for _, n in self.buckets)

    def classic(self) -> list[tuple[float, int, Exemplar | None]]:
        """(upper end, values up to it, the last exemplar in the bucket) of each of CLASSIC_S, and of all."""
        out: list[tuple[float, int, Exemplar | None]] = []
        seen, at, below = 0, 0, -math.inf
        for bound in (*CLASSIC_S, math.inf):
            while at < len(self.buckets) and self.buckets[at][0] <= bound * (1 + 1e-9):
                seen += self.buckets[at][1]
                at += 1
            inside = [e for e in self.exemplars if below < e.value_s <= bound]
            out.append((bound, seen, inside[-1] if inside else None))
            below = bound
        return out

    def native(self) -> dict[int, int]:
        """Counts by the index of the bucket: i holds what is above 2^((i-1)/8) s and at most 2^(i/8) s."""
        out: dict[int, int] = {}
        for upper, n in self.buckets:
            index = math.ceil(math.log2(upper) * 2**SCHEMA - 1e-9)
            out[index] = out.get(index, 0) + n
        return out


@dataclass
class Family:
    """The samples of one metric."""

    kind: Kind
    samples: list[tuple[Labels, float | Histogram]] = field(default_factory=list)


class Metrics:
    """Families by name, in the order of their first coming."""

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}

    def add(self, kind: Kind, name: str, labels: Labels, value: float | Histogram) -> None:
        """A sample. Counters have names that end with "_total"."""
        self.families.setdefault(name, Family(kind)).samples.append((labels, value))


def text(metrics: Metrics) -> str:
    """Prometheus' text format."""
    return _lines(metrics, openmetrics=False)


def openmetrics(metrics: Metrics) -> str:
    """The same with exemplars."""
    return _lines(metrics, openmetrics=True)


def _lines(metrics: Metrics, openmetrics: bool) -> str:
    out: list[str] = []
    for name, family in metrics.families.items():
        kind: str = "unknown" if openmetrics and family.kind == "untyped" else family.kind
        out.append(f"# TYPE {name.removesuffix('_total') if openmetrics else name} {kind}")
        for labels, value in family.samples:
            if isinstance(value, Histogram):
                out += _histogram(name, labels, value, openmetrics)
            else:
                out.append(f"{name}{_shown(labels)} {value!r}")
    if openmetrics:
        out.append("# EOF")
    return "\n".join(out) + "\n"


def _histogram(name: str, labels: Labels, value: Histogram, exemplars: bool) -> Iterator[str]:
    for bound, seen, exemplar in value.classic():
        told = ""
        if exemplars and exemplar is not None:
            told = f" # {_shown(exemplar.labels) or '{}'} {exemplar.value_s!r} {exemplar.at_s:.3f}"
        yield f"{name}_bucket{_shown({**labels, 'le': _bound(bound)})} {seen}{told}"
    yield f"{name}_sum{_shown(labels)} {value.sum_s!r}"
    yield f"{name}_count{_shown(labels)} {value.count}"


def _bound(value: float) -> str:
    return "+Inf" if math.isinf(value) else repr(value)


def _shown(labels: Labels) -> str:
    shown = ",".join(f'{key}="{_escaped(word)}"' for key, word in labels.items())
    return f"{{{shown}}}" if shown else ""


def _escaped(word: str) -> str:
    return word.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


# Protocol buffers: https://protobuf.dev/programming-guides/encoding. Numbers of fields are those of metrics.proto of
# Prometheus' client_model.

_TYPES = {"counter": 0, "gauge": 1, "untyped": 3, "histogram": 4}
_MEMBERS = {"gauge": 2, "counter": 3, "untyped": 5}  # of Metric; a double is member 1 of each


def protobuf(metrics: Metrics) -> bytes:
    """Families one after the other, each behind its length."""
    out = []
    for name, family in metrics.families.items():
        body = _text(1, name) + _varint(3, _TYPES[family.kind])
        body += b"".join(_message(4, _metric(family.kind, labels, value)) for labels, value in family.samples)
        out.append(_number(len(body)) + body)
    return b"".join(out)


def _metric(kind: Kind, labels: Labels, value: float | Histogram) -> bytes:
    told = _pairs(labels)
    if isinstance(value, Histogram):
        return told + _message(7, _histogram_message(value))
    return told + _message(_MEMBERS[kind], _double(1, value))


def _pairs(labels: Labels) -> bytes:
    return b"".join(_message(1, _text(1, key) + _text(2, word)) for key, word in labels.items())


def _histogram_message(value: Histogram) -> bytes:
    out = _varint(1, value.count) + _double(2, value.sum_s)
    for bound, seen, exemplar in value.classic():
        bucket = _varint(1, seen) + _double(2, bound)
        out += _message(3, bucket + (_message(3, _exemplar(exemplar)) if exemplar is not None else b""))
    out += _varint(5, _zigzag(SCHEMA)) + _double(6, 0.0) + _varint(7, 0)
    counts = sorted(value.native().items())
    spans = list(_spans([index for index, _ in counts])) or [(0, 0)]  # without one it would be no native histogram
    out += b"".join(_message(12, _varint(1, _zigzag(offset)) + _varint(2, length)) for offset, length in spans)
    each = [0, *(n for _, n in counts)]
    out += b"".join(_varint(13, _zigzag(after - before)) for before, after in itertools.pairwise(each))
    return out + b"".join(_message(16, _exemplar(exemplar)) for exemplar in value.exemplars)


def _spans(indices: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(gap before it, length) of each run of indices that follow one another; the first gap is from 0."""
    end, length, offset = 0, 0, 0
    for index in indices:
        if length and index == end:
            length += 1
        else:
            if length:
                yield offset, length
            offset, length = index - end, 1
        end = index + 1
    if length:
        yield offset, length


def _exemplar(exemplar: Exemplar) -> bytes:
    seconds = math.floor(exemplar.at_s)
    stamp = _varint(1, seconds) + _varint(2, round((exemplar.at_s - seconds) * 1e9))
    return _pairs(exemplar.labels) + _double(2, exemplar.value_s) + _message(3, stamp)


def _zigzag(value: int) -> int:
    return 2 * value if value >= 0 else -2 * value - 1


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint(field_number: int, value: int) -> bytes:
    return _number(field_number << 3) + _number(value)


def _double(field_number: int, value: float) -> bytes:
    return _number(field_number << 3 | 1) + struct.pack("<d", value)


def _message(field_number: int, body: bytes) -> bytes:
    return _number(field_number << 3 | 2) + _number(len(body)) + body


def _text(field_number: int, value: str) -> bytes:
    return _message(field_number, value.encode(errors="backslashreplace"))


def _encoded(said: str) -> bytes:
    return said.encode(errors="backslashreplace")  # of a socket's path that is no text


FORMATS: dict[str, Callable[[Metrics], bytes]] = {
    PROTOBUF: protobuf,
    OPENMETRICS: lambda metrics: _encoded(openmetrics(metrics)),
    TEXT: lambda metrics: _encoded(text(metrics)),
}


def wanted(accept: str | None) -> str:
    """The format that a scraper likes best, by its Accept header; text if it likes none of ours, or says nothing.

    Among those that it likes alike the first of FORMATS counts, which says most.
    """
    likes: dict[str, float] = {}
    for word in (accept or "").split(","):
        media, *parameters = (part.strip() for part in word.split(";"))
        given = dict(p.split("=", 1) for p in parameters if "=" in p)
        if (name := _format_of(media, given)) is not None:
            likes[name] = max(likes.get(name, 0.0), _quality(given.get("q", "1")))
    best = max(likes.values(), default=0.0)
    return next((name for name in FORMATS if best > 0 and likes.get(name) == best), TEXT)


def _format_of(media: str, given: Mapping[str, str]) -> str | None:
    """The format that a range of Accept names; None: it is none of ours."""
    if media == "application/vnd.google.protobuf":
        is_ours = given.get("proto") == "io.prometheus.client.MetricFamily" and given.get("encoding") == "delimited"
        return PROTOBUF if is_ours else None
    if media == "application/openmetrics-text":
        return OPENMETRICS if given.get("version", "1.0.0") == "1.0.0" else None
    return TEXT if media in ("text/plain", "text/*", "*/*") else None


def _quality(word: str) -> float:
    return float(word) if re.fullmatch(r"[01](\.\d{0,3})?", word) else 0.0


def histogram(times: Mapping[str, Any]) -> Histogram:
    """That of report.summary's member, with the exemplars that it may have under "exemplars": {"value_s", "labels",
    "at_s"} each."""
    buckets = [(max(high, 1) / 1e9, int(n)) for _, high, n in times["buckets_ns"]]
    return Histogram(buckets, times["sum_ns"] / 1e9, [Exemplar(**e) for e in times.get("exemplars", ())])
