"""Latency histograms for Python. What they promise is in hist.h; recording belongs to C.

h = Hist()
h.record(1500)                      # ns
h.record_infinite(2)                # two requests never answered
h.percentile(99)                    # float: math.inf where the infinite bucket is reached
Hist.from_bytes(h.to_bytes()) == h
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from ._native import ffi, lib
from .errors import CorelaneError, check, check_pointer

PERCENTILES = (50.0, 90.0, 99.0, 99.9, 99.99)
_MAGIC = b"CLH1"
_HEAD = struct.Struct("<4sIQQQQQI")  # magic, digits, limit, min, max, sum, infinite, non-empty buckets
_USED_BYTES = ffi.sizeof("struct cl_hist_used")  # of three numbers
_U64 = (1 << 64) - 1
_FEW = 64


def rank_of(percent: float, n: int) -> int:
    """Of n values, how many the nearest-rank percentile has up to itself: 1 to n. As cl_hist_percentile."""
    return min(max(math.ceil(percent * n / 100 - 1e-6), 1), n)


class Hist:
    """A histogram of its own, or (`Hist.view`) a window on one that C code is writing.

    Reading a view while C records is safe; for figures that fit together take a `snapshot()` and read that.
    """

    def __init__(self, digits: int = lib.CL_HIST_DIGITS, limit: int = lib.CL_HIST_LIMIT_NS) -> None:
        """digits: significant decimal digits, 1 to 5; limit: largest value told apart (larger ones share a bucket)."""
        ptr = check_pointer(
            lib.cl_hist_new(digits, limit),
            f"make a histogram of {digits} digits up to {limit}",
            "arguments or memory",
            "digits is 1 to 5, limit 2 to 2^62",
        )
        self._owner: Any = None
        self.ptr = ffi.gc(ptr, lib.cl_hist_delete)
        """`struct cl_hist *`, for C to record into."""

    @classmethod
    def view(cls, ptr: Any, owner: Any = None) -> Hist:
        """A window on a `struct cl_hist *` owned by others; `owner` is kept alive as long as the window."""
        self = cls.__new__(cls)
        self.ptr = ptr
        self._owner = owner
        return self

    def record(self, value: int, n: int = 1) -> None:
        """Record a value n times."""
        lib.cl_hist_add(self.ptr, value, n)

    def record_infinite(self, n: int = 1) -> None:
        """Record n that never came back."""
        lib.cl_hist_add_infinite(self.ptr, n)

    def record_all(self, values: Iterable[int]) -> None:
        """Record each of `values`."""
        for value in values:
            lib.cl_hist_add(self.ptr, value, 1)

    def reset(self) -> None:
        """Forget everything. For the recording thread, or when nobody records."""
        lib.cl_hist_reset(self.ptr)

    def snapshot(self) -> Hist:
        """A private copy."""
        copy = Hist(self.digits, self.limit)
        check(lib.cl_hist_copy(copy.ptr, self.ptr), "copy a histogram")
        return copy

    def merge(self, other: Hist) -> Hist:
        """Add another one of the same digits and limit; returns self."""
        check(lib.cl_hist_merge(self.ptr, other.ptr), "merge histograms", hint="digits and limit must be equal")
        return self

    def since(self, earlier: Hist) -> Hist:
        """What was recorded between an earlier snapshot and now, as a new histogram (min and max to the precision)."""
        copy = self.snapshot()
        check(lib.cl_hist_subtract(copy.ptr, earlier.ptr), "subtract histograms", hint="digits and limit must be equal")
        return copy

    @property
    def digits(self) -> int:
        """Significant decimal digits."""
        return int(self.ptr.digits)

    @property
    def limit(self) -> int:
        """Largest value told apart."""
        return int(self.ptr.limit)

    @property
    def count(self) -> int:
        """Values recorded, infinite ones too."""
        return int(lib.cl_hist_count(self.ptr))

    @property
    def infinite(self) -> int:
        """How many never came back."""
        return int(self.ptr.infinite)

    @property
    def min(self) -> int:
        """Smallest finite value, exact; 0 if there is none."""
        low = int(self.ptr.min)
        return 0 if low == _U64 else low

    @property
    def max(self) -> float:
        """Largest value: exact, math.inf if any is infinite, 0 if empty."""
        return math.inf if self.infinite else float(self.ptr.max)

    @property
    def mean(self) -> float:
        """Mean of all values: exact, math.inf if any is infinite, nan if empty."""
        if self.infinite:
            return math.inf
        n = self.count
        return int(self.ptr.sum) / n if n else math.nan

    def percentile(self, percent: float) -> float:
        """Nearest-rank percentile, never below the true one and above it by the precision at most; nan if empty."""
        if not 0 <= percent <= 100:
            raise CorelaneError(f"percentile {percent}", "not between 0 and 100")
        value = int(lib.cl_hist_percentile(self.ptr, percent))
        if value == lib.CL_HIST_INFINITE:
            return math.inf
        return float(value) if self.count else math.nan

    def count_upto(self, value: int) -> int:
        """How many values are at most `value`, to the precision."""
        return int(lib.cl_hist_count_upto(self.ptr, value))

    def buckets(self) -> list[list[int]]:
        """[low, high, count] of every bucket with something in it; the highest bucket of all ends at max."""
        room, used = _FEW, _FEW
        while used == room:  # it may have more: all that there can be would be memory for nothing, mostly
            room *= 8
            out = ffi.new("struct cl_hist_used[]", room)
            used = int(lib.cl_hist_used(self.ptr, out, room))
        words = memoryview(ffi.buffer(out, used * _USED_BYTES))
        rows: Any = words.cast("Q", (used, 3)).tolist() if used else []
        found: list[list[int]] = rows
        return found

    def _cells(self) -> list[tuple[int, int]]:
        counts = ffi.unpack(lib.cl_hist_counts(self.ptr), self.ptr.n_buckets)
        return [(i, n) for i, n in enumerate(counts) if n]

    def ccdf(self, points: int = 200) -> list[tuple[float, float]]:
        """(value, fraction of values above it), at most `points` of them, for plots of the tail.

        Fractions fall; if something is infinite the last one stays above 0.
        """
        total = self.count
        cells = self.buckets()
        step = max(1, math.ceil(len(cells) / max(points, 1)))
        out: list[tuple[float, float]] = []
        seen = 0
        for i, (_, high, n) in enumerate(cells):
            seen += n
            if i % step == step - 1 or i == len(cells) - 1:
                out.append((float(high), (total - seen) / total))
        return out

    def summary(self, percentiles: Sequence[float] = PERCENTILES, scale: float = 1.0) -> dict[str, float | int | None]:
        """For JSON: count, infinite, min, mean, max and percentiles like "p99.9", divided by `scale` (1e3: ns to us).

        What is infinite or undefined is None, since JSON has neither.
        """

        def finite(x: float) -> float | None:
            return x / scale if math.isfinite(x) else None

        still = self.snapshot()
        out: dict[str, float | int | None] = {"count": still.count, "infinite": still.infinite}
        out.update(min=finite(still.min), mean=finite(still.mean), max=finite(still.max))
        out.update({f"p{p:g}": finite(still.percentile(p)) for p in percentiles})
        return out

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON; `from_dict` gives the same histogram back."""
        still = self.snapshot()
        return {
            "digits": still.digits,
            "limit": still.limit,
            "min": int(still.ptr.min) if still.count > still.infinite else None,
            "max": int(still.ptr.max),
            "sum": int(still.ptr.sum),
            "infinite": still.infinite,
            "buckets": [list(cell) for cell in still._cells()],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Hist:
        """The histogram that `to_dict` described; CorelaneError if it is none."""
        try:
            low = _U64 if data["min"] is None else data["min"]
            self = cls(data["digits"], data["limit"])
            self._fill(data["buckets"], low, data["max"], data["sum"], data["infinite"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CorelaneError("read a histogram", f"{type(error).__name__}: {error}") from error
        return self

    def _fill(self, cells: Iterable[Sequence[int]], low: int, high: int, total: int, infinite: int) -> None:
        counts = lib.cl_hist_counts(self.ptr)
        for index, n in cells:
            if not 0 <= index < self.ptr.n_buckets:
                raise ValueError(f"bucket {index} of {self.ptr.n_buckets}")
            counts[index] = n
        self.ptr.min, self.ptr.max, self.ptr.sum, self.ptr.infinite = low, high, total, infinite

    def to_bytes(self) -> bytes:
        """Everything, compactly: some bytes a non-empty bucket."""
        still = self.snapshot()
        cells = still._cells()
        h = still.ptr
        out = bytearray(_HEAD.pack(_MAGIC, h.digits, h.limit, h.min, h.max, h.sum, h.infinite, len(cells)))
        last = 0
        for index, n in cells:
            _put_varint(out, index - last)
            _put_varint(out, n)
            last = index
        return bytes(out)

    @classmethod
    def from_bytes(cls, data: bytes) -> Hist:
        """The histogram that `to_bytes` wrote; CorelaneError if it is damaged."""
        try:
            magic, digits, limit, low, high, total, infinite, n_cells = _HEAD.unpack_from(data)
            if magic != _MAGIC:
                raise ValueError(f"begins with {magic!r} instead of {_MAGIC!r}")
            cells, at, index = [], _HEAD.size, 0
            for _ in range(n_cells):
                delta, at = _get_varint(data, at)
                n, at = _get_varint(data, at)
                index += delta
                cells.append((index, n))
            if at != len(data):
                raise ValueError(f"{len(data) - at} bytes too many")
            self = cls(digits, limit)
            self._fill(cells, low, high, total, infinite)
        except (struct.error, ValueError, IndexError, OverflowError) as error:
            raise CorelaneError("read a histogram", str(error), "the data is damaged or of another version") from error
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hist) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"<Hist n={self.count} p50={self.percentile(50):g} p99={self.percentile(99):g} max={self.max:g}>"


def _put_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _get_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number longer than 64 bits")
