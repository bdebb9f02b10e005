"""Command lines: their parser, and the error that one is wrong."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from ..runtime.errors import CorelaneError


class WrongUsage(CorelaneError):
    """The command line was wrong: exit code 2."""


class Parser(argparse.ArgumentParser):
    """argparse, with errors of one sentence and no usage dump."""

    def error(self, message: str) -> NoReturn:
        raise WrongUsage(self.prog, message, f"see {self.prog} --help")


@contextmanager
def words_are_wrong() -> Iterator[None]:
    """What is refused in here are words of the command line, whatever found out: a CorelaneError becomes WrongUsage."""
    try:
        yield
    except CorelaneError as error:
        raise WrongUsage(error.what, error.why, error.hint, error.errno) from error
