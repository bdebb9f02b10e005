"""What has not the shape of a handler is refused when it is bound, and warnings point at the user's lines."""

from __future__ import annotations

import functools
import importlib.util
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from corelane import libos
from corelane.libos.handlers.handlers import HandlerWarning
from corelane.libos.handlers.shape import check_python, check_stream
from corelane.runtime.errors import CorelaneError


def falls_off(request: Any, reply: Any) -> None:
    reply[: len(request)] = request


def returns_nothing(request: Any, reply: Any) -> None:
    if len(request) > 3:
        return
    reply[0] = request[0]
    return


def only_request(request: Any) -> None:
    len(request)


def answers_nothing(request: Any, reply: Any) -> None:
    return falls_off(request, reply)


def one_way(request: Any, reply: Any) -> Any:
    if len(request) > 3:
        return 1
    return None


async def is_async(request: Any) -> bytes:
    return bytes(request)


def yields(request: Any) -> Iterator[bytes]:
    yield bytes(request)


class Called:
    def __call__(self, request: Any) -> None:
        len(request)

    def method(self, request: Any, reply: Any) -> None:
        len(request)


SILENT = [
    falls_off,
    returns_nothing,
    only_request,
    Called(),
    Called().method,
    functools.partial(lambda n, request: None, 1),
    lambda request, reply: None,
]


@pytest.mark.parametrize("function", SILENT, ids=lambda f: getattr(f, "__qualname__", type(f).__name__))
def test_a_python_handler_that_never_answers_is_refused(serve: Callable[..., Any], function: Any) -> None:
    with pytest.raises(CorelaneError, match=r"returns nothing, so nobody would ever get an answer \(return .*return 0"):
        serve(libos.udp(9000, compiled=False)(function))


@pytest.mark.parametrize("function", [falls_off, returns_nothing, lambda request, reply: None])
def test_a_compiled_handler_that_never_answers_is_refused(serve: Callable[..., Any], function: Any) -> None:
    with pytest.raises(CorelaneError, match=r"returns nothing, so nobody would ever get an answer \(return .*return 0"):
        serve(libos.udp(9000)(function))


def test_a_compiled_handler_that_may_return_nothing_is_refused() -> None:
    import numba

    noop = numba.njit(lambda: None)
    with pytest.raises(CorelaneError, match=r"returns nothing \(.*, line \d+\) \(return the reply's length"):
        libos.udp(9000)(lambda request, reply: noop()).prepare()
    with pytest.raises(CorelaneError, match=r"and on some way nothing \(.*, line \d+\) \(return the reply's length"):
        libos.udp(9000)(one_way).prepare()


@pytest.mark.parametrize("function", [is_async, yields])
def test_what_does_not_run_to_its_end_is_refused(function: Any) -> None:
    with pytest.raises(CorelaneError, match=r"(is async|yields), and a handler runs to its end"):
        libos.udp(9000, compiled=False)(function).prepare()


@pytest.mark.parametrize(
    ("function", "two"),
    [
        (lambda request: b"x", False),
        (lambda request, reply: 0, True),
        (one_way, True),
        (answers_nothing, True),  # whether a call returns something is seen when it is made
        (lambda request: request if request else None, False),
        (functools.partial(lambda n, request: bytes([n]), 1), False),
        (bytes, False),
    ],
)
def test_what_may_answer_is_taken(function: Any, two: bool) -> None:
    assert check_python(function) == two or function is bytes


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda request: 0, r"called with request, reply, and takes \(request\) .*compiled=False"),
        (lambda request, reply, state: 0, r"takes \(request, reply, state\) .*state=array"),
        (lambda: 0, r"takes \(\) \(write def lambda\(request, reply\), which returns the reply's length"),
        (lambda a, b, c, d: 0, r"takes \(a, b, c, d\)"),
        (lambda request, *, reply: 0, r"takes \(request, \*, reply\)"),
        (lambda *both: 0, r"called with request, reply, and takes \(\*both\)"),
        (lambda request, reply, **more: 0, r"takes \(request, reply, \*\*more\)"),
        (lambda request, reply, more=0: 0, r"takes \(request, reply, more=0\)"),
        (functools.wraps(one_way)(lambda *both: one_way(*both)), r"takes \(\*both\)"),
        (bytes, r"type is no function that numba compiles .*compiled=False"),
        (Called(), r"Called is no function that numba compiles"),
        (Called().method, r"method is no function that numba compiles"),
        (functools.partial(one_way), r"partial is no function that numba compiles"),
    ],
)
def test_a_compiled_handler_of_another_shape_is_refused(function: Any, says: str) -> None:
    with pytest.raises(CorelaneError, match=says):
        libos.udp(9000)(function).prepare()


