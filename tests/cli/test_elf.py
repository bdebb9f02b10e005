"""Compiled applications: good ones are read, wrong ones refused with the reason. Built with gcc."""

import os
import platform
import random
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from cltest import soak

from corelane.cli import config, elf
from corelane.cli.elf import Export, inspect
from corelane.runtime.errors import CorelaneError

GOOD = """
#include <corelane/libos/handler.h>
int64_t answer(const uint8_t *q, int64_t n, uint8_t *r, int64_t room, void *arg)
{ (void)q; (void)n; (void)arg; if (room < 2) return -1; r[0] = 'o'; r[1] = 'k'; return 2; }
CL_HANDLER(answer, 9000);
"""
MORE = """
void many(struct cl_udp_req *reqs, unsigned n, void *arg)
{ (void)arg; for (unsigned i = 0; i < n; i++) reqs[i].reply_len = 0; }
CL_BURST_HANDLER(many, 9001);
int begin(struct cl_runtime *rt, const char *const *options, void **arg, char *err)
{ (void)rt; (void)options; (void)arg; (void)err; return 0; }
CL_SETUP(begin);
"""

needs_cc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc: apt-get install gcc libc6-dev")
pytestmark = needs_cc


def build(folder: Path, text: str, *flags: str, name: str = "app.so") -> Path:
    """Compile `text` with the flags that `corelane config` prints."""
    include, _ = config.folders()
    source, out = folder / "app.c", folder / name
    source.write_text(text)
    command = [
        "gcc",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{include}",
        "-D_GNU_SOURCE",
        str(source),
        "-o",
        str(out),
        *flags,
    ]
    subprocess.run(command, check=True)
    return out


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return build(tmp_path, GOOD, "-shared", "-fPIC")


def refuses(path: Path, finding: str, library: Path | None = None) -> None:
    with pytest.raises(CorelaneError, match=finding) as caught:
        inspect(path, library)
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text


def test_good_object_is_read(good: Path) -> None:
    assert inspect(good, config.library()) == [Export("answer", "request", 9000)]


def test_every_kind_is_read(tmp_path: Path) -> None:
    path = build(tmp_path, GOOD + MORE, "-shared", "-fPIC")
    assert sorted((e.symbol, e.kind, e.port) for e in inspect(path)) == [
        ("answer", "request", 9000),
        ("begin", "setup", 0),
        ("many", "burst", 9001),
    ]


def test_notes_survive_section_gc_and_strip(tmp_path: Path) -> None:
    path = build(
        tmp_path, GOOD, "-shared", "-fPIC", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections", "-s"
    )
    assert inspect(path) == [Export("answer", "request", 9000)]


def test_the_name_of_a_handler_may_have_letters_of_any_language(tmp_path: Path) -> None:
    path = build(tmp_path, GOOD.replace("answer", "größe"), "-shared", "-fPIC")
    assert inspect(path) == [Export("größe", "request", 9000)]


