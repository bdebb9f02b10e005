"""What slow requests ran (profile.py), and names of program counters (symbols.py)."""

from __future__ import annotations

import ctypes
import os
import random
import struct
from pathlib import Path

import numpy
import pytest
from cltest.cbuild import ROOT
from elftools.elf.elffile import ELFFile
from maderequests import HZ, NAMES, Made

from corelane.libos.trace.profile import Sampled, lines_of, of_table, weights
from corelane.libos.trace.stages import table
from corelane.libos.trace.symbols import NO_FILE, Symbols, readable
from corelane.runtime.codes import Code
from corelane.runtime.perf import Mapped, Sample, mapped_code

LIBRARY = ROOT / "runtime" / "_lib" / "libcorelane.so"


def tsc_of(ns: int) -> int:
    """The stamps' clock, HZ a second, begins with the other one."""
    return ns * (HZ // 10**9)


def name_of(pc: int) -> str:
    """Functions of 100 bytes."""
    return f"f{pc // 100}"


def made() -> tuple[Made, numpy.ndarray]:  # type: ignore[type-arg]
    of = Made(2000, 1)
    of.kthread[:] = 3
    slow = numpy.zeros(2000, bool)
    slow[::100] = True
    of.us["runs"][slow] += 15
    return of, slow


def test_samples_are_put_to_the_requests_that_were_under_way_then() -> None:
    of, _ = made()
    of.us["inbox"][6] += 22  # it waits until after the next one has come
    messages = of.records().messages

    def inside(row: int, first: str, last: str, part: float = 0.5) -> Sample:
        m = messages[row]
        at = int(m["begin"]) + int(m[first]) + part * (int(m[last]) - int(m[first]))
        return Sample(3, int(at) // (HZ // 10**9), (100,))

    given = [
        inside(5, "start", "end"),
        inside(5, "start", "end", 5.0),
        inside(6, "pickup", "start"),
        inside(7, "start", "end"),
        inside(1999, "pickup", "end"),
        Sample(3, 0, (100,)),
    ]
    assert list(weights(messages, given, tsc_of)) == [1, 0, 1, 2, 1, 0]
    assert list(weights(messages, [Sample(2, given[0].ns, (100,))], tsc_of)) == [0], "of another kthread"
    assert list(weights(messages[:0], given, tsc_of)) == [0] * 6
    assert list(weights(messages, [], tsc_of)) == []


def test_what_slow_ones_do_that_others_do_not() -> None:
    """All call f1 from f9; slow ones f2 besides, in which they are for most of their time."""
    of, slow = made()
    messages, given = of.records().messages, []
    for row, m in enumerate(messages):
        for k in range(10 if slow[row] else 1):
            at = int(m["begin"]) + int(m["start"]) + (k + 0.5) / 10 * (int(m["end"]) - int(m["start"]))
            given.append(Sample(3, int(at) // 2, (201 if slow[row] and k else 101, 901)))
    seen = table(of.records(), NAMES, HZ)
    (found,) = of_table(seen, Sampled(given, 10**6, tsc_of, name_of), 0.99)
    assert found.service == "UDP 9000"
    assert set(found.slow.us) == {("f9", "f1"), ("f9", "f2")}
    assert set(found.ordinary.us) <= {("f9", "f1"), ("f9", "f2")}
    assert found.slow.us["f9", "f2"] == pytest.approx(9, rel=0.15)
    assert found.ordinary.us["f9", "f1"] == pytest.approx(1, rel=0.05)
    assert found.slow.samples + found.ordinary.samples == found.samples == len(given)
    lines = lines_of(found)
    assert lines[1].endswith(": f2, called by f9")
    few = Made(50, 1)
    assert of_table(table(few.records(), NAMES, HZ), Sampled([], 1, tsc_of, name_of)) == []


def test_requests_that_were_not_sampled_are_told() -> None:
    of, _ = made()
    (found,) = of_table(table(of.records(), NAMES, HZ), Sampled([], 4000, tsc_of, name_of))
    assert "nothing: their kthread stood still" in lines_of(found)[-1]


def test_functions_of_libraries_have_their_names() -> None:
    symbols = Symbols(mapped_code(os.getpid()))
    for library, name in ((str(LIBRARY), "cl_trace_valid"), (None, "getpid")):
        at = ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p).value
        assert at is not None
        assert name in symbols.name_of(at + 1)
    assert symbols.name_of(1) == "unknown"


def test_what_has_no_file_is_told_as_such(tmp_path: Path) -> None:
    text = tmp_path / "echo-0123456789ab-x.so"
    text.write_bytes(b"no ELF")
    mapped = [
        Mapped(0x1000, 0x2000, 0, ""),
        Mapped(0x3000, 0x4000, 0, "[vdso]"),
        Mapped(0x5000, 0x6000, 0, str(text)),
        Mapped(0x7000, 0x8000, 0, str(tmp_path / "gone.so (deleted)")),
    ]
    symbols = Symbols(mapped)
    given = (0x1800, 0x3800, 0x5800, 0x7800, 0x2000)
    assert [symbols.name_of(pc) for pc in given] == [NO_FILE, "vdso", "echo", "gone.so", "unknown"]


def test_names_are_a_line_of_text() -> None:
    told = [Code(0x1000, 0x2000, "\x1b[2Jecho\n", "s", b"no ELF")]
    symbols = Symbols([Mapped(0x1000, 0x2000, 0, ""), Mapped(0x3000, 0x4000, 0, "/x/a\r\x9bb.so")], told)
    assert [symbols.name_of(pc) for pc in (0x1800, 0x3800)] == ["?[2Jecho?", "a??b.so"]


def test_what_is_a_pipe_by_now_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lib.so")
    assert Symbols([Mapped(0x1000, 0x2000, 0, str(tmp_path / "lib.so"))]).name_of(0x1800) == "lib.so"


def test_a_file_that_was_made_to_mislead_has_no_names(tmp_path: Path) -> None:
    """Of another process, with bytes of its headers changed."""
    whole, draw = Path("/bin/true").read_bytes(), random.Random(1)
    (sections,) = struct.unpack_from("<Q", whole, 40)  # e_shoff (elf(5))
    for n in range(300):
        data = bytearray(whole)
        for _ in range(draw.randrange(1, 6)):
            at = draw.choice((draw.randrange(16, 64 + 56 * 8), draw.randrange(sections, len(data))))
            data[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        path = tmp_path / f"f{n}-0123456789ab.so"
        path.write_bytes(data)
        assert Symbols([Mapped(0, 1 << 40, 0, str(path))]).name_of(draw.randrange(len(data))), n


def test_names_of_numba_are_readable() -> None:
    assert readable("_ZN4slow10takes_lockB2v1B38c8tJTIeFIjxB2IKSgI4CrvQClQZ6FczSBAA_3dE5ArrayI") == "slow.takes_lock"
    assert readable("cl_echo") == "cl_echo"
    assert readable("_ZN") == "_ZN"


def test_functions_that_are_not_exported_have_names_too() -> None:
    whole = Symbols([Mapped(0, LIBRARY.stat().st_size, 0, str(LIBRARY))])
    with LIBRARY.open("rb") as file:
        elf = ELFFile(file)
        (one,) = elf.get_section_by_name(".symtab").get_symbol_by_name("cl_tracer_slow")
        inside = [s for s in elf.iter_segments("PT_LOAD") if 0 <= one["st_value"] - s["p_vaddr"] < s["p_memsz"]]
        at = one["st_value"] - inside[0]["p_vaddr"] + inside[0]["p_offset"]
    assert whole.name_of(at) == "cl_tracer_slow"
