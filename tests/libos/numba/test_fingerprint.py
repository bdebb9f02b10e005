"""The key of the handler cache: it changes with all that a handler's code is made of, and with nothing else."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from corelane.libos.numba import fingerprint

Load = Callable[[dict[str, str]], Any]
HEAD = "import os, enum, collections, numba, numpy as np\n"


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Writes modules, imports `served` anew and returns it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    names: set[str] = set()

    def forget() -> None:
        for name in [n for n in sys.modules if n.partition(".")[0] in names]:
            del sys.modules[name]

    def loaded(files: dict[str, str]) -> Any:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(HEAD + text)
            top = name.partition("/")[0].removesuffix(".py")
            if top not in names:
                monkeypatch.delitem(sys.modules, top, raising=False)
            names.add(top)
        forget()
        importlib.invalidate_caches()
        return importlib.import_module("served")

    yield loaded
    forget()


def digest(module: Any) -> str:
    return fingerprint.fingerprint(module.h)


HANDLER = "def h(request, reply):\n    return {}\n"
# What a handler is made of: its files, and each with one thing changed.
FAMILY = {
    "its own text": ({"served.py": HANDLER.format(1)}, {"served.py": HANDLER.format(2)}),
    "a global": ({"served.py": "N = 1\n" + HANDLER.format("N")}, {"served.py": "N = 2\n" + HANDLER.format("N")}),
    "the type of a global": (
        {"served.py": "N = 1\n" + HANDLER.format("N")},
        {"served.py": "N = 1.0\n" + HANDLER.format("N")},
    ),
    "a constant from another module": (
        {"served.py": "from other import N\n" + HANDLER.format("N"), "other.py": "N = 1\n"},
        {"other.py": "N = 2\n"},
    ),
    "a constant in another module": (
        {"served.py": "import other\n" + HANDLER.format("other.N"), "other.py": "N = 1\n"},
        {"other.py": "N = 2\n"},
    ),
    "a constant in a module of a package": (
        {
            "served.py": "import pack.other\n" + HANDLER.format("pack.other.N"),
            "pack/__init__.py": "",
            "pack/other.py": "N = 1\n",
        },
        {"pack/other.py": "N = 2\n"},
    ),
    "a module with a name of Python's own": (
        {"served.py": "import code\n" + HANDLER.format("code.N"), "code.py": "N = 1\n"},
        {"code.py": "N = 2\n"},
    ),
    "a function that it calls": (
        {"served.py": "@numba.njit\ndef f(): return 1\n" + HANDLER.format("f()")},
        {"served.py": "@numba.njit\ndef f(): return 2\n" + HANDLER.format("f()")},
    ),
    "a function in another module": (
        {"served.py": "import other\n" + HANDLER.format("other.f()"), "other.py": "@numba.njit\ndef f(): return 1\n"},
        {"other.py": "@numba.njit\ndef f(): return 2\n"},
    ),
    "what a function that it calls is made of": (
        {
            "served.py": "from other import f\n" + HANDLER.format("f()"),
            "other.py": "import third\n@numba.njit\ndef f(): return third.g()\n",
            "third.py": "from fourth import N\n@numba.njit\ndef g(): return N\n",
            "fourth.py": "N = 1\n",
        },
        {"fourth.py": "N = 2\n"},
    ),
    "how a function that it calls is compiled": (
        {"served.py": "@numba.njit\ndef f(): return 1\n" + HANDLER.format("f()")},
        {"served.py": "@numba.njit(fastmath=True)\ndef f(): return 1\n" + HANDLER.format("f()")},
    ),
    "a function that numba keeps on disk itself": (
        {
            "served.py": "from other import f\n" + HANDLER.format("f()"),
            "other.py": "N = 1\n@numba.njit(cache=True)\ndef f(): return N\n",
        },
        {"other.py": "N = 2\n@numba.njit(cache=True)\ndef f(): return N\n"},
    ),
    "a closure": (
        {"served.py": "def make(n):\n    def h(request, reply): return n\n    return h\nh = make(1)\n"},
        {"served.py": "def make(n):\n    def h(request, reply): return n\n    return h\nh = make(2)\n"},
    ),
    "a closure that holds a function": (
        {
            "served.py": "def make(f):\n    def h(request, reply): return f()\n    return h\n"
            "h = make(numba.njit(lambda: 1))\n"
        },
        {
            "served.py": "def make(f):\n    def h(request, reply): return f()\n    return h\n"
            "h = make(numba.njit(lambda: 2))\n"
        },
    ),
    "a closure that holds a module": (
        {
            "served.py": "def make():\n    import other\n    def h(request, reply): return other.N\n"
            "    return h\nh = make()\n",
            "other.py": "N = 1\n",
        },
        {"other.py": "N = 2\n"},
    ),
    "a constant in a module that it hands on": (
        {
            "served.py": "import other\n@numba.njit\ndef f(m): return m.N\n" + HANDLER.format("f(other)"),
            "other.py": "N = 1\n",
        },
        {"other.py": "N = 2\n"},
    ),
    "a constant in a module of a tuple": (
        {
            "served.py": "import other\nT = (other, 1)\n@numba.njit\ndef f(m): return m.N\n"
            + HANDLER.format("f(T[0])"),
            "other.py": "N = 1\n",
        },
        {"other.py": "N = 2\n"},
    ),
    "a constant in a module that it calls by another name": (
        {
            "served.py": "import other\ndef h(request, reply):\n    m = other\n    return m.N\n",
            "other.py": "N = 1\n",
        },
        {"other.py": "N = 2\n"},
    ),
    "a default": (
        {"served.py": "@numba.njit\ndef f(n=1): return n\n" + HANDLER.format("f()")},
        {"served.py": "@numba.njit\ndef f(n=2): return n\n" + HANDLER.format("f()")},
    ),
    "a function that has an address": (
        {"served.py": "@numba.cfunc('int64()')\ndef f(): return 1\n" + HANDLER.format("f()")},
        {"served.py": "@numba.cfunc('int64()')\ndef f(): return 2\n" + HANDLER.format("f()")},
    ),
    "the type of a function that has an address": (
        {"served.py": "@numba.cfunc('uint8(uint8)')\ndef f(n): return n + 200\n" + HANDLER.format("f(100)")},
        {"served.py": "@numba.cfunc('int64(int64)')\ndef f(n): return n + 200\n" + HANDLER.format("f(100)")},
    ),
    "the order of an array's elements": (
        {"served.py": "N = np.zeros((2, 3))\n" + HANDLER.format("N.ravel(order='A')[1]")},
        {"served.py": "N = np.zeros((2, 3), order='F')\n" + HANDLER.format("N.ravel(order='A')[1]")},
    ),
    "an array": (
        {"served.py": "N = np.arange(3)\n" + HANDLER.format("N[1]")},
        {"served.py": "N = np.arange(3) * 2\n" + HANDLER.format("N[1]")},
    ),
    "the type of an array": (
        {"served.py": "N = np.zeros(3, np.int64)\n" + HANDLER.format("N[1]")},
        {"served.py": "N = np.zeros(3, np.uint64)\n" + HANDLER.format("N[1]")},
    ),
    "a numpy number": (
        {"served.py": "N = np.uint64(1)\n" + HANDLER.format("N")},
        {"served.py": "N = np.uint64(2)\n" + HANDLER.format("N")},
    ),
    "a tuple": (
        {"served.py": "N = (1, (2, 3))\n" + HANDLER.format("N[0]")},
        {"served.py": "N = (1, (2, 4))\n" + HANDLER.format("N[0]")},
    ),
    "an enumeration": (
        {"served.py": "class E(enum.IntEnum):\n    A = 1\n" + HANDLER.format("E.A")},
        {"served.py": "class E(enum.IntEnum):\n    A = 2\n" + HANDLER.format("E.A")},
    ),
    "a named tuple": (
        {"served.py": "T = collections.namedtuple('T', 'a b')\n" + HANDLER.format("T(1, 2).a")},
        {"served.py": "T = collections.namedtuple('T', 'b a')\n" + HANDLER.format("T(1, 2).a")},
    ),
    "the names in a named tuple that is a global": (
        {"served.py": "N = collections.namedtuple('T', 'a b')(1, 2)\n" + HANDLER.format("N.a")},
        {"served.py": "N = collections.namedtuple('T', 'b a')(1, 2)\n" + HANDLER.format("N.a")},
    ),
    "the signature of a function that it calls": (
        {"served.py": "@numba.njit('uint8(uint8)')\ndef f(n): return n + 200\n" + HANDLER.format("f(100)")},
        {"served.py": "@numba.njit('int64(int64)')\ndef f(n): return n + 200\n" + HANDLER.format("f(100)")},
    ),
    "a constant that its module makes when it is asked": (
        {"served.py": "import other\n" + HANDLER.format("other.N"), "other.py": "def __getattr__(name): return 1\n"},
        {"other.py": "def __getattr__(name): return 2\n"},
    ),
    "one of two modules of one name": (
        {
            "served.py": "import types\na, b = types.ModuleType('m'), types.ModuleType('m')\na.N, b.N = 1, 1\n"
            + HANDLER.format("a.N + b.N")
        },
        {
            "served.py": "import types\na, b = types.ModuleType('m'), types.ModuleType('m')\na.N, b.N = 1, 2\n"
            + HANDLER.format("a.N + b.N")
        },
    ),
    "an overload": (
        {
            "served.py": "from other import f\n" + HANDLER.format("f()"),
            "other.py": "from numba.extending import overload\ndef f(): pass\n@overload(f)\n"
            "def g(): return lambda: 1\n",
        },
        {"other.py": "from numba.extending import overload\ndef f(): pass\n@overload(f)\ndef g(): return lambda: 2\n"},
    ),
    "an intrinsic": (
        {
            "served.py": "from other import f\n" + HANDLER.format("f()"),
            "other.py": "from numba.extending import intrinsic\nN = 1\n@intrinsic\ndef f(context):\n"
            "    return numba.int64(), lambda c, b, s, a: c.get_constant(numba.int64, N)\n",
        },
        {
            "other.py": "from numba.extending import intrinsic\nN = 2\n@intrinsic\ndef f(context):\n"
            "    return numba.int64(), lambda c, b, s, a: c.get_constant(numba.int64, N)\n",
        },
    ),
}


@pytest.mark.parametrize(("before", "changed"), FAMILY.values(), ids=FAMILY)
def test_it_changes_with(load: Load, before: dict[str, str], changed: dict[str, str]) -> None:
    first = digest(load(before))
    assert digest(load(before)) == first
    assert digest(load({**before, **changed})) != first


# The same, of what no global name leads to. numba forgets no overload, so each is declared in a child.
OVERLOADS = {
    "an overload of a builtin": (
        {
            "served.py": "import other\n" + HANDLER.format("sorted(1)"),
            "other.py": "from numba.extending import overload\n@overload(sorted)\n"
            "def g(n):\n    if isinstance(n, numba.types.Integer): return lambda n: 1\n",
        },
        {
            "other.py": "from numba.extending import overload\n@overload(sorted)\n"
            "def g(n):\n    if isinstance(n, numba.types.Integer): return lambda n: 2\n"
        },
    ),
    "an overload of an operator": (
        {
            "served.py": "import other\n" + HANDLER.format("request @ 1"),
            "other.py": "import operator\nfrom numba.extending import overload\n@overload(operator.matmul)\n"
            "def g(a, b):\n    if isinstance(b, numba.types.Integer): return lambda a, b: 1\n",
        },
        {
            "other.py": "import operator\nfrom numba.extending import overload\n@overload(operator.matmul)\n"
            "def g(a, b):\n    if isinstance(b, numba.types.Integer): return lambda a, b: 2\n"
        },
    ),
    "an overload of a method": (
        {
            "served.py": "import other\n" + HANDLER.format("request.first()"),
            "other.py": "from numba.extending import overload_method\n@overload_method(numba.types.Array, 'first')\n"
            "def g(a): return lambda a: 1\n",
        },
        {
            "other.py": "from numba.extending import overload_method\n@overload_method(numba.types.Array, 'first')\n"
            "def g(a): return lambda a: 2\n"
        },
    ),
}


def digest_in_child(load: Load, files: dict[str, str]) -> bytes:
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(theirs, digest(load(files)).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with open(ours, "rb") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    assert said
    return said


@pytest.mark.parametrize(("before", "changed"), OVERLOADS.values(), ids=OVERLOADS)
def test_it_changes_with_overloads(load: Load, before: dict[str, str], changed: dict[str, str]) -> None:
    first = digest_in_child(load, before)
    assert digest_in_child(load, before) == first
    assert digest_in_child(load, {**before, **changed}) != first


def test_it_changes_with_a_value_that_is_computed(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"served.py": "N = int(os.environ['N'])\n" + HANDLER.format("N")}
    seen = set()
    for value in "121":
        monkeypatch.setenv("N", value)
        seen.add(digest(load(files)))
    assert len(seen) == 2


def test_it_changes_with_a_value_that_python_computes(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    module = load({"served.py": "import time\n" + HANDLER.format("time.timezone")})
    first = digest(module)
    monkeypatch.setattr(time, "timezone", time.timezone + 3600)
    assert digest(module) != first


def test_it_changes_with_versions_and_settings(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load({"served.py": HANDLER.format(1)})
    first = digest(module)
    monkeypatch.setattr(fingerprint, "versions", lambda: ("another numba",))
    second = digest(module)
    monkeypatch.undo()
    monkeypatch.setattr(numba.core.config, "BOUNDSCHECK", 1)
    third = digest(module)
    monkeypatch.undo()
    monkeypatch.setenv("NUMBA_OPT", "1")
    assert len({first, second, third, digest(module)}) == 4
    assert fingerprint.fingerprint(module.h, "uint8") != fingerprint.fingerprint(module.h, "uint16")


def test_it_stays_whatever_else_changes(load: Load) -> None:
    files = {"served.py": "import other\n" + HANDLER.format("other.N"), "other.py": "N = 1\nM = 1\n"}
    first = digest(load(files))
    assert digest(load({**files, "other.py": "# a comment\nM = 2\nN = 1\n"})) == first


def test_modules_and_functions_may_refer_to_each_other(load: Load) -> None:
    files = {
        "served.py": "import other\nN = 1\n@numba.njit\ndef f(n): return other.g(n)\n" + HANDLER.format("f(3)"),
        "other.py": "import served\n@numba.njit\ndef g(n): return served.f(n - 1) if n else served.N\n",
    }
    first = digest(load(files))
    assert digest(load(files)) == first
    assert digest(load({**files, "served.py": files["served.py"].replace("N = 1", "N = 2")})) != first


@pytest.mark.parametrize(
    "text",
    [
        "import ctypes\nN = ctypes.CDLL(None).abs\n",
        "class C:\n    n = 1\nN = C()\n",
        "N = np.array([object()])\n",
        "N = [].append\n",
        "import types\nN = types.ModuleType('any')\nN.__getattr__ = len\n",
    ],
)
def test_what_may_change_unseen_is_not_kept(load: Load, text: str) -> None:
    with pytest.raises(fingerprint.Unknown):
        digest(load({"served.py": text + HANDLER.format("N")}))


def test_what_lies_behind_a_value_that_may_change_unseen_is_reached(load: Load) -> None:
    module = load(
        {
            "served.py": "import ctypes\na = ctypes.CDLL(None).abs\n@numba.njit\ndef z(): return 1\n"
            + HANDLER.format("a(1) + z()")
        }
    )
    assert fingerprint.reached(module.h) == [module.z]


def test_equal_values_give_one_digest_whichever_object_they_are() -> None:
    pair = (1, 2)
    walks = []
    for value in ((pair, pair), ((1, 2), tuple([1, 2][:])), (np.arange(2), np.arange(2))):
        walk = fingerprint._Walk()
        walk.add(value)
        walks.append(walk.digest.hexdigest())
    assert walks[0] == walks[1] != walks[2]


WITHOUT = """
import sys
sys.path.insert(0, sys.argv[1])
import served
from corelane.libos.numba import fingerprint
for _ in range(2):
    print(fingerprint.fingerprint(served.h), "numba" in sys.modules)
    fingerprint.import_numba()
"""


def test_it_needs_no_numba_and_is_the_same_once_we_have_imported_it(tmp_path: Path) -> None:
    """Else a process whose code is on disk would have to import what it does not use, to find that code."""
    (tmp_path / "served.py").write_text("N = 3\ndef h(request, reply):\n    return abs(N + len(request))\n")
    done = subprocess.run([sys.executable, "-c", WITHOUT, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (first, before), (second, after) = (line.split() for line in done.stdout.splitlines())
    assert (before, after) == ("False", "True")
    assert first == second
