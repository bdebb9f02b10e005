"""Code that a process compiles into its memory, for whoever samples where it is: where each piece lies, and the object
file that it was made of, with its symbols and lines.

It is written into a memory file of the process, as a trace segment is (trace.py), and lasts as long as the process: no
file of a dead process is left, and the kernel lets those open it who may look into the process. A piece is a header
and the bytes of its name and object; pieces are added, and never changed.
"""

from __future__ import annotations

import os
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass

from .memory_files import link_of, open_at, places

NAME = "corelane-code"
LINK = link_of(NAME)
MOST_BYTES = 64 << 20  # of all pieces; those for which there is no room are not told of
_HEADER = struct.Struct("=QQII")  # begin, end, bytes of the name, bytes of the object


@dataclass(frozen=True)
class Code:
    """[begin, end) holds the code of an ELF object. name: of the function that it is for, and its symbol in the object
    `symbol`."""

    begin: int
    end: int
    name: str
    symbol: str
    elf: bytes


_lock = threading.Lock()
_file: tuple[int, int] | None = None  # the process, and its file


def tell(code: Code) -> None:
    """Say that this is there. What cannot be told is not: it is for looking on alone."""
    names = "\0".join((code.name, code.symbol)).encode(errors="replace")
    piece = _HEADER.pack(code.begin, code.end, len(names), len(code.elf)) + names + code.elf
    with _lock, suppress(OSError):
        fd = _own()
        if os.fstat(fd).st_size + len(piece) <= MOST_BYTES:
            os.pwrite(fd, piece, os.fstat(fd).st_size)


def _own() -> int:
    """The file of this process. One that was forked has a copy of its own: what it compiles is not in the other."""
    global _file
    if _file is None or _file[0] != os.getpid():
        fd = os.memfd_create(NAME, os.MFD_CLOEXEC)
        if _file is not None:
            os.pwrite(fd, os.pread(_file[1], MOST_BYTES, 0), 0)
            os.close(_file[1])
        _file = os.getpid(), fd
    return _file[1]


def of_process(pid: int) -> list[Code]:
    """What it has told so far, in the first file that it has for it; nothing, if that cannot be read."""
    with suppress(OSError):
        for _, place in places(pid, LINK):
            with open(open_at(place), "rb") as file:
                return read(file.read(MOST_BYTES))
    return []


def read(data: bytes) -> list[Code]:
    """Pieces that are whole. They are another process's word: nothing of them is believed but by who looks at them."""
    at, found = 0, list[Code]()
    while at + _HEADER.size <= len(data):
        begin, end, named, size = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        if at + named + size > len(data):
            break
        name, _, symbol = data[at : at + named].decode(errors="replace").partition("\0")
        if begin < end:
            found.append(Code(begin, end, name, symbol, data[at + named : at + named + size]))
        at += named + size
    return found
