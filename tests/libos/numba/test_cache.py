"""Compiled handlers on disk: what is found again, what is a miss, and that a miss is all that can happen."""

from __future__ import annotations

import ctypes
import hashlib
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from corelane.libos.handlers.compile import compile_handler
from corelane.libos.handlers.compiled import CompiledHandler
from corelane.libos.numba import cache


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("CORELANE_CACHE_DIR", str(tmp_path))
    return tmp_path / "handlers" / cache.build_id()


def ask(made: CompiledHandler, *request: int) -> tuple[int, bytes]:
    """Call a handler as C does."""
    entry = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p, ctypes.c_int64] * 2, ctypes.c_void_p)(made.address)
    reply = (ctypes.c_uint8 * 16)()
    length = entry((ctypes.c_uint8 * len(request))(*request), len(request), reply, 16, None)
    return length, bytes(reply)[: max(length, 0)]


def handler_of(n: int) -> Callable[..., Any]:
    def handler(request: Any, reply: Any) -> int:
        if request[0] == 0:
            raise ValueError("nought")
        reply[0] = request[0] + n
        return 1

    return handler


def only(folder: Path) -> Path:
    (file,) = folder.glob("*")
    return file


def test_a_handler_is_found_again_with_its_remarks(folder: Path) -> None:
    first, again = compile_handler(handler_of(3)), compile_handler(handler_of(3))
    assert (first.from_cache, again.from_cache) == (False, True)
    assert ask(first, 4) == ask(again, 4) == (1, b"\7")
    assert first.remarks == again.remarks
    assert "may raise ValueError: nought" in first.remarks[0].text
    assert not compile_handler(handler_of(3), cache=False).from_cache


def test_another_value_is_another_handler(folder: Path) -> None:
    for n in (3, 5, 3):
        assert ask(compile_handler(handler_of(n)), 4) == (1, bytes([4 + n]))
    assert len(list(folder.glob("*"))) == 2


def spoil(how: str, file: Path) -> None:
    content = bytearray(file.read_bytes())
    if how == "empty":
        content.clear()
    elif how == "cut":
        del content[len(content) // 2 :]
    elif how == "cut in the head":
        del content[10:]
    elif how == "longer":
        content += b"\0"
    elif how == "a bit":
        content[len(content) // 3] ^= 4
    elif how == "another digest":
        content[25] ^= 1
    else:
        content[:] = b"\x80\x04garbage." * 1000
    file.write_bytes(content)


def test_a_file_that_is_not_whole_is_a_miss_and_is_replaced(folder: Path) -> None:
    compile_handler(handler_of(3))
    for how in ("empty", "cut", "cut in the head", "longer", "a bit", "another digest", "garbage"):
        spoil(how, only(folder))
        made = compile_handler(handler_of(3))
        assert not made.from_cache, how
        assert ask(made, 4) == (1, b"\7")
        assert compile_handler(handler_of(3)).from_cache


def test_a_file_with_a_right_digest_of_something_else_is_a_miss(folder: Path) -> None:
    compile_handler(handler_of(3))
    rest = pickle.dumps((("a remark",), pickle.dumps(("not", "what", "numba", "keeps"))))
    only(folder).write_bytes(cache._MAGIC + hashlib.sha256(rest).digest() + rest)
    made = compile_handler(handler_of(3))
    assert (made.from_cache, ask(made, 4)) == (False, (1, b"\7"))


def test_a_folder_in_place_of_the_file_is_a_miss(folder: Path) -> None:
    compile_handler(handler_of(3))
    file = only(folder)
    file.unlink()
    (file / "x").mkdir(parents=True)
    made = compile_handler(handler_of(3))
    assert (made.from_cache, ask(made, 4)) == (False, (1, b"\7"))


def test_a_place_where_nothing_can_be_kept_is_a_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    for place in (str(tmp_path / "file"), "/proc/nowhere"):
        monkeypatch.setattr(cache, "cache_dir", lambda kind, place=place: Path(place))
        assert ask(compile_handler(handler_of(3)), 4) == (1, b"\7")

    def homeless(kind: str) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(cache, "cache_dir", homeless)
    assert ask(compile_handler(handler_of(3)), 4) == (1, b"\7")


def test_old_files_of_a_function_go(folder: Path) -> None:
    (folder / "other-1.code").parent.mkdir(parents=True)
    (folder / "other-1.code").write_text("")
    compile_handler(handler_of(0))
    file = next(folder.glob("handler-*"))
    base = file.name.rpartition("-")[0]
    for i in range(20):
        (folder / f"{base}-{i}.code").write_text("")
    compile_handler(handler_of(1))
    assert len(list(folder.glob("handler-*"))) == cache.KEPT
    assert compile_handler(handler_of(1)).from_cache
    assert (folder / "other-1.code").exists()


def test_what_is_made_of_an_address_is_not_kept(folder: Path) -> None:
    absolute = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(("abs", ctypes.CDLL(None)))

    def handler(request: Any, reply: Any) -> int:
        return absolute(-np.int32(request[0]))

    for _ in range(2):
        made = compile_handler(handler)
        assert (made.from_cache, ask(made, 4)[0]) == (False, 4)
    assert not list(folder.glob("*"))


def test_functions_that_numba_keeps_itself_are_compiled_from_their_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """numba goes on using a callee's code when a constant that the callee imports has changed."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    (tmp_path / "lib.py").write_text(
        "from limits import N\nimport numba\n@numba.njit(cache=True)\ndef f(x): return x + N\n"
    )
    (tmp_path / "served.py").write_text(
        "from lib import f\n"
        "def handler(request, reply):\n    return f(request[0])\n"
        "from corelane.libos.handlers.compile import compile_handler\n"
        "import ctypes\n"
        "made = compile_handler(handler)\n"
        "types = [ctypes.c_void_p, ctypes.c_int64] * 2 + [ctypes.c_void_p]\n"
        "entry = ctypes.CFUNCTYPE(ctypes.c_int64, *types)(made.address)\n"
        "print(made.from_cache, entry(b'\\x04', 1, b'', 0, None))\n"
    )
    said = []
    for n in (1, 2):
        (tmp_path / "limits.py").write_text(f"N = {n}\n")
        run = [sys.executable, "-B", tmp_path / "served.py"]
        said.append(subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip())
    assert said == ["False 5", "False 6"]


def test_a_jitted_handler_is_taken_by_its_source(folder: Path) -> None:
    jitted = numba.njit(cache=True)(handler_of(3))
    assert ask(compile_handler(jitted), 4) == (1, b"\7")
    assert compile_handler(handler_of(3)).from_cache