@pytest.mark.parametrize("classify", [lambda: 0, lambda request, more: 0, bytes, falls_off, lambda request: None])
def test_a_classifier_of_another_shape_is_refused(classify: Any) -> None:
    with pytest.raises(CorelaneError, match="compile classifier"):
        libos.udp(9000, classify=classify, targets_us=(1,))(lambda request, reply: 0).prepare()


SERVED = """\
from corelane import libos
import numpy as np

def helper(x):
    return x

@libos.udp(9000)
def raises(request, reply):
    if request[0] == 0:
        raise ValueError("nought")
    return 1

@libos.udp(9001)
def allocates(request, reply):
    n = len(request)
    reply[:n] = np.zeros(n, np.uint8)
    return n
"""


@pytest.mark.parametrize("by", ["serve", "bind", "prepare"])
def test_a_warning_points_at_the_line_in_the_user_s_file(tmp_path: Path, serve: Callable[..., Any], by: str) -> None:
    path = tmp_path / "served.py"
    path.write_text(SERVED)
    spec = importlib.util.spec_from_file_location("served", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        if by == "serve":
            serve(module.raises, module.allocates)
        elif by == "bind":
            runtime = serve(module.raises).runtime
            runtime.bind(module.allocates)
        else:
            module.raises.prepare()
            module.allocates.prepare()
    assert {w.category for w in seen} == {HandlerWarning}
    assert {(w.filename, w.lineno) for w in seen} == {(str(path), 10), (str(path), 16)}


WRONG = """import numpy as np
from corelane import libos
from corelane.apps.http.handlers import route

def helper(x):
    return x.no_such

def handler(request, reply):
    n = len(request)
    return n + request.no_such  # line 10

def text(request, reply):
    return "text"  # what is wrong with a result is said of its function, in line 12

def tick():
    x = 1
    x.append(2)  # line 17

def page(target, body, reply):
    reply["a"] = 1  # line 20
    return 200, 0

def work(n):
    return n.no_such  # line 24

def reverse(request, reply):
    reply[::-1] = request  # line 27
    return 1

def shorts(request, reply):
    reply[:2] = np.zeros(2, np.int16)  # line 31
    return 2
"""

WRONG_LINES = {
    "handler": (lambda libos, m, runtime: runtime.bind(libos.udp(9000)(m.handler)), 10),
    "stream": (lambda libos, m, runtime: runtime.bind(libos.tcp(9000)(m.handler)), 10),
    "result": (lambda libos, m, runtime: runtime.bind(libos.udp(9000)(m.text)), 12),
    "periodic": (lambda libos, m, runtime: runtime.bind(libos.every(ms=1)(m.tick)), 17),
    "HTTP": (lambda libos, m, runtime: m.route("/")(m.page)._compile("serve /", runtime), 20),
    "batch": (lambda libos, m, runtime: runtime.batch(m.work, 1), 24),
    "step": (lambda libos, m, runtime: libos.udp(9000)(m.reverse).prepare(), 27),
    "copy": (lambda libos, m, runtime: libos.udp(9000)(m.shorts).prepare(), 31),
}


@pytest.mark.parametrize(("ask", "line"), WRONG_LINES.values(), ids=WRONG_LINES)
def test_an_error_of_the_compiler_names_the_line_in_the_user_s_file(
    tmp_path: Path, serve: Callable[..., Any], ask: Callable[..., Any], line: int
) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(WRONG)
    spec = importlib.util.spec_from_file_location("wrong", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(CorelaneError) as told:
        ask(libos, module, serve().runtime)
    assert re.search(rf'wrong\.py("?, line | \(){line}\b', str(told.value)), told.value


def test_a_stream_handler_that_returns_nothing_is_told_what_to_return() -> None:
    """It has no way to be silent but to take what came: a lone 0 is no result of its."""

    def nothing(data: Any) -> None:
        len(data)

    with pytest.raises(CorelaneError, match=r"\(return how many bytes it took, and the answer\)$"):
        check_stream(nothing)
