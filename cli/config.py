"""corelane config: flags for compiling a C server or a handler against corelane."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

from ..runtime.errors import CorelaneError


def folders() -> tuple[Path, Path]:
    """The installed folders of headers and of libcorelane.so. CorelaneError if the C core was not built."""
    base = Path(__file__).resolve().parent.parent / "runtime"
    include, lib = base / "_include", base / "_lib"
    if not (lib / "libcorelane.so").exists() or not include.is_dir():
        raise CorelaneError("find the C core", f"{lib} has no libcorelane.so", "build it: pip install .")
    return include, lib


def library() -> Path:
    """libcorelane.so."""
    return folders()[1] / "libcorelane.so"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cflags", action="store_true", help="flags for compiling")
    parser.add_argument(
        "--probe-cflags", action="store_true", help="flags that have the compiler put probes in (docs/probes.md)"
    )
    parser.add_argument(
        "--libs", action="store_true", help="flags for linking; the library is then found at run time too"
    )
    parser.add_argument(
        "--include-dir", action="store_true", help="folder of the headers: #include <corelane/libos/...>"
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(options: argparse.Namespace) -> int:
    """Print what was asked for on one line."""
    include, lib = folders()
    cflags = [f"-I{include}", "-D_GNU_SOURCE", "-pthread", "-fstack-clash-protection"]
    probe = ["-fsanitize-coverage=trace-pc", "-include", "corelane/libos/trace_pc.h"]
    libs = [f"-L{lib}", f"-Wl,-rpath,{lib}", "-lcorelane"]
    if options.json:
        folder = {"include_dir": str(include), "library": str(library())}
        print(json.dumps({"cflags": cflags, "probe_cflags": probe, "libs": libs, **folder}))
        return 0
    words: list[str] = []
    if options.include_dir:
        words.append(str(include))
    if options.cflags:
        words += cflags
    if options.probe_cflags:
        words += probe
    if options.libs:
        words += libs
    if not words:
        raise CorelaneError("say what to print", "", "--cflags, --probe-cflags, --libs, --include-dir or --json")
    print(shlex.join(words))
    return 0
