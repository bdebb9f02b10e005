"""corelane config: flags for compiling a C server or a handler against corelane, and unit files for systemd."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path

from ..runtime.errors import CorelaneError
from . import values
from .usage import WrongUsage


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


def unit(app: str) -> str:
    """The unit file of the iokernel, or of an application ("": the iokernel)."""
    command = Path(sys.argv[0])
    if command.name != "corelane" or not command.is_file():
        command = Path(sys.executable).parent / "corelane"
    text = (Path(__file__).parent / ("corelane-app.service" if app else "corelane.service")).read_text()
    # systemd's quoting: % and $ are its own (systemd.service(5)).
    path = str(command.resolve()).replace("%", "%%").replace("$", "$$")
    return text.replace("@COMMAND@", f'"{path}"' if " " in path else path).replace("@APP@", app)


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
    parser.add_argument(
        "--unit",
        nargs="?",
        const=False,
        type=values.app_name,
        metavar="APP",
        help="a unit file of systemd, and how to install it: of the iokernel, or of the built-in application APP",
    )
    parser.add_argument("--json", action="store_true", help="print everything but unit files as JSON")


def run(options: argparse.Namespace) -> int:
    """Print what was asked for, flags on one line."""
    if options.unit is not None:
        print(unit(options.unit or ""), end="")
        return 0
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
        raise WrongUsage("say what to print", "", "--cflags, --probe-cflags, --libs, --include-dir, --unit or --json")
    print(shlex.join(words))
    return 0
