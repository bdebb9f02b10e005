"""What can make a request slow or fail, found in a handler's LLVM code, with the line where numba knows it: raising,
allocating, reference counting of Python objects."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from typing import Any

from ..numba.raises import raises
from .compiled import Remark


def _exceptions(text: str, function: Any, allocates: bool) -> list[Remark]:
    """What numba's code may raise, from the exceptions among its constants: 'ValueError: ... (line 12)'. Those of
    allocations, which have no line, are not said besides what is said of these."""
    code, remarks = function.__code__, set()
    for found in raises(text):
        what = f"may raise {found.words}"
        if not found.file:
            if not allocates:
                remarks.add(Remark(what, code.co_firstlineno))
        elif found.file == code.co_filename:
            remarks.add(Remark(f"{what} (line {found.line})", found.line))
        else:
            remarks.add(Remark(f"{what} ({found.file}, line {found.line})", code.co_firstlineno))
    return sorted(remarks)


def _allocating_lines(function: Callable[..., Any]) -> list[int]:
    """Lines of calls that are known to allocate, as far as the source tells."""
    try:
        source, first = inspect.getsourcelines(function)
        tree = ast.parse(inspect.cleandoc("".join(source)))
    except (OSError, SyntaxError, TypeError):
        return []
    names = {"empty", "zeros", "ones", "full", "array", "arange", "copy", "concatenate", "list", "dict", "bytes", "str"}
    lines = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Dict | ast.ListComp | ast.JoinedStr):
            lines.add(first + node.lineno - 1)
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in names:
                lines.add(first + node.lineno - 1)
    return sorted(lines)


def lint(text: str, function: Callable[..., Any]) -> tuple[Remark, ...]:
    """Remarks on a handler's LLVM code: what may raise, allocate or need the GIL."""
    first = function.__code__.co_firstlineno
    called = set(re.findall(r"\bcall\b[^\n]*?@([\w.$]+)", text))
    allocates = any(name.startswith(("NRT_MemInfo_alloc", "NRT_Allocate")) for name in called)
    remarks = _exceptions(text, function, allocates)
    if any(name.startswith("PyErr_") for name in called) and not remarks:
        remarks.append(Remark("may raise", first))
    if allocates:
        lines = _allocating_lines(function)
        where = f" (line {', '.join(map(str, lines))})" if lines else ""
        remarks.append(Remark(f"allocates memory for a request{where}", lines[0] if lines else first))
    if "numba_gil_ensure" in called:
        remarks.append(Remark("takes the GIL, so it waits for Python code of this process", first))
    return tuple(remarks)
