"""Services in C programs, under sanitizers too: loading one, and what a runtime is given of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from corelane.libos._native import lib

Program = Callable[..., Callable[..., str]]
Library = Callable[..., Path]


def object_of(c_library: Library, **made_for: object) -> Path:
    words = {"LAYOUT": f"{lib.cl_service_layout():#x}u"} | made_for
    return c_library("tests/libos/service/c/a_service.c", cflags=[f"-D{name}={value}" for name, value in words.items()])


def test_an_object_is_loaded_or_refused(c_program: Program, c_library: Library, tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no object")
    refused = {
        object_of(c_library, MAGIC=1): "its corelane_service is not what corelane compile makes: compile it again",
        object_of(c_library, ABI=99): "it is of service ABI 99, and this corelane has 3: install a newer corelane",
        object_of(c_library, ABI=1): "it is of service ABI 1, and this corelane has 3: compile it again",
        object_of(c_library, LAYOUT=7): "it was compiled for corelane 0, whose structs are laid out differently: "
        "compile it again",
        object_of(c_library, WORK=0): "it does 0 things, and a service does 1 to 256",
        object_of(c_library, WORK=257): "it does 257 things, and a service does 1 to 256",
        object_of(c_library, CPU="z80"): "it was compiled for processors of z80, which this corelane does not know",
        tmp_path / "absent.so": "No such file or directory",
        tmp_path / "text.so": "file too short",
    }
    said = c_program("tests/libos/service/c/open.c")(object_of(c_library), *refused, object_of(c_library)).splitlines()
    assert said == ["hand does echo", *refused.values(), "hand does echo"]


@pytest.mark.parametrize("kthreads", [1, 2])
def test_a_runtime_does_what_a_service_does(c_program: Program, kthreads: int) -> None:
    assert c_program("tests/libos/service/c/bound.c")(kthreads) == "ok\n"
