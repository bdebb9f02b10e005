"""CPython with the library and the event loop's extension under ASan and UBSan.

The interpreter itself is not: what it allocates is watched all the same, since PYTHONMALLOC has it ask malloc for each
object. Leaks are not looked for here: the interpreter leaves much to its end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from cltest import CBuild
from cltest.cbuild import ROOT, setup_py

NAME = "corelane.libos._asyncio"
_OPTIONS = "detect_leaks=0:detect_stack_use_after_return=0:exitcode=99"


@dataclass(frozen=True)
class Sanitized:
    """What was built. folder: of libcorelane.so; extension: the module NAME, which uses it."""

    folder: Path
    extension: Path

    def run(self, *words: str, timeout_s: float) -> str:
        """What `python -m sanitized` prints. AssertionError, with all of that, if it fails or takes longer."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CORELANE_SOAK")},
            "ASAN_OPTIONS": _OPTIONS,
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
            "LD_LIBRARY_PATH": str(self.folder),
            "LD_PRELOAD": _runtime_of_asan(),
            "PYTHONMALLOC": "malloc",
            "PYTHONPATH": str(ROOT / "tests" / "support"),
        }
        done = subprocess.run(
            [sys.executable, "-m", "sanitized", str(self.extension), *words],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}"
        return done.stdout


def build() -> Sanitized:
    """Compile what is stale, and link."""
    builder, made = CBuild("asan"), setup_py()
    folder = builder.dir / "sanitized"
    folder.mkdir(parents=True, exist_ok=True)
    library = builder.build_library(folder / "libcorelane.so")
    flags = ["-DPy_LIMITED_API=0x030B0000", "-isystem", sysconfig.get_paths()["include"]]
    sources = sorted(path.relative_to(ROOT) for path in (ROOT / made.EXTENSION).glob("*.c"))
    link = [f"-L{folder}", f"-Wl,-rpath,{folder}", "-lcorelane"]
    return Sanitized(library.parent, builder.build_shared(folder / "_asyncio.so", sources, flags, link))


def _runtime_of_asan() -> str:
    command = [*CBuild("asan").compiler(), "-print-file-name=libasan.so"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
