"""Object files to a shared object, by the linker of binutils or LLVM."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ...runtime.errors import CorelaneError
from ...runtime.files import Whole
from ..numba.folder import library_path

_LINKERS = ("ld", "ld.lld", "ld.gold")
# Nothing is bound late: that would take 3 KB of a uthread's stack.
_FLAGS = ("-shared", "-z", "now", "-z", "defs", "-z", "noexecstack", "-z", "relro", "--build-id", "--gc-sections")


def linker() -> list[str]:
    """Words that call it: $LD, or the first one that is there. Raises CorelaneError if there is none."""
    if chosen := os.environ.get("LD"):
        return shlex.split(chosen)
    found = next((path for name in _LINKERS if (path := shutil.which(name))), None)
    if found is None:
        raise CorelaneError("link a service", "there is no linker (ld)", "apt-get install binutils")
    return [found]


def _shared(name: str) -> str:
    """Path of a library of the system's, as the dynamic linker finds it."""
    ctypes.CDLL(name)
    with open("/proc/self/maps", "rb") as maps:  # in which others' paths need not be text
        for line in maps:
            path = os.fsdecode(line.split(maxsplit=5)[-1].rstrip(b"\n"))
            if path.startswith("/") and os.path.basename(path) == name:
                return path
    raise CorelaneError("link a service", f"{name} was not found", "it is a part of the system's C library")


def linked(objects: Sequence[bytes], name: str) -> bytes:
    """A shared object. name: what it is called in itself. Raises CorelaneError."""
    with tempfile.TemporaryDirectory(prefix="corelane-compile-") as folder:
        paths, out = [Path(folder, f"{i}.o") for i in range(len(objects))], Path(folder, "out.so")
        for path, code in zip(paths, objects, strict=True):
            path.write_bytes(code)
        libraries = [library_path(), _shared("libm.so.6"), _shared("libc.so.6")]
        command = [*linker(), *_FLAGS, "-soname", name, "-o", str(out), *map(str, paths), *libraries]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            if done.returncode:
                raise CorelaneError("link a service", (done.stderr or done.stdout).strip().replace("\n", "; "))
            return out.read_bytes()
        except OSError as error:
            raise CorelaneError(
                "link a service", f"{command[0]}: {error.strerror}", "see LD in the environment"
            ) from error


def link(objects: Sequence[bytes], out: Path) -> int:
    """Make `out`, which is there whole or not at all; its bytes. Raises CorelaneError."""
    made = linked(objects, out.name)
    try:
        with contextlib.closing(Whole(out)) as file:
            file.file.write(made)
            file.keep(0o755)
    except OSError as error:
        raise CorelaneError(f"write {out}", error.strerror or str(error)) from error
    return len(made)