@pytest.mark.parametrize(
    ("name", "port", "says"),
    [
        ("answer", "-1", "UDP ports are 1 to 65535"),
        ("answer", "70000", "UDP ports are 1 to 65535"),
        ("a" * 64, "9000", "the name of a handler has 63 letters at most"),
    ],
)
def test_what_a_note_cannot_hold_does_not_compile(name: str, port: str, says: str, tmp_path: Path) -> None:
    include, _ = config.folders()
    text = GOOD.replace("answer", name).replace("9000", port)
    command = ["gcc", "-fsyntax-only", "-xc", f"-I{include}", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert says in done.stderr


def test_header_and_reader_agree_on_the_abi(tmp_path: Path) -> None:
    text = GOOD + f'_Static_assert(CL_HANDLER_ABI == {elf.ABI} && CL_HANDLER_NOTE_TYPE == {elf.NOTE_TYPE}, "elf.py");'
    names = {"request": "REQUEST", "burst": "BURST", "setup": "SETUP"}
    for number, kind in elf.KINDS.items():
        text += f'_Static_assert(CL_HANDLER_{names[kind]} == {number}, "elf.py");'
    text += f'_Static_assert(sizeof(struct cl_handler_note) == 24 + {elf._DESC.size}, "elf.py");'
    build(tmp_path, text, "-shared", "-fPIC")


def test_another_architecture_is_refused(good: Path) -> None:
    data = bytearray(good.read_bytes())
    other = 243 if platform.machine() != "riscv64" else 62  # EM_RISCV
    data[18:20] = other.to_bytes(2, "little")
    good.write_bytes(data)
    refuses(good, f"it is for riscv, and this machine is {platform.machine()}")


def test_32_bit_is_refused(good: Path) -> None:
    data = bytearray(good.read_bytes())
    data[4] = 1
    good.write_bytes(data)
    refuses(good, "32-bit|damaged|is for")


def test_what_is_no_elf_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "app.so"
    path.write_text("#!/bin/sh\n")
    refuses(path, "not an ELF file")
    path.write_bytes(b"")
    refuses(path, "not an ELF file")
    with pytest.raises(CorelaneError, match="No such file"):
        inspect(tmp_path / "absent.so")
    with pytest.raises(CorelaneError, match="cannot read"):
        inspect(tmp_path)


def test_truncated_is_refused_wherever_it_was_cut(good: Path, seed: int) -> None:
    data = good.read_bytes()
    rng = random.Random(seed)
    for size in {5, 20, 63, 64, 65, 200, len(data) // 2, len(data) - 1, *rng.sample(range(4, len(data)), 40)}:
        good.write_bytes(data[:size])
        refuses(good, "is refused")


@pytest.mark.soak(short=True, takes_s=60)
def test_damaged_bytes_never_crash_the_reader(good: Path, seed: int) -> None:
    data = good.read_bytes()
    rng = random.Random(seed)
    refused = 0
    times = soak.examples(40, 2000)
    for _ in range(times):
        spoilt = bytearray(data)
        for _ in range(rng.randrange(1, 8)):
            spoilt[rng.randrange(4, len(data) if rng.random() < 0.3 else 1024)] = rng.randrange(256)
        good.write_bytes(spoilt)
        try:
            inspect(good, config.library())
        except CorelaneError:
            refused += 1
    assert refused > times // 3


def test_stale_abi_is_refused(tmp_path: Path) -> None:
    text = GOOD.replace("handler.h>", "handler.h>\n#undef CL_HANDLER_ABI\n#define CL_HANDLER_ABI 0")
    refuses(build(tmp_path, text, "-shared", "-fPIC"), "handler ABI 0, and this corelane has 1; compile it against")
    text = text.replace("CL_HANDLER_ABI 0", "CL_HANDLER_ABI 9")
    refuses(build(tmp_path, text, "-shared", "-fPIC"), "handler ABI 9.*install a newer corelane")


def test_no_note_is_refused(tmp_path: Path) -> None:
    refuses(build(tmp_path, GOOD.replace("CL_HANDLER(answer, 9000);", ""), "-shared", "-fPIC"), "names no handler")


def test_a_handler_that_is_not_exported_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "versions"
    script.write_text("{ local: answer; };")
    path = build(tmp_path, GOOD, "-shared", "-fPIC", f"-Wl,--version-script={script}")
    refuses(path, "does not export the function 'answer'")


def test_an_undefined_handler_is_refused(tmp_path: Path) -> None:
    text = "#include <corelane/libos/handler.h>\nCL_HANDLER(nobody, 9000);"
    refuses(build(tmp_path, text, "-shared", "-fPIC"), "does not export the function 'nobody'")


def test_a_library_that_is_not_there_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    build(folder, "int gone(void); int gone(void) { return 1; }", "-shared", "-fPIC", name="libgone-corelane.so")
    text = GOOD + "int gone(void); int use(void); int use(void) { return gone(); }"
    path = build(tmp_path, text, "-shared", "-fPIC", f"-L{folder}", "-lgone-corelane", "-Wl,-rpath,$ORIGIN/lib")
    assert inspect(path)
    shutil.rmtree(folder)
    refuses(path, r"library libgone-corelane\.so that it needs was not found")


def test_functions_that_this_corelane_lacks_are_refused(tmp_path: Path) -> None:
    text = GOOD + "int cl_from_the_future(void); int use(void); int use(void) { return cl_from_the_future(); }"
    path = build(tmp_path, text, "-shared", "-fPIC")
    refuses(path, "uses cl_from_the_future, which this corelane does not have", config.library())


def test_programs_and_objects_are_refused(tmp_path: Path) -> None:
    text = GOOD + "int main(void) { return 0; }"
    refuses(build(tmp_path, text, "-fPIE", "-pie"), "a program and no shared object")
    refuses(build(tmp_path, text, "-no-pie"), "a program and no shared object")
    refuses(build(tmp_path, GOOD, "-c", "-fPIC"), "not linked")


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (GOOD.replace("9000", "0"), "port 0 is no port"),
        (GOOD + MORE.replace("9001", "9000"), "port 9000 is served twice"),
        ("#include <corelane/libos/handler.h>\n" + MORE.partition("CL_BURST_HANDLER(many, 9001);")[2], "no handler"),
    ],
)
def test_exports_that_make_no_sense_are_refused(tmp_path: Path, text: str, finding: str) -> None:
    refuses(build(tmp_path, text, "-shared", "-fPIC"), finding)


def test_config_flags_build_and_run_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from corelane.cli.main import main

    assert main(["config", "--cflags", "--libs"]) == 0
    flags = shlex.split(capsys.readouterr().out)
    assert "-fstack-clash-protection" in flags, "a large frame meets a uthread's guard, and does not step over it"
    (tmp_path / "p.c").write_text(
        "#include <corelane/libos/libos.h>\n#include <stdio.h>\n"
        "int main(void) { struct cl_sched_config c; cl_sched_config_init(&c); struct cl_sched *s; char err[256];\n"
        '    int rc = cl_sched_new(&c, &s, err); printf("%d", rc); cl_sched_delete(s); return rc; }'
    )
    subprocess.run(["gcc", str(tmp_path / "p.c"), "-o", str(tmp_path / "p"), *flags], check=True)
    environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    done = subprocess.run([tmp_path / "p"], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "0"
    assert main(["config", "--include-dir"]) == 0
    assert (Path(capsys.readouterr().out.strip()) / "corelane" / "libos" / "libos.h").exists()
    assert main(["config"]) == 2
