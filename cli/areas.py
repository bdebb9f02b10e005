"""corelane areas: the storage areas that a running iokernel gives out."""

from __future__ import annotations

import argparse
import json
from typing import Any

from . import values

# Making an area takes as long as writing it.
IMPORTS = ("..runtime._native",)
_TIMEOUT_S = 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_common(parser, None, False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    made = actions.add_parser("list", help="your areas, and what is free; also without an action")
    _add_common(made, argparse.SUPPRESS, argparse.SUPPRESS)
    for action, text in (("create", "make one of zeros"), ("grow", "make one larger")):
        made = actions.add_parser(action, help=text)
        _add_common(made, argparse.SUPPRESS, argparse.SUPPRESS)
        made.add_argument("name", metavar="NAME")
        text = "in all, as in 64M or 10G: bytes, K, M, G or T, powers of 1024"
        made.add_argument("size", type=values.size, metavar="SIZE", help=text)
        if action == "create":
            made.add_argument("--owner", default="", metavar="USER", help="whose it is (default: yours)")
    made = actions.add_parser("delete", help="give one back")
    _add_common(made, argparse.SUPPRESS, argparse.SUPPRESS)
    made.add_argument("name", metavar="NAME")


def _add_common(parser: argparse.ArgumentParser, socket: object, as_json: object) -> None:
    """Options that may stand before and behind the action."""
    text = "the iokernel's socket (default: the user's own, or root's)"
    parser.add_argument("--socket", type=values.socket, metavar="PATH", default=socket, help=text)
    parser.add_argument("--json", action="store_true", default=as_json, help="print the iokernel's answer as JSON")


def run(options: argparse.Namespace) -> int:
    """Ask the iokernel, and say what it answered."""
    from ..runtime import control
    from ..runtime._native import lib
    from ..runtime.paths import default_socket

    action = options.action or "list"
    op = getattr(lib, f"CL_CONTROL_AREA_{action.upper()}")
    size = options.size if action in ("create", "grow") else 0
    answer, _, _ = control.area(
        options.socket or default_socket(),
        op,
        "" if action == "list" else options.name,
        size,
        options.owner if action == "create" else "",
        _TIMEOUT_S,
    )
    print(json.dumps(answer) if options.json else _text(action, answer))
    return 0


def _text(action: str, answer: dict[str, Any]) -> str:
    if action == "delete":
        return f"deleted {answer['deleted']}"
    if action != "list":
        return _line(answer["area"])
    mib = 1 << 20
    lines = [_line(area) for area in answer["areas"]] or ["no storage areas"]
    quota = f", quota {answer['quota_bytes'] // mib} MiB a user" if answer["quota_bytes"] else ""
    where = (
        f"{answer['kind']}: {answer['capacity_bytes'] // mib} MiB, largest free {answer['largest_bytes'] // mib} MiB"
    )
    return "\n".join([*lines, where + quota, *(f"note: {note}" for note in answer["notes"])])


def _line(area: dict[str, Any]) -> str:
    state = "in use" if area["in_use"] else "free"
    return f"{area['name']:<24} {area['bytes'] / (1 << 20):>12,.1f} MiB  user {area['uid']:<6} {state}"
