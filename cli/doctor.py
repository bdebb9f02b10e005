"""corelane doctor: what this machine gives, what is missing, and the command that mends it."""

from __future__ import annotations

import argparse
import sys

from .checks import Check, examine
from .system import System
from .values import width, wrapped, wrapped_command

SIGNS = {"ok": "ok     ", "warn": "warn   ", "missing": "missing"}
COLOURS = {"ok": "32", "warn": "33", "missing": "31"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")
    parser.add_argument("--brief", action="store_true", help="only what is not ok")


def can_run(checks: list[Check]) -> bool:
    """Whether the default path, the software NIC without root, can run."""
    return not any(c.required and c.state == "missing" for c in checks)


def verdict(checks: list[Check]) -> str:
    """The last line: a person's answer."""
    warned = sum(c.state == "warn" for c in checks)
    missing = [c for c in checks if c.state == "missing"]
    if not can_run(checks):
        return f"corelane cannot run here: {'; '.join(c.meaning for c in missing if c.required)}"
    text = "corelane runs here"
    if missing:
        text += f", without {', '.join(c.name for c in missing)}"
    return f"{text}; {warned} thing(s) would make it faster or steadier" if warned else text


def render(checks: list[Check], brief: bool = False, colour: bool = False, columns: int | None = None) -> str:
    """The checks as text: state, name and finding, then what it means and what mends it. columns: None for any."""
    name_width = max(len(c.name) for c in checks)
    lines = []
    for c in checks:
        if brief and c.state == "ok":
            continue
        sign = f"\x1b[{COLOURS[c.state]}m{SIGNS[c.state]}\x1b[0m" if colour else SIGNS[c.state]
        said = f"{sign}  {c.name.ljust(name_width)}  {c.found}"
        hidden = len(sign) - len(SIGNS[c.state])
        lines += wrapped(said, columns and columns + hidden, " " * (len(SIGNS["ok"]) + name_width + 4))
        indent = " " * (len(SIGNS["ok"]) + 2)
        if c.meaning and c.state != "ok":
            lines += wrapped(f"{indent}{c.meaning}", columns, indent)
        if c.mend:
            lines += wrapped_command(f"{indent}$ {c.mend}", columns, f"{indent}    ")
        if c.stuck:
            lines += wrapped(f"{indent}nothing mends it here: {c.stuck}", columns, indent)
    return "\n".join([*lines, *wrapped(verdict(checks), columns)])


def run(options: argparse.Namespace) -> int:
    """Print the checks; 0 if the default path can run, else 1."""
    checks = examine(System())
    if options.json:
        import json
        from dataclasses import asdict

        document = {"can_run": can_run(checks), "verdict": verdict(checks), "checks": [asdict(c) for c in checks]}
        print(json.dumps(document, indent=1))
    else:
        print(render(checks, options.brief, colour=sys.stdout.isatty(), columns=width()))
    return 0 if can_run(checks) else 1
