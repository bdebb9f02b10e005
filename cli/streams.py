"""Standard input, output and error of the command, also where they are closed, full, or of another encoding."""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import Any, TextIO


def prepare() -> None:
    """Give a closed stream's number to /dev/null, so that no socket gets it, and write paths as the bytes they are.

    What is written to a closed standard output fails, like to a full one. A closed standard error takes everything.
    """
    # Read-only in place of the output: writing there is the error that a closed descriptor gives, EBADF.
    for number, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, flags), True)  # it gets the lowest number that is free
    codecs.register_error("corelane", _as_given)
    raw = _Output(1, "w", closefd=False)
    encoding = sys.stdout.encoding if sys.stdout is not None else None
    live = raw.isatty()
    unbuffered = getattr(sys.stdout, "write_through", False)  # python -u, PYTHONUNBUFFERED
    buffer = raw if unbuffered else io.BufferedWriter(raw)
    sys.stdout = io.TextIOWrapper(buffer, encoding, "corelane", line_buffering=live, write_through=unbuffered)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115  for as long as the process lives


class _Output(io.FileIO):
    """Standard output; knows what went wrong, also when who printed did not want to."""

    failed: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.failed = error
            raise


def _as_given(error: UnicodeError) -> tuple[str | bytes, int]:
    """Bytes of a path that are no text come out as they went in (PEP 383); other characters as escapes."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


def tell(text: str) -> None:
    """A line on standard error. Nothing if it cannot be written: there is nobody to tell."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _drop(sys.stderr)


def output_error() -> OSError | None:
    """Why standard output could not be written, None: it could. What is in its buffer is then given up."""
    try:
        sys.stdout.flush()
    except OSError as error:
        failed: OSError | None = error
    else:
        below = getattr(sys.stdout, "buffer", None)
        failed = getattr(getattr(below, "raw", below), "failed", None)
    if failed is not None:
        _drop(sys.stdout)
    return failed


def _drop(stream: TextIO) -> None:
    """Everything of it goes nowhere from now on, so that the interpreter's own flush at the end does not fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
