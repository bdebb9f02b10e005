"""Services that were compiled ahead of time (corelane compile), as targets of `corelane run`.

`run` becomes corelane-run, a program without Python. What only Python has, such as a generated load or a replay as its
NIC, keeps the service in this process; the C code that loads and binds it is the same.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import NoReturn

from ..runtime.elf import exported, shared_object
from ..runtime.errors import CorelaneError
from ..runtime.paths import default_socket
from . import tracing
from .config import library
from .usage import WrongUsage

SYMBOL = "corelane_service"
_VALUES = ("name", "kthreads", "poll", "spin_us", "guaranteed", "max_cores", "weight", "deadline_us", "quantum_us")
_MORE = ("address", "port", "seconds", "stop_s", "wait")
_FLAGS = ("quantum_signal", "json", "with_parent", "replace")


def is_service(text: str) -> bool:
    """Whether a target is such an object. CorelaneError for one that cannot be read, or is for another machine."""
    path = Path(text)
    if not (text.endswith(".so") or "/" in text):
        return False
    with shared_object(path):
        return SYMBOL in exported(path)


def can_be_alone(options: argparse.Namespace) -> bool:
    """Whether nothing of the command line needs Python."""
    if not tracing.is_default(options) or options.work is not None:
        return False
    if not options.nic:
        return True
    device, *words = options.nic.split(",")
    kind = device.partition(":")[0]
    return (kind == "tap" and all(word.startswith("host=") for word in words)) or (kind == "af_xdp" and not words)


def become(options: argparse.Namespace) -> NoReturn:
    """Replace this process by corelane-run. CorelaneError if it cannot be."""
    program = library().with_name("corelane-run")
    if options.option:
        raise WrongUsage(
            f"run {options.target}", "a compiled service takes no --option", "compile it with other values"
        )
    words = [str(program), *_words(options), "--", options.target]
    try:
        os.execv(program, words)
    except OSError as error:
        raise CorelaneError(f"start {program}", error.strerror or str(error), "build it: pip install .") from error


def _words(options: argparse.Namespace) -> list[str]:
    """The command line of corelane-run."""
    out = []
    for name in (*_VALUES, *_MORE):
        if (value := getattr(options, name)) is not None:
            out += [f"--{name.replace('_', '-')}", f"{value:.9g}" if isinstance(value, float) else str(value)]
    out += [f"--{name.replace('_', '-')}" for name in _FLAGS if getattr(options, name)]
    if options.kind:
        out += ["--class", options.kind]
    if options.cpus is not None:
        out += ["--cpus", ",".join(map(str, options.cpus))]
    if not options.nic:
        return [*out, "--socket", options.socket or default_socket()]
    return [*out, "--nic", options.nic, *_handed_over(options)]


def _handed_over(options: argparse.Namespace) -> list[str]:
    """Descriptors of an XDP program, which this process can load and attach."""
    kind, _, interface = options.nic.partition(":")
    if kind != "af_xdp" or not options.address:
        return []
    from ..drivers.nic.af_xdp.af_xdp import hand_over

    given = hand_over(interface, options.kthreads, options.address.partition("/")[0])
    return ["--xskmap", str(given.xskmap_fd), "--link", str(given.link_fd)]
