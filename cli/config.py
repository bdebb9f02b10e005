"""corelane config: flags for compiling C, where corelane's parts are installed, files for systemd and Grafana."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from pathlib import Path

from ..apps import registry
from ..runtime.errors import CorelaneError
from . import values
from .usage import WrongUsage

BASE = Path(__file__).resolve().parent.parent
# An option, and the folder or file that it prints, relative to the installed corelane.
FOLDERS = {
    "include-dir": ("runtime/_include", "folder of the headers: #include <corelane/libos/...>"),
    "pkgconfig-dir": ("runtime/_lib/pkgconfig", "folder of corelane.pc, for PKG_CONFIG_PATH"),
    "cmake-dir": ("runtime/_lib/cmake/corelane", "folder of the CMake package: cmake -Dcorelane_DIR=..."),
    "examples": ("examples", "folder of small servers in C and Python, to copy"),
    "launcher": ("runtime/_lib/corelane-run", "program that runs compiled services without Python"),
    "gdb": ("libos/sched/uthreads_gdb.py", "commands for gdb that show uthreads: gdb -x ..."),
}


def folders() -> tuple[Path, Path]:
    """The installed folders of headers and of libcorelane.so. CorelaneError if the C core was not built."""
    include, lib = BASE / "runtime" / "_include", BASE / "runtime" / "_lib"
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
    return text.replace("@APP@", app).replace("@COMMAND@", _quoted(str(command.resolve())))


def _quoted(program: str) -> str:
    """A program as systemd wants it (systemd.service(5), systemd.syntax(7)): % is its own. It takes no quotes, no
    backslashes and no control characters in a program's path, but in an argument, where $ is its own, too."""
    path = program.replace("%", "%%")
    if re.search(r"[\"'\\\0-\x1f\x7f]", path):
        escaped = re.sub(r"[\"\\\0-\x1f\x7f]", lambda found: f"\\x{ord(found[0]):02x}", path.replace("$", "$$"))
        return f'/usr/bin/env "{escaped}"'
    return f'"{path}"' if " " in path else path


def flags() -> dict[str, list[str]]:
    """Words for a compiler: cflags, probe_cflags, libs."""
    include, lib = folders()
    return {
        "cflags": [f"-I{include}", "-D_GNU_SOURCE", "-pthread", "-fstack-clash-protection"],
        "probe_cflags": ["-fsanitize-coverage=trace-pc", "-include", "corelane/libos/trace_pc.h"],
        "libs": [f"-L{lib}", f"-Wl,-rpath,{lib}", "-lcorelane"],
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cflags", action="store_true", help="flags for compiling")
    parser.add_argument(
        "--probe-cflags", action="store_true", help="flags that have the compiler put probes in (docs/probes.md)"
    )
    parser.add_argument(
        "--libs", action="store_true", help="flags for linking; the library is then found at run time too"
    )
    for name, (_, text) in FOLDERS.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)
    parser.add_argument(
        "--unit",
        nargs="?",
        const=False,
        type=values.app_name,
        metavar="APP",
        help="a unit file of systemd, and how to install it: of the iokernel, or of the built-in application APP",
    )
    parser.add_argument("--grafana", action="store_true", help="a dashboard of Grafana, for what `metrics` serves")
    parser.add_argument("--json", action="store_true", help="print everything but the files as JSON")


def run(options: argparse.Namespace) -> int:
    """Print what was asked for, flags on one line."""
    if options.unit is not None:
        if options.unit and options.unit not in registry.names():
            why = "there is no built-in application of that name"
            raise WrongUsage(f"--unit {options.unit}", why, f"one of: {', '.join(registry.names())}")
        print(unit(options.unit or ""), end="")
        return 0
    if options.grafana:
        print((Path(__file__).parent / "grafana.json").read_text(), end="")
        return 0
    found = {name.replace("-", "_"): str(BASE / path) for name, (path, _) in FOLDERS.items()}
    if options.json:
        print(json.dumps({**flags(), **found, "library": str(library())}))
        return 0
    words = [path for name, path in found.items() if getattr(options, name)]
    words += [word for name, some in flags().items() if getattr(options, name) for word in some]
    if not words:
        known = ", ".join(f"--{name}" for name in ("cflags", "probe-cflags", "libs", *FOLDERS, "unit", "grafana"))
        raise WrongUsage("say what to print", "", f"{known} or --json")
    print(shlex.join(words))
    return 0
