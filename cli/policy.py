"""corelane policy: which policy decides who gets the cores, and another one while the iokernel runs."""

from __future__ import annotations

import argparse
import json
import os

from . import values
from .usage import WrongUsage, words_are_wrong

# Loading one that must be compiled takes seconds, on a busy machine many.
IMPORTS = ("..iokernel._native",)
_TIMEOUT_MS = 120_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "spec",
        nargs="?",
        metavar="SPEC",
        help="static, shenango, delay, fair, attained, module:function or file.so:symbol; without it, what decides now",
    )
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the policy")
    parser.add_argument("--socket", type=values.socket, metavar="PATH", help=values.SOCKET)
    parser.add_argument(
        "--wait", type=values.seconds, default=0, metavar="S", help="wait so long for the iokernel to come up"
    )
    parser.add_argument("--json", action="store_true", help="print the policy and its settings as JSON")


def run(options: argparse.Namespace) -> int:
    """Set the policy if one is named, and say which decides."""
    from ..runtime.paths import default_socket
    from .watch import policy_line, snapshot

    if options.set and options.spec is None:
        raise WrongUsage("set a policy", "settings without a policy", "name it: corelane policy delay --set ...")
    if options.spec is not None:
        from ..iokernel.policy.policy import check_spec

        with words_are_wrong():
            check_spec(options.spec)
    before = snapshot(options.socket, options.wait)  # a sentence of its own if nobody listens
    path = options.socket or default_socket()
    if options.spec is not None:
        choose(path, options.spec, options.set)
    stats = snapshot(path) if options.spec is not None else before
    if options.json:
        print(json.dumps(stats["cores"] and stats["cores"]["policy"]))
    else:
        print(policy_line(stats))
    return 0


def choose(path: str, spec: str, words: list[str]) -> str:
    """Have a policy decide, with "name=value" settings; returns that in a line. CorelaneError: its trial's word."""
    from ..runtime._native import ffi, lib
    from ..runtime.errors import check

    file, colon, symbol = spec.rpartition(":")
    if colon and "/" in file:  # the iokernel has another folder
        spec = f"{os.path.abspath(file)}:{symbol}"
    err, text = ffi.new("char[256]"), ffi.new("char[]", lib.CL_CONTROL_TEXT_BYTES)
    fd = check(lib.cl_control_connect(os.fsencode(path), 1000, err), f"connect to {path}", err)
    try:
        rc = lib.cl_control_policy(fd, os.fsencode(spec), os.fsencode(" ".join(words)), text, _TIMEOUT_MS, err)
        check(rc, f"set the policy {spec}", err)
        return os.fsdecode(ffi.string(text))
    finally:
        lib.cl_control_close(fd)
