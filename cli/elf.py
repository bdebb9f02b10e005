"""Reads a compiled application before anything of it is loaded: is it for this machine, this libc, this corelane?

What is checked, in this order, and refused with the reason: an ELF file and a whole one; 64 bits and this machine's
architecture; a shared object and no program; the corelane notes (corelane/libos/handler.h) and their ABI; the functions
that they name, exported; needed libraries that can be found; corelane functions that this corelane has.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..runtime.elf import dynamic_symbols, find_library, needed_libraries, refused, shared_object

# corelane/libos/handler.h is the source of these; tests/cli/test_elf.py compiles it and compares.
ABI = 1
OWNER = "corelane"
NOTE_TYPE = 1
KINDS = {1: "request", 2: "burst", 3: "setup"}
_DESC = struct.Struct("=IHH64s")


@dataclass(frozen=True)
class Export:
    """What a note names: an exported function, its kind ("request", "burst", "setup") and its UDP port."""

    symbol: str
    kind: str
    port: int


def inspect(path: Path, library: Path | None = None) -> list[Export]:
    """What a compiled application exports. CorelaneError with the reason if it cannot run here.

    library: libcorelane.so, whose exported functions the application may use; None skips that check.
    """
    with shared_object(path) as elf:
        exports = list(_notes(path, elf))
        defined, undefined = dynamic_symbols(elf)
        needed = needed_libraries(elf)
    _check_exports(path, exports, defined)
    _check_needed(path, needed)
    if library is not None:
        _check_used(path, undefined, library)
    return exports


def _notes(path: Path, elf: Any) -> Iterator[Export]:
    """The corelane notes of all note segments."""
    seen = 0
    for segment in elf.iter_segments():
        if segment["p_type"] != "PT_NOTE":
            continue
        for owner, kind, desc in _raw_notes(segment.data()):
            if owner != OWNER:
                continue
            seen += 1
            abi = struct.unpack_from("=I", desc)[0] if len(desc) >= 4 else 0
            if abi != ABI:
                mend = "compile it against this corelane's headers" if abi < ABI else "install a newer corelane"
                raise refused(path, f"it is of handler ABI {abi}, and this corelane has {ABI}", mend)
            if kind != NOTE_TYPE or len(desc) < _DESC.size:
                raise refused(path, "its corelane note is damaged", "compile it again")
            _, what, port, symbol = _DESC.unpack_from(desc)
            if what not in KINDS:
                raise refused(path, f"it exports a handler of unknown kind {what}", "install a newer corelane")
            yield Export(symbol.split(b"\0")[0].decode(errors="replace"), KINDS[what], port)  # as elftools has names
    if not seen:
        mend = "add CL_HANDLER(function, port) of corelane/libos/handler.h"
        raise refused(path, "it names no handler (no .note.corelane)", mend)


def _raw_notes(data: bytes) -> Iterator[tuple[str, int, bytes]]:
    """Owner, type and descriptor of each note; four-byte alignment (gABI, "Note Section")."""
    at = 0
    while at + 12 <= len(data):
        owner_bytes, desc_bytes, kind = struct.unpack_from("=III", data, at)
        at += 12
        owner = data[at : at + owner_bytes].rstrip(b"\0").decode("ascii", "replace")
        at += (owner_bytes + 3) & ~3
        yield owner, kind, data[at : at + desc_bytes]
        at += (desc_bytes + 3) & ~3


def _check_exports(path: Path, exports: list[Export], defined: set[str]) -> None:
    for export in exports:
        if export.symbol not in defined:
            mend = "define it, with external linkage and default visibility"
            raise refused(path, f"it does not export the function {export.symbol!r} that its note names", mend)
    if sum(e.kind == "setup" for e in exports) > 1:
        raise refused(path, "it has more than one CL_SETUP", "leave one")
    if not any(e.kind != "setup" for e in exports):
        raise refused(path, "it has a CL_SETUP and no handler", "add CL_HANDLER(function, port)")
    ports = [e.port for e in exports if e.kind != "setup"]
    twice = next((p for p in ports if ports.count(p) > 1), None)
    if twice is not None or 0 in ports:
        raise refused(path, f"port {twice or 0} is " + ("served twice" if twice else "no port"), "choose another")


def _check_needed(path: Path, needed: tuple[list[str], list[str]]) -> None:
    names, run_paths = needed
    for name in names:
        # libcorelane.so is in this process already: the linker takes a loaded library of that name.
        if name == "libcorelane.so" or find_library(name, path, run_paths):
            continue
        mend = "install it, or link with -Wl,-rpath,FOLDER"
        raise refused(path, f"the library {name} that it needs was not found", mend)


def _check_used(path: Path, undefined: set[str], library: Path) -> None:
    from elftools.elf.elffile import ELFFile

    with library.open("rb") as file:
        ours, _ = dynamic_symbols(ELFFile(file))
    lacking = sorted(name for name in undefined if name.startswith("cl_") and name not in ours)
    if lacking:
        mend = "compile it against this corelane's headers"
        raise refused(path, f"it uses {', '.join(lacking)}, which this corelane does not have", mend)
