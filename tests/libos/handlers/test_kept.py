"""Entry points on disk: a second start calls them without numba, and a file that is not whole is a miss."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corelane.libos.handlers import kept
from corelane.libos.handlers.compiled import CompiledHandler
from corelane.libos.numba import folder as folders

PROGRAM = """
import sys
import ctypes
import warnings

from corelane import libos
from corelane.libos._native import ffi

def kind(request):
    return request[0] & 1

@libos.udp(port=9000)
def doubled(request, reply):
    if request[0] == 9:
        raise ValueError(request[0])
    reply[0] = 2 * request[0]
    return 1

@libos.udp(port=9001, classify=kind, targets_us=(10, 1000))
def halved(request, reply):
    reply[0] = request[0] // 2
    return 1

def ask(handler, byte):
    address = int(ffi.cast("uintptr_t", handler.prepare().pointer))
    words = [ctypes.c_void_p, ctypes.c_int64] * 2
    entry = ctypes.CFUNCTYPE(ctypes.c_int64, *words, ctypes.c_void_p)(address)
    reply = (ctypes.c_uint8 * 16)()
    return entry((ctypes.c_uint8 * 1)(byte), 1, reply, 16, None), reply[0]

with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    print(ask(doubled, 4), ask(halved, 4), ask(doubled, 9))
print([str(w.message) for w in seen])
print("numba" in sys.modules, "llvmlite" in sys.modules, doubled.prepare().keep[0].from_cache)
"""


def start(path: Path, **more: str) -> list[str]:
    """The program in a process of its own: the lines that it prints."""
    program = path / "served.py"
    program.write_text(PROGRAM)
    env = {**os.environ, "CORELANE_CACHE_DIR": str(path / "cache"), **more}
    done = subprocess.run([sys.executable, program], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Where the program has been started once, and what it printed."""
    path = tmp_path_factory.mktemp("first")
    return path, start(path)


def test_a_second_start_needs_no_numba(first: tuple[Path, list[str]]) -> None:
    path, said = first
    again = start(path)
    assert said[0] == again[0] == "(1, 8) (1, 2) (-2, 0)"
    assert said[1] == again[1]
    assert "handler doubled may raise" in said[1]
    assert (said[2], again[2]) == ("True True False", "False False True")


def test_settings_of_numbas_are_part_of_the_key(first: tuple[Path, list[str]]) -> None:
    path, _ = first
    assert start(path, NUMBA_OPT="1")[2] == "True True False"


def test_without_a_linker_code_is_kept_as_numba_keeps_it(tmp_path: Path) -> None:
    first, second = (start(tmp_path, LD="/nowhere/ld") for _ in range(2))
    assert first[:2] == second[:2]
    assert second[2] == "True True True"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("CORELANE_CACHE_DIR", str(tmp_path))
    return tmp_path / "linked" / folders.build_id()


def call(made: CompiledHandler, *kinds: Any) -> Any:
    """The entry point, for ctypes."""
    return ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(made.address)


def counts(state: Any) -> int:
    state[0] += 1
    return int(state[0])


def test_a_state_is_the_callers_array(folder: Path) -> None:
    first, other = np.zeros(3, np.int64), np.full(3, 10, np.int64)
    for state, value in ((first, 1), (other, 11), (first, 2)):
        made = kept.compiled("periodic work", counts, state)
        assert call(made, ctypes.c_void_p)(made.arg) == value
        assert state[0] == value
    assert len(list(folder.glob("*"))) == 1, "one code for both"
    kept.compiled("periodic work", counts, np.zeros(4, np.int64))
    assert len(list(folder.glob("*"))) == 2, "of another length it is another one"


def first_line(data: Any, reply: Any) -> tuple[int, int]:
    for i in range(len(data)):
        if data[i] == 10:
            reply[:i] = data[:i]
            return i + 1, i
    return 0, 0


def greets(target: Any, body: Any, reply: Any) -> tuple[int, int]:
    reply[0] = target[1]
    return 200 + len(body), 1


def is_short(request: Any) -> bool:
    return len(request) < 5


def test_every_kind_of_handler(folder: Path) -> None:
    place, length = ctypes.c_void_p, ctypes.c_int64
    data, reply, answered = (ctypes.c_uint8 * 4)(*b"ab\nc"), (ctypes.c_uint8 * 4)(), ctypes.c_int64()
    for hit in (False, True):
        stream = kept.compiled("stream handler", first_line)
        assert call(stream, *[place, length] * 2, place, place)(data, 4, reply, 4, ctypes.byref(answered), None) == 3
        assert (answered.value, bytes(reply[:2])) == (2, b"ab")
        http = kept.compiled("HTTP handler", greets)
        entry = call(http, *[place, length] * 3, place, place)
        assert entry(data, 2, data, 4, reply, 4, ctypes.byref(answered), None) == 204
        assert (answered.value, reply[0]) == (1, ord("b"))
        classifier = kept.compiled("classifier", is_short)
        assert call(classifier, place, length, place)(data, 4, None) == 1
        assert [made.from_cache for made in (stream, http, classifier)] == [hit] * 3


def prints(request: Any, reply: Any) -> int:
    print(len(request))
    return 0


def test_what_only_numbas_process_can_run_is_not_tried_again(folder: Path) -> None:
    for _ in range(2):
        made = kept.compiled("handler", prints)
        assert made.entry is not None
        (file,) = folder.glob("*")
        found = kept._read(file)
        assert found is not None
        assert not found.fits


def leaves_much(request: Any, reply: Any) -> int:
    much = np.ones(request[0] * 100_000)
    if much[0] == 1.0:
        raise ValueError(request[0])
    return int(much.sum())


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_what_an_exception_leaves_behind_is_given_back(folder: Path) -> None:
    made = kept.compiled("handler", leaves_much)
    entry, request = call(made, *[ctypes.c_void_p, ctypes.c_int64] * 2, ctypes.c_void_p), (ctypes.c_uint8 * 1)(10)
    before = resident_bytes()
    for _ in range(40):  # 8 MB each
        assert entry(request, 1, request, 1, None) == -2
    assert resident_bytes() - before < 100_000_000


@pytest.mark.parametrize("how", ["empty", "cut", "longer", "a bit"])
def test_a_file_that_is_not_whole_is_a_miss_and_is_replaced(folder: Path, how: str) -> None:
    state = np.zeros(1, np.int64)
    kept.compiled("periodic work", counts, state)
    (file,) = folder.glob("*")
    content = bytearray(file.read_bytes())
    if how == "empty":
        content.clear()
    elif how == "cut":
        del content[len(content) // 2 :]
    elif how == "longer":
        content += b"\0"
    else:
        content[len(content) // 3] ^= 4
    file.unlink()  # another file under its name: the first one is mapped
    file.write_bytes(content)
    assert kept._read(file) is None
    made = kept.compiled("periodic work", counts, state)
    assert call(made, ctypes.c_void_p)(made.arg) == 1
    assert kept.compiled("periodic work", counts, state).entry is None


def test_a_state_of_another_kind_is_compiled_for_this_process(folder: Path) -> None:
    made = kept.compiled("periodic work", lambda state: state[0][0], (np.full(1, 7, np.int64), 3))
    assert call(made, ctypes.c_void_p)(made.arg) == 7
    assert not list(folder.glob("*"))
