"""The C arms of the `probes` benchmark: bench/probes/loops.h compiled once for each way of probing.

Each variant is a shared library that gcc makes while the benchmark runs. All are compiled with the same alignment of
loops and functions. Arguments are those of the Python kernels of the same names (kernels.py).
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ... import runtime
from ...runtime.errors import CorelaneError

HAND, TRACE = "CL_PROBE", "trace-pc"
WAYS: dict[str, tuple[str, ...]] = {
    "plain": ("-DCL_BENCH_PROBE()=((void)0)",),
    HAND: (),
    TRACE: (
        "-DCL_BENCH_PROBE()=((void)0)",
        "-fsanitize-coverage=trace-pc",
        "-include",
        "corelane/libos/trace_pc.h",
    ),
}
NAMES = ("matmul", "matmul_blocked", "stencil", "fnv", "walk", "spmv")
_FLAGS = "-O3 -march=native -ffp-contract=off -falign-functions=64 -falign-loops=64 -fPIC -shared -D_GNU_SOURCE"
_NOTING = "-Dcl_probe_slow=cl_bench_gap"

Call = Callable[[], Any]


def compiler() -> list[str] | None:
    """The C compiler as words, or None if there is none."""
    words = shlex.split(os.environ.get("CC", "gcc"))
    return words if shutil.which(words[0]) else None


def build(way: str, folder: Path, *, noting: bool = False) -> ctypes.CDLL:
    """Compile one variant. noting: its probes call cl_bench_gap each time, whatever the word is."""
    words = compiler()
    if words is None:
        raise CorelaneError("probes: compile the C kernels", "there is no C compiler", "apt-get install gcc")
    base = Path(runtime.__file__).resolve().parent
    source = folder / "kernels.c"
    source.write_text(f'#include "{Path(__file__).resolve().with_name("loops.h")}"\n')
    out = folder / f"{way}{'-noting' if noting else ''}.so"
    lib = base / "_lib"
    command = [*words, *_FLAGS.split(), f"-I{base / '_include'}", *WAYS[way], *([_NOTING] if noting else [])]
    command += [str(source), "-o", str(out), f"-L{lib}", f"-Wl,-rpath,{lib}", "-lcorelane"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CorelaneError("probes: compile the C kernels", done.stderr.strip(), "set CC to a gcc of 12 or newer")
    made = ctypes.CDLL(str(out))
    made.fnv.restype = ctypes.c_uint64
    made.walk.restype = ctypes.c_int64
    return made


_ALWAYS = np.ones(8, np.uint64)
ALWAYS = int(_ALWAYS.ctypes.data)  # address of a word that is never 0


def look_at(made: ctypes.CDLL, word: int) -> None:
    """Let this thread's probes look at a word, by its address; the variants share the pointer to it."""
    made.watch(ctypes.c_void_p(word))


def _pointer(array: Any) -> Any:
    return array.ctypes.data_as(ctypes.c_void_p)


def call(made: ctypes.CDLL, name: str, args: tuple[Any, ...]) -> Call:
    """A function without arguments that runs kernel `name` on the arguments of the Python kernel."""
    arrays = [arg for arg in args if isinstance(arg, np.ndarray)]
    count = {"spmv": len(args[0]) - 1, "walk": len(args[-1])}.get(name, len(args[0]))
    if name == "matmul_blocked":
        count *= args[0].shape[1]
    function = getattr(made, name)
    given = [*(_pointer(array) for array in arrays), ctypes.c_int64(count)]
    return lambda: function(*given)
