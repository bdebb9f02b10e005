"""Warnings about compiled functions, at the line of the user's source that they are about."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from .shape import name_of


class HandlerWarning(UserWarning):
    """A compiled handler can do something that costs time or fails a request: raise, allocate, take the GIL."""


def warn_of(function: Any, remarks: Iterable[Any]) -> None:
    """Warn of what the lint found (compile.Remark), wherever the function is bound."""
    plain = getattr(function, "py_func", function)
    registry = plain.__globals__.setdefault("__warningregistry__", {})
    for remark in remarks:
        message = f"handler {name_of(function)} {remark.text}"
        file = plain.__code__.co_filename
        warnings.warn_explicit(message, HandlerWarning, file, remark.line, plain.__module__, registry)
