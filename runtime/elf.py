"""Reading ELF files of others before anything of them is loaded: for this machine, whole, and what they refer to."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

from .errors import CorelaneError

_MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}


def refused(path: Path, reason: str, mend: str) -> CorelaneError:
    """The error for a file that cannot be used."""
    return CorelaneError(f"{path} is refused: {reason}; {mend}")


def check_kind(path: Path, elf: Any) -> None:
    """Class, machine and type of the object."""
    wanted = _MACHINES.get(platform.machine(), platform.machine())
    machine = str(elf["e_machine"])
    if elf.elfclass != 64:
        raise refused(path, "it is for a 32-bit machine", f"compile it for {platform.machine()}")
    if machine != wanted:
        name = machine.removeprefix("EM_").lower()
        raise refused(path, f"it is for {name}, and this machine is {platform.machine()}", "compile it here")
    kind = str(elf["e_type"])
    if kind == "ET_REL":
        raise refused(path, "it is an object file that was not linked", "link it with cc -shared")
    if kind != "ET_DYN" or any(s["p_type"] == "PT_INTERP" for s in elf.iter_segments()):
        raise refused(path, "it is a program and no shared object", "link it with cc -shared -fPIC")


def check_whole(path: Path, elf: Any) -> None:
    """Nothing that the headers name lies beyond the end of the file."""
    size = path.stat().st_size
    segments = [(s["p_offset"], s["p_filesz"]) for s in elf.iter_segments()]
    sections = [(s["sh_offset"], s["sh_size"]) for s in elf.iter_sections() if s["sh_type"] != "SHT_NOBITS"]
    table = (elf["e_shoff"], elf["e_shnum"] * elf["e_shentsize"])
    ends = [int(start + length) for start, length in (*segments, *sections, table)]
    if max(ends) > size:
        raise refused(path, f"it is cut short: {size} bytes of {max(ends)}", "compile or copy it again")


def dynamic_symbols(elf: Any) -> tuple[set[str], set[str]]:
    """Names of the exported functions, and of what must come from elsewhere (weak ones left out)."""
    defined, undefined = set(), set()
    table = elf.get_section_by_name(".dynsym")
    for symbol in table.iter_symbols() if table is not None else ():
        info = symbol["st_info"]
        if symbol["st_shndx"] == "SHN_UNDEF":
            if symbol.name and info["bind"] == "STB_GLOBAL":
                undefined.add(str(symbol.name))
        elif info["type"] == "STT_FUNC" and info["bind"] in ("STB_GLOBAL", "STB_WEAK"):
            defined.add(str(symbol.name))
    return defined, undefined
