"""Requests and replies of your own: two Python functions, compiled by numba and called from the threads of load.

    def request(out, number):      # write request `number` into out (uint8); return its length
    def reply(data, number):       # what came so far (uint8): how many bytes of it are the right answer to request
                                   # `number`; 0 while more must come; -1 if it is no right answer

Over TCP answers come in the order of the requests, and `data` may have the next answer behind the first. Over UDP it is
one datagram. Without `reply`, the answer must be the request itself. Importing this imports numba.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types

from ...libos.handlers.shape import name_of, takes
from ...runtime.errors import CorelaneError, plain_text
from .sockload.sockload import Functions

ROOM = 65536
_CALLED = "it is called as {}(array of uint8, number), and returns an integer"
_SIGNATURE = types.int64(types.uint64, types.CPointer(types.uint8), types.int64)


def _dispatcher(function: Callable[..., Any], what: str) -> Any:
    """As numba has it. CorelaneError for what cannot be called with an array and a number."""
    python = getattr(function, "py_func", function)
    written = inspect.isfunction(python)
    if written and takes(python, 2):
        return numba.njit(python) if python is function else function
    why = f"it takes {inspect.signature(python)}" if written else f"{type(python).__name__} is not written in Python"
    raise CorelaneError(f"compile {name_of(python)}", why, _CALLED.format(what))


def _compiled(function: Callable[..., Any], what: str) -> Any:
    dispatcher = _dispatcher(function, what)

    def call(number: Any, data: Any, length: Any) -> Any:
        return dispatcher(numba.carray(data, (length,)), number)

    try:
        return numba.cfunc(_SIGNATURE)(call)
    except Exception as error:  # numba's own kinds, and what else its passes raise for what they do not expect
        first = plain_text(error).strip().splitlines()
        why = first[-1] if first else type(error).__name__
        raise CorelaneError(f"compile {name_of(dispatcher.py_func)}", why, _CALLED.format(what)) from error


def compiled(request: Callable[..., Any], reply: Callable[..., Any] | None = None) -> Functions:
    """Both functions as C sees them. CorelaneError if numba cannot compile one."""
    asking = _dispatcher(request, "request")

    def same(data: Any, number: Any) -> Any:
        expected = np.empty(ROOM, dtype=np.uint8)
        length = asking(expected, number)
        for i in range(min(length, len(data))):
            if data[i] != expected[i]:
                return -1
        return length if len(data) >= length else 0

    ask = _compiled(asking, "request")
    answer = _compiled(reply if reply is not None else same, "reply")
    return Functions(ask.address, answer.address, (ask, answer))
