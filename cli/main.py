"""The `corelane` command: dispatch to a subcommand, one sentence for every error. See the package for the rules."""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Sequence

from ..runtime.errors import CorelaneError
from .streams import output_error, prepare, tell
from .unwinding import Terminated, unwind_at_sigterm
from .usage import Parser, WrongUsage

COMMANDS = {
    "doctor": "say what this machine gives, what is missing, and the command that mends it",
    "up": "start the iokernel",
    "run": "run an application: a built-in one, module:handler, a compiled .so; with --posix a stock program",
    "compile": "compile handlers ahead of time, into a service that runs without Python",
    "ps": "show the iokernel and its applications, with rates and drops",
    "top": "watch who has the cores, how long work waits, and how cores move",
    "stat": "show what programs under run --posix call, have open, and do not get",
    "metrics": "print all counters for Prometheus, serve them, or send them by OpenTelemetry",
    "trace": "say why requests were slow, or record how cores move; for people and for Perfetto",
    "areas": "list, make, grow and delete storage areas",
    "policy": "say which policy decides who gets the cores, or set another",
    "raft": "look at a running Raft group, change its members, hand leadership over",
    "raft-sim": "run simulated Raft clusters from seeds and check what must hold",
    "packetdrill": "run scripts of packets in and out on corelane's TCP, or on Linux'",
    "load": "load any server, open loop, and say what its latency is and whether to trust that",
    "bench": "measure: benchmarks by name, their list, reports from their files",
    "lab": "try a policy for jobs on simulated cores, beside published ones",
    "log": "make, check or dump a persistent log: in a file, on a block device, in a storage area",
    "config": "print flags for compiling C against corelane, and files for systemd and Grafana",
}


def wants_json(args: Sequence[str]) -> bool:
    """Whether a command line asks for JSON: errors are then an object on stdout, too."""
    return any(word == "--json" or word.startswith("--json=") for word in args)


def say_error(command: str, error: CorelaneError, as_json: bool) -> None:
    """An error as one sentence on stderr and, if asked for, as {"error": {"what", "why", "hint"}} on stdout."""
    text = str(error)
    tell(text if text.startswith(command) else f"{command}: {text}")
    if as_json:
        import json

        print(json.dumps({"error": {"what": error.what, "why": error.why, "hint": error.hint}}), flush=True)


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = "\n".join(f"  {name.ljust(width)}  {text}" for name, text in COMMANDS.items())
    return (
        "usage: corelane COMMAND ...\n\nA user-space dataplane OS for ordinary Linux.\n\n"
        f"commands:\n{lines}\n\ncorelane COMMAND --help explains a command; corelane --version prints the version.\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code. argv: None for the process's own, whose streams it then prepares."""
    args = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        prepare()
    command = f"corelane {args[0]}" if args and args[0] in COMMANDS else "corelane"
    error = None
    try:
        code = _main(command, args, own=argv is None)
    except OSError as e:
        code, error = 1, e
    lost = output_error()
    error = lost or error
    if error is None or isinstance(error, BrokenPipeError):  # whoever read us has gone, and wants no word
        return code if error is None else 1
    what = "write to the standard output" if lost else f"use {error.filename}" if error.filename else "ask the system"
    say_error(command, CorelaneError(what, error.strerror or str(error)), wants_json(args) and not lost)
    return 1


def _main(command: str, args: list[str], own: bool) -> int:
    """`main`; raises OSError, of the standard output above all."""
    try:
        if not args or args[0] in ("-h", "--help", "help"):
            print(_overview(), end="")
            return 0 if args else 2
        return _version(args[1:]) if args[0] == "--version" else _call(args[0], args[1:], own)
    except CorelaneError as e:
        say_error(command, e, wants_json(args))
        return 2 if isinstance(e, WrongUsage) else 1
    except Terminated:
        say_error(command, CorelaneError("terminated"), wants_json(args))
        return 143
    except KeyboardInterrupt:
        say_error(command, CorelaneError("interrupted"), wants_json(args))
        return 130
    except SystemExit:  # argparse's, of --help
        if output_error() is None:
            raise
        return 1


def _version(args: list[str]) -> int:
    """The installed version."""
    from importlib.metadata import version

    number = version("corelane")
    if not wants_json(args):
        print(f"corelane {number}")
        return 0
    import json

    print(json.dumps({"version": number}))
    return 0


def _call(command: str, args: list[str], own: bool) -> int:
    """Import a subcommand, parse its arguments and run it. own: the process is the command's."""
    command = command.replace("_", "-")
    if command not in COMMANDS:
        raise WrongUsage(f"there is no command {command!r}", "", f"choose one of {', '.join(COMMANDS)}")
    name = command.replace("-", "_")
    if command == "run" and args[:1] == ["--posix"]:  # a program of others: nothing of it is ours to import
        name, args = "posix", args[1:]
        command = "run --posix"
    module = importlib.import_module(f"{__package__}.{name}")
    # A command may have a help of its own.
    about = COMMANDS[command.split()[0]]
    parser = Parser(prog=f"corelane {command}", description=about, conflict_handler="resolve")
    module.add_arguments(parser)
    # A command may take words that are not its parser's.
    options = parser.parse_args(module.rewrite(args, parser) if hasattr(module, "rewrite") else args)
    # Now, while Ctrl-C ends the process: an interrupt makes an ImportError of the import of a module of C.
    for name in getattr(module, "IMPORTS", ()):
        importlib.import_module(name, __package__)
    if own and callable(signal.getsignal(signal.SIGINT)) and not getattr(module, "ENDS_AT_ONCE", False):
        signal.signal(signal.SIGINT, signal.default_int_handler)  # in place of the one of the script `corelane`
    if own and getattr(module, "UNWINDS", False):
        unwind_at_sigterm()
    if own and hasattr(module, "NICE"):
        options.nice = module.NICE
    code = module.run(options)
    assert isinstance(code, int)
    return code


if __name__ == "__main__":
    sys.exit(main())
