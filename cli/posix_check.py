"""corelane run --posix --check: what will work of a program, by its file and those of the libraries that it needs.

Read are the symbols that each imports, and system calls that it makes by instructions of its own. What a program loads
later (dlopen) is not seen.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..runtime.elf import dynamic_symbols, find_library, needed_libraries, parsed

_REFUSED = {
    "io_uring_queue_init": "have it use epoll",
    "io_uring_setup": "have it use epoll",
    "aio_read": "have it use epoll",
    "aio_write": "have it use epoll",
    "lio_listio": "have it use epoll",
}
"""Calls that are refused on sockets of the dataplane, and what to do."""
_OF_LIBC = ("libc.so", "ld-linux", "libpthread.so", "libm.so", "libdl.so", "librt.so", "libresolv.so")
_BEFORE = 24  # bytes before the instruction in which its number is looked for
_X86_64 = {
    0: "read",
    1: "write",
    19: "readv",
    20: "writev",
    42: "connect",
    43: "accept",
    44: "sendto",
    45: "recvfrom",
    46: "sendmsg",
    47: "recvmsg",
    49: "bind",
    50: "listen",
    232: "epoll_wait",
    281: "epoll_pwait",
    288: "accept4",
    425: "io_uring_setup",
}
_AARCH64 = {
    22: "epoll_pwait",
    63: "read",
    64: "write",
    65: "readv",
    66: "writev",
    200: "bind",
    201: "listen",
    202: "accept",
    203: "connect",
    206: "sendto",
    207: "recvfrom",
    211: "sendmsg",
    212: "recvmsg",
    242: "accept4",
    425: "io_uring_setup",
}
"""System calls on sockets by their numbers (asm/unistd_64.h, asm-generic/unistd.h)."""


def notes(path: Path) -> list[str]:
    """One line for each thing that is not as on Linux, as far as the files tell. path: of an ELF file."""
    found: list[str] = []
    seen = {path.name}
    files: list[tuple[str, Path]] = [("", path)]
    while files:
        name, at = files.pop(0)
        wanted, made, needed = _read(at)
        of = f" (in {name})" if name else ""
        found += [
            f"{call}{of}: refused on sockets of the dataplane; {mend}"
            for call, mend in _REFUSED.items()
            if call in wanted
        ]
        if made:
            found.append(f"system calls by instructions of its own{of}: on sockets they go past the dataplane: {made}")
        if not name:
            found += _of_program(wanted)
        for library, where in needed:
            if library in seen or library.startswith(_OF_LIBC):
                continue
            seen.add(library)
            if where is None:
                found.append(f"{library}{of}: is needed, and was not found; install it")
            else:
                files.append((library, where))
    return found


def _of_program(wanted: set[str]) -> Iterator[str]:
    if {"fork", "__libc_fork"} & wanted:
        yield "fork: a child may close sockets of its parent's, and no more"


def _read(path: Path) -> tuple[set[str], str, list[tuple[str, Path | None]]]:
    """Names that a file imports; system calls on sockets that it makes itself; libraries, and where they are."""
    with parsed(path) as elf:
        _, wanted = dynamic_symbols(elf)
        names, run_paths = needed_libraries(elf)
        numbers = {n for code in _code(elf) for n in _numbers(code, str(elf["e_machine"]))}
        known = _X86_64 if elf["e_machine"] == "EM_X86_64" else _AARCH64
        made = ", ".join(name for number, name in known.items() if number in numbers)
    return wanted, made, [(name, find_library(name, path, run_paths)) for name in names]


def _code(elf: Any) -> Iterator[bytes]:
    for segment in elf.iter_segments():
        if segment["p_type"] == "PT_LOAD" and segment["p_flags"] & 1:  # PF_X
            yield segment.data()


def _numbers(code: bytes, machine: str) -> Iterator[int]:
    """Of system calls whose number is put into its register shortly before them."""
    if machine == "EM_X86_64":
        at = code.find(b"\x0f\x05")  # syscall
        while at >= 0:
            start = max(at - _BEFORE, 0)
            move = code.rfind(b"\xb8", start, max(at - 4, start))  # mov eax, number
            if move >= 0:
                yield struct.unpack_from("<I", code, move + 1)[0]
            elif code[max(at - 2, 0) : at] == b"\x31\xc0":  # xor eax, eax
                yield 0
            at = code.find(b"\x0f\x05", at + 2)
    elif machine == "EM_AARCH64":
        at = code.find(b"\x01\x00\x00\xd4")  # svc 0
        while at >= 0:
            for before in range(at - 4, max(at - _BEFORE, 0), -4):
                word = struct.unpack_from("<I", code, before)[0]
                if word & 0xFFE0001F == 0xD2800008:  # mov x8, number
                    yield word >> 5 & 0xFFFF
                    break
            at = code.find(b"\x01\x00\x00\xd4", at + 4)
