"""Reading ELF files of others before anything of them is loaded: for this machine, whole, and what they refer to."""

from __future__ import annotations

import contextlib
import io
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import CorelaneError
from .files import open_regular

_MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}


def refused(path: Path, reason: str, mend: str) -> CorelaneError:
    """The error for a file that cannot be used."""
    return CorelaneError(f"{path} is refused: {reason}; {mend}")


def is_one(path: Path) -> bool:
    """Whether it begins as an ELF file does. Raises OSError."""
    with open_regular(path) as file:
        return file.read(4) == b"\x7fELF"


@contextlib.contextmanager
def shared_object(path: Path, content: bytes | None = None) -> Iterator[Any]:
    """The ELFFile of a whole shared object for this machine, open in the block; of the bytes that were read from it, if
    they are given. CorelaneError as `parsed`, and says why it is none of these."""
    with parsed(path, content) as elf:
        _check_kind(path, elf)
        _check_whole(path, elf)
        yield elf


@contextlib.contextmanager
def parsed(path: Path, content: bytes | None = None) -> Iterator[Any]:
    """The ELFFile of any ELF file. CorelaneError says why it is none; so does whatever the block stumbles over in a
    damaged one."""
    try:
        from elftools.elf.elffile import ELFFile
    except ImportError as e:
        raise CorelaneError(f"reading {path} needs pyelftools: pip install pyelftools") from e
    try:
        with open_regular(path) if content is None else io.BytesIO(content) as file:
            if file.read(4) != b"\x7fELF":
                raise refused(path, "it is not an ELF file", "compile it with cc -shared -fPIC")
            file.seek(0)
            try:
                yield ELFFile(file)
            except CorelaneError:
                raise
            except Exception as e:  # whatever the parser stumbles over in a damaged file is the file's fault
                raise refused(path, f"it is cut short or damaged ({e or type(e).__name__})", "compile it again") from e
    except OSError as e:
        raise CorelaneError(f"cannot read {path}: {e.strerror}") from e


def _check_kind(path: Path, elf: Any) -> None:
    """Class, machine and type of the object."""
    if elf.elfclass != 64:
        raise refused(path, "it is for a 32-bit machine", f"compile it for {platform.machine()}")
    if other := other_machine(elf):
        raise refused(path, other, "compile it here")
    kind = str(elf["e_type"])
    if kind == "ET_REL":
        raise refused(path, "it is an object file that was not linked", "link it with cc -shared")
    if kind != "ET_DYN" or any(s["p_type"] == "PT_INTERP" for s in elf.iter_segments()):
        raise refused(path, "it is a program and no shared object", "link it with cc -shared -fPIC")


def other_machine(elf: Any) -> str | None:
    """That it is for another machine than this one, if so."""
    machine = str(elf["e_machine"])
    if machine == _MACHINES.get(platform.machine(), platform.machine()):
        return None
    return f"it is for {machine.removeprefix('EM_').lower()}, and this machine is {platform.machine()}"


def _check_whole(path: Path, elf: Any) -> None:
    """Nothing that the headers name lies beyond the end of the file."""
    size = elf.stream.seek(0, os.SEEK_END)
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


def exported(path: Path) -> frozenset[str]:
    """Names of all that a shared object exports, functions and variables. CorelaneError if it is none."""
    with shared_object(path) as elf:
        table = elf.get_section_by_name(".dynsym")
        symbols = table.iter_symbols() if table is not None else ()
        return frozenset(str(s.name) for s in symbols if s["st_shndx"] != "SHN_UNDEF" and s.name)


def needed_libraries(elf: Any) -> tuple[list[str], list[str]]:
    """DT_NEEDED, and the folders of DT_RUNPATH and DT_RPATH."""
    names: list[str] = []
    paths: list[str] = []
    section = elf.get_section_by_name(".dynamic")
    for tag in section.iter_tags() if section is not None else ():
        if tag.entry.d_tag == "DT_NEEDED":
            names.append(str(tag.needed))
        elif tag.entry.d_tag == "DT_RUNPATH":
            paths += str(tag.runpath).split(":")
        elif tag.entry.d_tag == "DT_RPATH":
            paths += str(tag.rpath).split(":")
    return names, paths


def find_library(name: str, path: Path, run_paths: list[str]) -> Path | None:
    """Where the dynamic linker finds a library that the file at `path` needs. None: nowhere."""
    origin = str(path.resolve().parent)
    own = [Path(p.replace("$ORIGIN", origin).replace("${ORIGIN}", origin)) for p in run_paths if p]
    return next((folder / name for folder in (*own, *_library_folders()) if (folder / name).exists()), None)


def _library_folders() -> list[Path]:
    """Where the dynamic linker looks by default (ld.so(8)): LD_LIBRARY_PATH, /etc/ld.so.conf, the system's folders."""
    folders = [Path(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    todo = [Path("/etc/ld.so.conf")]
    while todo:
        try:
            lines = os.fsdecode(todo.pop().read_bytes()).splitlines()  # paths are bytes
        except OSError:
            continue
        for line in lines:
            words = line.partition("#")[0].split()
            if words[:1] == ["include"]:
                for pattern in words[1:]:
                    base = Path(pattern if pattern.startswith("/") else f"/etc/{pattern}")
                    todo += sorted(base.parent.glob(base.name))
            elif words:
                folders.append(Path(words[0]))
    triplet = f"{platform.machine()}-linux-gnu"
    folders += [Path(base) / sub for base in ("/lib", "/usr/lib", "/usr/local/lib") for sub in (triplet, ".")]
    return [*folders, Path("/lib64"), Path("/usr/lib64")]
