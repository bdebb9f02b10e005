"""`python -m corelane.bench.harness.unprivileged UID ARGUMENTS`: the command line `corelane ARGUMENTS` as another user.

What it needs is imported before it becomes that user, who perhaps may not read where corelane is installed.
"""

from __future__ import annotations

import os
import sys


def become(uid: int) -> None:
    """Be this user, and in the group of the same number alone, for good. Takes root."""
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def main(arguments: list[str]) -> int:
    """The program."""
    import ctypes  # noqa: F401  what an application uses is imported late

    from ...apps import echo  # noqa: F401
    from ...cli import main as cli
    from ...cli import run  # noqa: F401

    become(int(arguments[0]))
    return cli.main(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
