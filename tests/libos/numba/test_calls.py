"""What compiled code may call: the code, its stubs and the table in docs/handlers.md say the same."""

from __future__ import annotations

import ast
import ctypes
import functools
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.extending import _Intrinsic

from corelane.libos.handlers.compile import compile_periodic
from corelane.libos.numba import atomics, calls

ROOT = Path(__file__).resolve().parents[3]
BLOCKS = "Blocks the uthread."


@functools.cache
def stub_of(module: ModuleType) -> dict[str, ast.FunctionDef]:
    assert module.__file__
    tree = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def parameters(node: ast.FunctionDef) -> str:
    names = [a.arg for a in node.args.args]
    for name, default in zip(reversed(names), reversed(node.args.defaults), strict=False):
        names[names.index(name)] = f"{name}={ast.unparse(default)}"
    return ", ".join([*names, f"*{node.args.vararg.arg}"] if node.args.vararg else names)


@functools.cache
def table() -> dict[str, tuple[str, str, str]]:
    """name: parameters, result, blocks; of both tables."""
    text = (ROOT / "docs" / "handlers.md").read_text().partition("## What compiled code may call")[2]
    rows = re.findall(r"^\| `(\w+)\((.*?)\)` \| (.*?) \| (yes|no) \|$", text, re.M)
    return {name: (called, result, blocks) for name, called, result, blocks in rows}


def in_code(module: ModuleType, name: str) -> tuple[list[str] | int, Any]:
    """Parameters, or how many, and the result's type if the code declares one."""
    value = getattr(module, name)
    if isinstance(value, numba.types.ExternalFunction):
        return len(value.sig.args), value.sig.return_type
    function = value._defn if isinstance(value, _Intrinsic) else value.py_func
    names = [
        f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name if p.default is p.empty else f"{p.name}={p.default}"
        for p in inspect.signature(function).parameters.values()
    ]
    return (names[1:] if isinstance(value, _Intrinsic) else names), None


@pytest.mark.parametrize("module", [calls, atomics])
def test_code_stub_and_table_have_the_same_names(module: ModuleType) -> None:
    assert list(stub_of(module)) == [n for n in table() if n in module.__all__]
    assert sorted(stub_of(module)) == sorted(module.__all__)


def test_the_table_has_nothing_else() -> None:
    assert set(table()) == {*calls.__all__, *atomics.__all__}


@pytest.mark.parametrize(("module", "name"), [(m, n) for m in (calls, atomics) for n in m.__all__])
def test_code_stub_and_table_agree(module: ModuleType, name: str) -> None:
    stub, (called, result, blocks) = stub_of(module)[name], table()[name]
    assert parameters(stub) == called
    there, returns = in_code(module, name)
    assert there == (len(stub.args.args) if isinstance(there, int) else parameters(stub).split(", ") if called else [])
    assert stub.returns
    said = ast.unparse(stub.returns)
    assert (said == "None") == (result == "nothing")
    if returns is not None:
        assert (said == "None") == (returns == numba.types.void)
    text = ast.get_docstring(stub)
    assert text
    assert (BLOCKS in text) == (blocks == "yes")


@numba.njit
def nothing() -> int:
    return 0


def type_of(kind: str) -> Any:
    """numba's, of what a stub says."""
    if kind == "_Name":
        return numba.types.literal("cubic")
    if kind == "_Function":
        return numba.typeof(nothing)
    value = {
        "_Int": np.uint64(0),
        "_Bytes": np.zeros(16, np.uint8),
        "_Words": np.zeros(4, np.uint64),
        "_Numbers": np.zeros(32, np.uint32),
        "_Channels": (np.uint64(0), np.uint64(0)),
        "_Views": (np.zeros(16, np.uint8), np.zeros(4, np.uint64)),
    }[kind]
    return numba.typeof(value)


@pytest.mark.parametrize("module", [calls, atomics])
def test_what_the_stub_says_compiles_and_returns_that(module: ModuleType) -> None:
    """In one function, since each takes as long to compile as what it calls; numba's errors have the line, by name."""
    lines, types = [], []
    for name, stub in stub_of(module).items():
        kinds = [ast.unparse(a.annotation) for a in stub.args.args if a.annotation]
        given = [f"a[{len(types) + i}]" for i in range(len(kinds))]
        lines.append(f"    r_{name} = {name}({', '.join(given)})")
        types += [type_of(kind) for kind in kinds]
    results = ", ".join(f"r_{name}" for name in stub_of(module))
    scope = {name: getattr(module, name) for name in stub_of(module)}
    exec("\n".join(["def use(a):", *lines, f"    return {results}"]), scope)
    compiled = numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)(scope["use"])
    compiled.compile((numba.types.Tuple(types),))
    (overload,) = compiled.overloads.values()
    for (name, stub), returned in zip(stub_of(module).items(), overload.signature.return_type, strict=True):
        assert stub.returns
        said = ast.unparse(stub.returns)
        if said == "None":
            assert returned == numba.types.none, name
        elif said == "bool":
            assert returned == numba.types.boolean, name
        elif said == "_Bytes":
            assert isinstance(returned, numba.types.Array), name
        else:
            assert isinstance(returned, numba.types.Integer), name


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint64, np.int64])
def test_compare_and_set_says_whether_it_was_stored(dtype: Any) -> None:
    state = np.array([0, 0, 0, 0], dtype)

    def work(state: Any) -> int:
        first = atomics.compare_and_set(state, 0, 0, 5)  # the element before is 0, and it is stored
        second = atomics.compare_and_set(state, 0, 0, 6)
        state[1], state[2] = first, second
        state[3] = atomics.cmpxchg(state, 0, 5, 7)
        return 0

    made = compile_periodic(work, state, cache=False)
    ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(made.address)(state.ctypes.data)
    assert state.tolist() == [7, 1, 0, 5]
