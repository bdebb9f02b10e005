"""Options of `corelane run` about what is written down of requests, and its configuration's [trace]."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from ..runtime.tracing import TRACE_MODES, Trace, limit_of
from .usage import WrongUsage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is written down of requests, for corelane trace")
    group.add_argument(
        "--trace",
        choices=TRACE_MODES,
        help="which of them (default sampled: some, and the slowest)",
    )
    group.add_argument(
        "--slo",
        action="append",
        default=[],
        type=_slo,
        metavar="LIMIT",
        help="a limit of latency: 1ms, which no request may take longer than, or p99=50us; udp:9000:p99=50us is of "
        "one service alone. Where it is broken the trace around that is kept on disk, for corelane trace last",
    )
    group.add_argument(
        "--trace-folder", metavar="DIR", help="where it is kept (default: corelane/traces among the user's state)"
    )
    group.add_argument("--config", metavar="FILE", help="TOML file; its [trace] holds where no option says otherwise")


def _slo(text: str) -> str:
    try:
        return limit_of(text).text
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: expected {error}") from None


def is_default(options: argparse.Namespace) -> bool:
    """Whether nothing is asked for that only Python does."""
    return of(options) == Trace()


def of(options: argparse.Namespace) -> Trace:
    """What the command line says, else the configuration. ConfigError: of that; WrongUsage: they do not go together."""
    from pathlib import Path

    trace = Trace()
    if options.config is not None:
        from ..runtime import config

        trace = config.load(options.config).trace
    said: dict[str, Any] = {"mode": options.trace} if options.trace else {}
    said |= {"slo": tuple(options.slo)} if options.slo else {}
    said |= {"folder": str(Path(options.trace_folder).absolute())} if options.trace_folder else {}
    made = dataclasses.replace(trace, **said)
    try:
        made.check()
    except ValueError as error:
        raise WrongUsage("--slo" if options.slo else "--trace", str(error)) from error
    return made
