"""`corelane config`, and what pkg-config and CMake find by it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from cltest.cbuild import setup_py

from corelane.cli.main import main


def config(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What `corelane config` prints."""
    assert main(["config", *words]) == 0
    return capsys.readouterr().out.strip()


def runs(program: Path) -> bool:
    """Whether a program that was built of the example in C finds its library and says that no iokernel is there."""
    done = subprocess.run([str(program), "/nonexistent/socket"], capture_output=True, text=True, check=False)
    return done.returncode == 1 and "/nonexistent/socket" in done.stderr


def test_each_folder_is_there(capsys):
    asked = json.loads(config(capsys, "--json"))
    for option, file in {
        "include-dir": "corelane/libos/libos.h",
        "pkgconfig-dir": "corelane.pc",
        "cmake-dir": "corelane-config.cmake",
        "examples": "c_echo.c",
        "gdb": "",
        "launcher": "",
    }.items():
        folder = config(capsys, f"--{option}")
        assert asked[option.replace("-", "_")] == folder
        assert (Path(folder) / file).exists()


def test_pkg_config_says_what_config_says(capsys, tmp_path):
    if shutil.which("pkg-config") is None:
        pytest.skip("no pkg-config: apt-get install pkg-config")
    environment = {**os.environ, "PKG_CONFIG_PATH": config(capsys, "--pkgconfig-dir")}

    def asked(words: str) -> list[str]:
        done = subprocess.run(
            ["pkg-config", words, "corelane"], env=environment, capture_output=True, text=True, check=True
        )
        return shlex.split(re.sub(r"/\S+", lambda path: os.path.realpath(path[0]), done.stdout))

    cflags, libs = asked("--cflags"), asked("--libs")
    assert sorted(cflags) == sorted(shlex.split(config(capsys, "--cflags")))
    assert set(cflags) > set(setup_py().USER_CFLAGS)
    assert libs == shlex.split(config(capsys, "--libs"))
    source = f"{config(capsys, '--examples')}/c_echo.c"
    subprocess.run(["gcc", source, *cflags, *libs, "-o", str(tmp_path / "echo")], check=True)
    assert runs(tmp_path / "echo")


CMAKE = """\
cmake_minimum_required(VERSION 3.13)
project(echo LANGUAGES C)
find_package(corelane 0.1 REQUIRED)
find_package(corelane REQUIRED)
add_executable(echo {source})
target_link_libraries(echo PRIVATE corelane::corelane)
find_package(corelane 99 QUIET)
if(corelane_FOUND)
  message(FATAL_ERROR "this is not version 99")
endif()
"""


def test_cmake_finds_the_package(capsys, tmp_path):
    if shutil.which("cmake") is None or shutil.which("make") is None:
        pytest.skip("no cmake: apt-get install cmake make")
    (tmp_path / "CMakeLists.txt").write_text(CMAKE.format(source=f"{config(capsys, '--examples')}/c_echo.c"))
    where = f"-Dcorelane_DIR={config(capsys, '--cmake-dir')}"
    for words in (["-S", ".", "-B", "build", where], ["--build", "build", "--verbose"]):
        done = subprocess.run(["cmake", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    for flag in setup_py().USER_CFLAGS:
        assert flag in done.stdout
    assert runs(tmp_path / "build" / "echo")
