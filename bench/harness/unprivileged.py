"""`python -m corelane.bench.harness.unprivileged UID ARGUMENTS`: the command line `corelane ARGUMENTS` as another user.

What it needs is imported before it becomes that user, who perhaps may not read where corelane is installed.
"""

from __future__ import annotations

import importlib
import os
import sys


def become(uid: int) -> None:
    """Be this user, and in the group of the same number alone, for good. Takes root."""
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def main(arguments: list[str]) -> int:
    """The program."""
    late_ones = ("ctypes", "corelane.apps.echo", "corelane.cli.run", "corelane.cli.service", "corelane.runtime.perf")
    for late in late_ones:
        importlib.import_module(late)
    cli = importlib.import_module("corelane.cli.main")
    become(int(arguments[0]))
    return int(cli.main(arguments[1:]) or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
