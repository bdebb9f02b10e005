"""What can make a request slow or fail, found in a handler's LLVM code, with the line where numba knows it: raising,
allocating, reference counting of Python objects."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
from collections.abc import Callable
from typing import Any

from .compiled import Remark


def _unescape(text: str) -> bytes:
    """The bytes of an LLVM string constant: a backslash is written twice, other odd bytes as two hexadecimal digits."""
    return re.sub(r"\\(\\|[0-9A-Fa-f]{2})", lambda m: "\\" if m[1] == "\\" else chr(int(m[1], 16)), text).encode(
        "latin-1"
    )


def _exceptions(text: str, function: Any) -> list[Remark]:
    """What numba's code may raise, from the pickled exceptions among its constants: 'ValueError: ... (line 12)'."""
    code, found = function.__code__, set()
    raised = set(re.findall(r"store ptr @\.const\.picklebuf\.(\w+),", text))
    for match in re.finditer(r'@\.const\.pickledata\.(\w+) = [^\n]*?c"([^"\n]*)"\n', text):
        if match[1] not in raised:
            continue
        raw = _unescape(match[2])
        try:
            kind, args, where = pickle.loads(raw)
        except Exception:  # what numba keeps there is its own business: a remark less
            continue
        if args and str(args[0]).startswith("missing Environment"):  # print() and its like, which take the GIL as well
            continue
        name = getattr(kind, "__name__", str(kind))
        what = f"may raise {name}: {args[0]}" if args else f"may raise {name}"
        if where is None:
            found.add(Remark(what, code.co_firstlineno))
        elif where[1] == code.co_filename:
            found.add(Remark(f"{what} (line {where[2]})", int(where[2])))
        else:
            found.add(Remark(f"{what} ({where[1]}, line {where[2]})", code.co_firstlineno))
    return sorted(found)


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
    remarks = _exceptions(text, function)
    first = function.__code__.co_firstlineno
    called = set(re.findall(r"\bcall\b[^\n]*?@([\w.$]+)", text))
    if any(name.startswith("PyErr_") for name in called) and not remarks:
        remarks.append(Remark("may raise", first))
    if any(name.startswith(("NRT_MemInfo_alloc", "NRT_Allocate")) for name in called):
        lines = _allocating_lines(function)
        where = f" (line {', '.join(map(str, lines))})" if lines else ""
        remarks.append(Remark(f"allocates memory for a request{where}", lines[0] if lines else first))
    if "numba_gil_ensure" in called:
        remarks.append(Remark("takes the GIL, so it waits for Python code of this process", first))
    return tuple(remarks)
