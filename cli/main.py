"""The `corelane` command: dispatch to a subcommand, one sentence for every error. See the package for the rules."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from ..runtime.errors import CorelaneError

COMMANDS = {
    "doctor": "say what this machine gives, what is missing, and the command that mends it",
    "up": "start the iokernel",
    "run": "run an application: a built-in one, module:handler, or a compiled .so",
    "ps": "show the iokernel and its applications, with rates and drops",
    "bench": "measure: benchmarks by name, their list, reports from their files",
    "config": "print flags for compiling C against corelane",
}


class Parser(argparse.ArgumentParser):
    """argparse, with errors of one sentence and no usage dump."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = "\n".join(f"  {name.ljust(width)}  {text}" for name, text in COMMANDS.items())
    return (
        "usage: corelane COMMAND ...\n\nA user-space dataplane OS for ordinary Linux.\n\n"
        f"commands:\n{lines}\n\ncorelane COMMAND --help explains a command; corelane --version prints the version.\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("-h", "--help", "help"):
        print(_overview(), end="")
        return 0 if args else 2
    if args[0] == "--version":
        from importlib.metadata import version

        print(f"corelane {version('corelane')}")
        return 0
    if args[0] not in COMMANDS:
        print(f"corelane: there is no command {args[0]!r}: choose one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    return _call(args[0], args[1:])


def _call(command: str, args: list[str]) -> int:
    """Import a subcommand, parse its arguments and run it."""
    module = importlib.import_module(f"{__package__}.{command}")
    parser = Parser(prog=f"corelane {command}", description=COMMANDS[command])
    try:
        module.add_arguments(parser)
        code = module.run(parser.parse_args(args))
        sys.stdout.flush()
    except CorelaneError as e:
        print(f"corelane {command}: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"corelane {command}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read us has gone: nothing more to say, and nothing for the interpreter's own flush to fail on.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    assert isinstance(code, int)
    return code


if __name__ == "__main__":
    sys.exit(main())
