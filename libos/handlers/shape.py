"""Whether a Python function has the shape of a handler: told when it is bound, not by requests that nobody answers."""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

from ...runtime.errors import CorelaneError


def name_of(function: Any) -> str:
    """As errors and warnings call it."""
    return str(getattr(function, "__qualname__", None) or repr(function))


def takes(function: Callable[..., Any], n: int) -> bool:
    """Whether it can be called with n values; True if nothing is known of it."""
    try:
        inspect.signature(function).bind(*range(n))
    except TypeError:
        return False
    except ValueError:  # built in
        return True
    return True


def compiles_with(function: types.FunctionType, n: int) -> bool:
    """Whether numba compiles it for n values: it has n parameters, and none that has a default or takes the rest."""
    code = function.__code__
    more = code.co_kwonlyargcount or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    return code.co_argcount == n and not more


def check_compiled(what: str, function: Any, names: tuple[str, ...], returns: str) -> None:
    """Raise CorelaneError unless numba can compile it as function(*names) -> returns.

    what: "handler", say. Its types numba looks at, when it compiles. returns: "" if it may return nothing.
    """
    wanted = f"write def {getattr(function, '__name__', 'it').strip('<>')}({', '.join(names)})"
    wanted += f", which returns {returns}" if returns else ""
    doing = f"compile {what} {name_of(function)}"
    if not inspect.isfunction(function):
        why = f"{type(function).__name__} is no function that numba compiles"
        raise CorelaneError(doing, why, f"{wanted}, or run it as plain Python with compiled=False")
    if not compiles_with(function, len(names)):
        hint = wanted
        if names == ("state",) or not names:
            hint += ", where every(state=array) gives it a state"
        elif len(names) == 2 and takes(function, 1):
            bytes_of = "data that returns a number and" if names[0] == "data" else "request that returns"
            hint += f", or say compiled=False: plain Python may be a function of the {bytes_of} bytes"
        elif len(names) == 2 and takes(function, 3):
            made_by = "tcp" if names[0] == "data" else "udp"
            hint += f", or give it a state: @libos.{made_by}(port, state=array)"
        own = inspect.signature(function, follow_wrapped=False)
        raise CorelaneError(doing, f"it is called with {', '.join(names) or 'nothing'}, and takes {own}", hint)
    if returns:
        _check_answers(doing, function, returns, may_be_silent=names[0] == "request")


def check_periodic(function: Any, with_state: bool) -> None:
    """Raise CorelaneError unless plain Python can call it with its state, or with nothing."""
    doing = f"make periodic work {name_of(function)}"
    if not takes(function, int(with_state)):
        called = "its state" if with_state else "nothing"
        hint = "write def tick(), or def tick(state) and every(ms=..., state=...)"
        raise CorelaneError(doing, f"it is called with {called}, and takes {inspect.signature(function)}", hint)
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise CorelaneError(doing, "it is async or yields, and each call runs to its end", "write a plain def")


def check_python(function: Any) -> bool:
    """Whether it is handler(request, reply), and not handler(request). Raises CorelaneError unless it is either."""
    doing = f"make handler {name_of(function)}"
    two = takes(function, 2)
    if not two and not takes(function, 1):
        raise CorelaneError(
            doing,
            f"{name_of(function)}{inspect.signature(function)} takes neither (request, reply) nor (request)",
            "write def handler(request), which returns the reply as bytes",
        )
    _check_answers(doing, function, "the reply's length" if two else "the reply as bytes", may_be_silent=True)
    return two


def check_python_batch(function: Any) -> None:
    """Raise CorelaneError unless it is handler(requests)."""
    doing = f"make batch handler {name_of(function)}"
    returns = "a list with a reply as bytes, or None, for each request"
    if not takes(function, 1):
        why = f"{name_of(function)}{inspect.signature(function)} does not take (requests)"
        raise CorelaneError(doing, why, f"write def handler(requests), which returns {returns}")
    _check_answers(doing, function, returns, may_be_silent=False)


def check_stream(function: Any) -> bool:
    """Whether it is handler(data, connection), and not handler(data). Raises CorelaneError unless it is either."""
    doing = f"make handler {name_of(function)}"
    one = takes(function, 1)
    if not one and not takes(function, 2):
        raise CorelaneError(
            doing,
            f"{name_of(function)}{inspect.signature(function)} takes neither (data) nor (data, connection)",
            "write def handler(data), which returns how many bytes it took, and the answer",
        )
    _check_answers(doing, function, "how many bytes it took, and the answer", may_be_silent=False)
    return not one


def check_http(function: Any) -> None:
    """Raise CorelaneError unless it is handler(request). It may yield its answer, or answer with nothing."""
    doing = f"make handler {name_of(function)}"
    returns = "the body, (status, body) or (status, headers, body)"
    if not takes(function, 1):
        why = f"{name_of(function)}{inspect.signature(function)} does not take (request)"
        raise CorelaneError(doing, why, f"write def handler(request), which returns {returns}")
    plain = _plain(function)
    if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
        hint = f"write a plain def that returns {returns}"
        raise CorelaneError(doing, "it is async, and a handler runs to its end", hint)


def _plain(function: Any) -> Any:
    """The function that a callable stands for, as far as it can be followed."""
    plain = inspect.unwrap(function)
    while isinstance(plain, functools.partial):
        plain = plain.func
    if not inspect.isroutine(plain) and not isinstance(plain, type):
        plain = getattr(plain, "__call__", plain)  # noqa: B004 (the method itself is looked at)
    return getattr(plain, "__func__", plain)


def _check_answers(doing: str, function: Any, returns: str, *, may_be_silent: bool) -> None:
    """may_be_silent: it may return 0 for a request that gets no answer."""
    plain = _plain(function)
    if not inspect.isfunction(plain):
        return
    if inspect.iscoroutinefunction(plain) or inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        kind = "yields" if inspect.isgeneratorfunction(plain) else "is async"
        raise CorelaneError(
            doing, f"it {kind}, and a handler runs to its end", f"write a plain def that returns {returns}"
        )
    if _returns_only_none(plain):
        raise CorelaneError(
            doing,
            "it returns nothing, so nobody would ever get an answer",
            f"return {returns}" + (", or `return 0` if no request is to be answered" if may_be_silent else ""),
        )


def _returns_only_none(function: Any) -> bool:
    """Whether it has a way to return, and each gives None as a constant. One that only raises has none."""
    before, found = None, False
    for at in dis.get_instructions(function):
        if at.opname == "RETURN_CONST":  # of Python 3.12 and 3.13
            if at.argval is not None:
                return False
            found = True
        elif at.opname == "RETURN_VALUE":
            constant = before is not None and before.opname == "LOAD_CONST" and before.argval is None
            if not constant or at.is_jump_target:
                return False
            found = True
        before = at
    return found
