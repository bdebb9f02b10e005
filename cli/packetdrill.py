"""corelane packetdrill: run tests that are scripts of packets in and out, in packetdrill's syntax."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..runtime.errors import CorelaneError
from . import values

if TYPE_CHECKING:
    from ..bench.packetdrill.suite import Make

UNWINDS = True  # a namespace for each script on Linux'
# Exit codes beside 0 (all passed).
FAILED, UNREADABLE, UNSUPPORTED, LATE, BROKEN = 1, 2, 3, 4, 5
_CODES = (
    *(("broken", BROKEN), ("failed", FAILED), ("unreadable", UNREADABLE), ("late", LATE)),
    ("unsupported", UNSUPPORTED),
)


# Of packetdrill's command line; they count more than a script's own.
_OPTIONS = {
    "tolerance_usecs": "as in scripts, whose own value it replaces",
    "tolerance_percent": "the same",
    "ip_version": "the same: ipv4, or ipv4-mapped-ipv6 and ipv6, which are not supported",
    "mtu": "the same",
    "mss": "the same: taken, and without meaning here, where no NIC puts segments together",
    "local_ip": "as in scripts",
    "remote_ip": "the same",
    "gateway_ip": "taken, and without meaning here, where each script has a network of its own",
    "netmask_ip": "the same",
    "bind_port": "as in scripts",
    "connect_port": "the same",
    "non_fatal": "taken: all lines are fatal here",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a script, or a folder with *.pkt in it")
    parser.add_argument("--stack", choices=("corelane", "linux"), default="corelane", help="whose TCP (default: ours)")
    parser.add_argument("--jobs", type=values.positive, default=1, metavar="N", help="scripts at a time (default 1)")
    parser.add_argument(
        "--tolerance",
        type=values.microseconds,
        default=0,
        metavar="US",
        help="allow times to be off by so much, at least",
    )
    parser.add_argument(
        "-D", "--define", action="append", default=[], type=_definition, metavar="NAME=VALUE", help="as in scripts"
    )
    for name, meaning in _OPTIONS.items():
        parser.add_argument(f"--{name}", metavar="VALUE", help=meaning)
    parser.add_argument("--trace", action="store_true", help="print what happened in each script, too")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(options: argparse.Namespace) -> int:
    """Run the scripts; the exit code says the worst: broken, failed, unreadable, late, unsupported."""
    from ..bench.packetdrill.suite import Verdict, judge_all

    make = _make(options.stack)
    paths = _scripts(options.files)
    verdicts: list[Verdict] = []
    given = tuple((name, getattr(options, name)) for name in _OPTIONS if getattr(options, name) is not None)
    for verdict in judge_all(paths, make, options.jobs, round(options.tolerance), dict(options.define), given):
        verdicts.append(verdict)
        if not options.json:
            if options.trace:
                print(*(f"    {line}" for line in verdict.log), sep="\n")
            print(verdict.text(), flush=True)
    counts = {
        status: sum(v.status == status for v in verdicts) for status in ("passed", "deviates", *(s for s, _ in _CODES))
    }
    if options.json:
        print(json.dumps({"stack": options.stack, "counts": counts, "scripts": [v.document() for v in verdicts]}))
    else:
        scripts = "1 script" if len(verdicts) == 1 else f"{len(verdicts)} scripts"
        print(f"{scripts} on {options.stack}: " + ", ".join(f"{n} {s}" for s, n in counts.items() if n))
    return next((code for status, code in _CODES if counts[status]), 0)


def _definition(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} defines nothing: write it as in NAME=VALUE")
    return name, value


def _make(stack: str) -> Make:
    if stack == "linux":
        from ..bench.packetdrill.linux import LinuxStack, missing

        lacks = missing()
        if lacks:
            raise CorelaneError("test the kernel's TCP", lacks)
        return LinuxStack
    from ..bench.packetdrill.corelane import corelane_stack

    return corelane_stack


def _scripts(files: list[Path]) -> list[Path]:
    out: list[Path] = []
    for path in files:
        found = sorted(path.rglob("*.pkt")) if path.is_dir() else [path]
        if not found:
            raise CorelaneError(f"run the scripts of {path}", "there is no *.pkt in it")
        out += found
    return out
