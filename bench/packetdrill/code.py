"""Assertions about a connection's TCP_INFO, in %{ }%: a small part of Python, evaluated by walking its syntax tree.

    assert tcpi_snd_cwnd == 10, tcpi_snd_cwnd
    assert (tcpi_options & TCPI_OPT_SACK) != 0

Known are `assert`, assignments to plain names, `pass`, `print(...)` (which prints nothing), numbers, strings, names,
arithmetic, comparisons, `and`, `or`, `not`, conditions, tuples, and the functions abs, min, max, int. All else is
refused by name. No name of Python's is within reach, and a number has at most 128 bits. A backslash at the end of a
line joins it to the next one, as in Python, also where no other follows.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from .tokens import NotSupported

_MOST = 1 << 128
_LONGEST = 10_000  # characters; what is longer might be nested deeper than Python's own parser goes

# linux/tcp.h: enum tcp_ca_state, TCPI_OPT_*; net/tcp_states.h.
CONSTANTS: dict[str, int] = {
    **{f"TCP_CA_{n}": i for i, n in enumerate(("Open", "Disorder", "CWR", "Recovery", "Loss"))},
    **{
        f"TCP_{n}": i
        for i, n in enumerate(
            (
                *("ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE"),
                *("CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING", "NEW_SYN_RECV"),
            ),
            1,
        )
    },
    "TCPI_OPT_TIMESTAMPS": 1,
    "TCPI_OPT_SACK": 2,
    "TCPI_OPT_WSCALE": 4,
    "TCPI_OPT_ECN": 8,
    "TCPI_OPT_ECN_SEEN": 16,
    "TCPI_OPT_SYN_DATA": 32,
    "TCPI_OPT_USEC_TS": 64,
}

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.RShift: operator.rshift,
    ast.LShift: lambda a, b: a << min(b, 64),
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"abs": abs, "min": min, "max": max, "int": int}


def _parsed(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of backslashes in strings, which mean themselves
        return ast.parse(re.sub(r"\\\n[ \t]*", " ", text).strip())


def needs(text: str) -> list[str]:
    """What the code needs that is not here, in words; the fields of TCP_INFO that it reads are not among them."""
    if len(text) > _LONGEST:
        return [f"code of more than {_LONGEST} characters"]
    try:
        tree = _parsed(text)
    except SyntaxError as error:
        return [f"code that is not Python: {error.msg}"]
    except (ValueError, RecursionError, MemoryError):  # a NUL; nested too deep
        return ["code that is not Python"]
    return sorted({f"{_of(node)} in code" for node in ast.walk(tree) if not _known(node)})


def fields(text: str) -> set[str]:
    """The names that the code reads and does not set itself: of TCP_INFO, if nothing is wrong."""
    names = {node.id for node in ast.walk(_parsed(text)) if isinstance(node, ast.Name)}
    return names - assigned(text) - CONSTANTS.keys() - _FUNCTIONS.keys() - {"print"}


def assigned(text: str) -> set[str]:
    """The names that the code sets."""
    return {n.id for n in ast.walk(_parsed(text)) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def run(text: str, info: Mapping[str, int], kept: dict[str, Any] | None = None) -> str | None:
    """What failed, in words, or None. info: tcpi_... to value. kept: what the script's code has set so far, and sets.
    Raises NotSupported for names that are not there."""
    kept = {} if kept is None else kept
    names = {**CONSTANTS, **kept, **info}
    try:
        wrong = _run(text, names)
    except RecursionError:
        raise NotSupported("code that is nested so deep") from None
    kept |= {name: names[name] for name in assigned(text) if name in names}
    return wrong


def _run(text: str, names: dict[str, Any]) -> str | None:
    for statement in _parsed(text).body:
        match statement:
            case ast.Assert(test, message):
                if not _value(test, names):
                    said = "" if message is None else f" says {_value(message, names)!r};"
                    return f"{ast.unparse(statement.test)}:{said} {_shown(test, names)}"
            case ast.Assign([ast.Name(name)], value):
                names[name] = _value(value, names)
            case ast.Pass() | ast.Expr(ast.Call(ast.Name("print"))):
                pass
            case _:
                raise NotSupported(f"{_of(statement)} in code")
    return None


def _of(node: ast.AST) -> str:
    return type(node).__name__


def _known(node: ast.AST) -> bool:
    match node:
        case ast.Call(ast.Name(name), _, []):
            return name in _FUNCTIONS or name == "print"
        case ast.Assign([ast.Name()]):
            return True
        case ast.BinOp(_, op, _):
            return type(op) in _BINARY
        case ast.Constant(value):
            return isinstance(value, int | float | str | bool | None)
    plain: tuple[type[ast.AST], ...] = (ast.Module, ast.Assert, ast.Expr, ast.Pass, ast.Name, ast.Tuple, ast.List)
    plain += (ast.BoolOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.expr_context, ast.boolop, ast.unaryop, ast.cmpop)
    return isinstance(node, (*plain, ast.operator))


def _shown(test: ast.expr, names: Mapping[str, Any]) -> str:
    read = sorted({n.id for n in ast.walk(test) if isinstance(n, ast.Name) and n.id in names and n.id not in CONSTANTS})
    return ", ".join(f"{name} is {names[name]}" for name in read) or "it is false"


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    value = _evaluate(node, names)
    if isinstance(value, int) and abs(value) > _MOST:
        raise NotSupported("numbers beyond 128 bits in code")
    return value


def _evaluate(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value):
            return value
        case ast.Name(name):
            if name not in names:
                raise NotSupported(f"the field {name} of TCP_INFO")
            return names[name]
        case ast.Tuple(items) | ast.List(items):
            return tuple(_value(item, names) for item in items)
        case ast.BoolOp(op, values):
            found = (_value(value, names) for value in values)
            return all(found) if isinstance(op, ast.And) else any(found)
        case ast.UnaryOp(op, operand):
            return _tried(node, lambda: _UNARY[type(op)](_value(operand, names)))
        case ast.IfExp(test, body, orelse):
            return _value(body if _value(test, names) else orelse, names)
        case ast.Call(ast.Name(name), arguments, []) if name in _FUNCTIONS:
            return _tried(node, lambda: _FUNCTIONS[name](*(_value(a, names) for a in arguments)))
        case ast.BinOp() | ast.Compare():
            return _tried(node, lambda: _operation(node, names))
    raise NotSupported(f"{_of(node)} in code")


def _formatted(node: ast.BinOp, left: Any, right: Any) -> str:
    """`'rtt=%d us' % tcpi_rtt`: text without widths, which could be as large as memory."""
    if not isinstance(node.op, ast.Mod) or not isinstance(left, str) or re.search(r"%[^sdrxXu%]", left):
        raise NotSupported(f"{ast.unparse(node)} in code")
    return str(left % right)


def _tried(node: ast.expr, operation: Callable[[], Any]) -> Any:
    """What it gives; what is wrong with it is refused."""
    try:
        return operation()
    except (TypeError, ValueError, ArithmeticError) as error:
        raise NotSupported(f"{ast.unparse(node)} in code: {error}") from error


def _operation(node: ast.BinOp | ast.Compare, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.BinOp):
        if type(node.op) not in _BINARY:
            raise NotSupported(f"{_of(node.op)} in code")
        left, right = _value(node.left, names), _value(node.right, names)
        if isinstance(left, str) or isinstance(right, str):
            return _formatted(node, left, right)
        if isinstance(left, tuple) or isinstance(right, tuple):
            raise NotSupported(f"{ast.unparse(node)} in code")
        return _BINARY[type(node.op)](left, right)
    left = _value(node.left, names)
    for op, right_node in zip(node.ops, node.comparators, strict=True):
        right = _value(right_node, names)
        if not _COMPARE[type(op)](left, right):
            return False
        left = right
    return True
