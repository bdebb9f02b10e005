"""corelane run --posix: what it refuses, what it checks, and a program that it becomes."""

from __future__ import annotations

import os
import platform
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from cltest.commands import ask

from corelane.cli import main

EMBEDDED = ("--nic", "tap:clp%d", "--address", "10.0.0.2/24")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "no program is given"),
        (("no-such-program-here",), "there is no such program"),
        (("--nic", "quantum:q0", "--address", "10.0.0.2/24", "true"), "--nic tap:NAME"),
        (("--nic", "af_xdp:", "--address", "10.0.0.2/24", "true"), "--nic tap:NAME"),
        (("--nic", "af_xdp:eth0,queues=2", "--address", "10.0.0.2/24", "true"), "--nic tap:NAME"),
        (("--nic", "af_xdp:no-such-if", "--address", "10.0.0.2/24", "true"), "no interface 'no-such-if'"),
        (("--nic", "tap:a,loss=1", "--address", "10.0.0.2/24", "true"), "--nic tap:NAME"),
        (("--nic", "tap:a", "true"), "--address A.B.C.D/N"),
        (("--nic", "tap:a", "--address", "10.0.0.2", "true"), "--address A.B.C.D/N"),
        (("--address", "10.0.0.2/24", "true"), "the iokernel gives"),
        (("--listen", "0", "true"), "argument --listen"),
        (("--listen", "10.0.0:80", "true"), "argument --listen"),
        (("--listen", "10.0.0.*:", "true"), "argument --listen"),
        (("--listen", "10.0.0.256", "true"), "argument --listen"),
        (("--listen", ",".join(["80"] * 33), "true"), "argument --listen"),
        (("--kthreads", "65", "true"), "argument --kthreads"),
        (("--socket", "/tmp/a,b", "true"), "has a comma"),
    ],
)
def test_refusals(words: tuple[str, ...], reason: str) -> None:
    done = ask("run", "--posix", *words)
    assert done.returncode in (1, 2)
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


def test_posix_comes_first() -> None:
    done = ask("run", "--kthreads", "1", "--posix", "true")
    assert done.returncode == 2
    assert "--posix comes first" in done.stderr


def test_a_program_that_needs_no_runtime_runs(tmp_path: Path) -> None:
    done = ask("run", "--posix", *EMBEDDED, "sh", "-c", "echo $CORELANE_POSIX; exit 7")
    assert done.returncode == 7
    assert done.stdout == "nic=tap:clp%d,address=10.0.0.2/24,kthreads=1,poll=adaptive\n"


def test_what_is_on_the_dataplane_is_told_the_library(tmp_path: Path) -> None:
    words = ("--socket", f"{tmp_path}/io", "--name", "x", "--listen", "80,443", "--poll", "block", "--kthreads", "3")
    done = ask("run", "--posix", *words, "--", "sh", "-c", "echo $CORELANE_POSIX")
    assert done.stdout == f"socket={tmp_path}/io,name=x,kthreads=3,poll=block,listen=80;443\n"


def test_addresses_are_told_the_library() -> None:
    words = ("--listen", "10.0.0.*:80,127.0.0.1:*,10.0.0.2", "--loopback")
    done = ask("run", "--posix", *EMBEDDED, *words, "sh", "-c", "echo $CORELANE_POSIX")
    assert done.stdout.endswith("poll=adaptive,listen=10.0.0.*:80;127.0.0.1:*;10.0.0.2,loopback=1\n")


@pytest.mark.root
def test_a_program_of_another_user_is_refused(tmp_path: Path) -> None:
    """Root's own is as any other to root."""
    if os.geteuid() != 0:
        pytest.skip("gives files to another user: run as root")
    program = tmp_path / "program"
    shutil.copy(shutil.which("true") or "", program)
    for mode, refused in ((0o6755, False), (0o755, False), (0o4755, True), (0o2755, True)):
        owner = 0 if mode == 0o6755 else 65534
        os.chown(program, owner, owner)
        program.chmod(mode)
        done = ask("run", "--posix", *EMBEDDED, "--check", str(program))
        assert done.returncode == refused, done.stdout
        assert ("set-user-ID" in done.stdout) == refused
    done = ask("run", "--posix", *EMBEDDED, str(program))
    assert done.returncode == 1
    assert "set-user-ID" in done.stderr


@pytest.mark.root
def test_a_program_with_capabilities_is_refused_to_others_than_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program"
    shutil.copy(shutil.which("true") or "", program)
    try:  # linux/capability.h: revision 2, effective; CAP_NET_BIND_SERVICE
        os.setxattr(program, "security.capability", struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0))
    except OSError as error:
        pytest.skip(f"needs a file system with capabilities: {error}")
    assert main.main(["run", "--posix", "--check", str(program)]) == 0
    monkeypatch.setattr(os, "getuid", lambda: program.stat().st_uid + 1)
    assert main.main(["run", "--posix", "--check", str(program)]) == 1
    assert "a file with capabilities" in capsys.readouterr().out


def test_a_static_program_is_refused(tmp_path: Path) -> None:
    source, program = tmp_path / "static.c", tmp_path / "static"
    source.write_text("int main(void) { return 0; }\n")
    command = ["gcc", "-static", str(source), "-o", str(program)]
    if shutil.which("gcc") is None or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("needs a static libc: apt-get install libc6-dev")
    for words in ((), ("--check",)):
        done = ask("run", "--posix", *EMBEDDED, *words, str(program))
        assert done.returncode == 1
        assert "statically linked" in done.stderr + done.stdout


def static_program(folder: Path) -> Path:
    """The smallest file that is one for this machine: what the kernel would do with it is not looked at."""
    program = folder / "static"
    content = bytearray(Path(shutil.which("true") or "").read_bytes())
    first, size, n = struct.unpack_from("<Q", content, 32)[0], *struct.unpack_from("<HH", content, 54)
    for i in range(n):  # elf.h: Elf64_Phdr; PT_INTERP is made PT_NULL
        if struct.unpack_from("<I", content, first + i * size)[0] == 3:
            struct.pack_into("<I", content, first + i * size, 0)
    program.write_bytes(content)
    program.chmod(0o755)
    return program


SCRIPTS = {
    "of a dynamic one": ("#!/bin/sh -e\n", 0, "it is a script: /bin/sh runs it"),
    "by env": ("#!/usr/bin/env sh\n", 0, "/sh runs it"),
    "of a script": ("#!{folder}/other\n", 0, "it is a script: /bin/sh runs it"),
    "of a static one": ("#!{folder}/static -x\n", 1, "static, which runs it, is statically linked"),
    "of a static one by env": (
        "#!/usr/bin/env -S A=b {folder}/static\n",
        1,
        "static, which runs it, is statically linked",
    ),
    "of nothing": ("#!\n", 1, "names nothing, and there is no such program"),
    "of what is missing": ("#! {folder}/none\n", 1, "none, and there is no such program"),
    "of what env does not find": ("#!/usr/bin/env no-such-program\n", 1, "names no-such-program, and there is"),
    "of itself": ("#!{folder}/script\n", 1, "scripts run one another without an end"),
    "without a first line": ("echo hello\n", 1, "neither an ELF file nor a script"),
    "empty": ("", 1, "neither an ELF file nor a script"),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_of_a_script_what_runs_it_is_looked_at(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A script of a static program would run, and nothing of it on the dataplane."""
    line, status, said = SCRIPTS[name]
    static_program(tmp_path)
    for file, text in (("script", line), ("other", "#!/bin/sh\n")):
        (tmp_path / file).write_text(text.replace("{folder}", str(tmp_path)))
        (tmp_path / file).chmod(0o755)
    assert main.main(["run", "--posix", "--check", str(tmp_path / "script")]) == status
    printed = "".join(capsys.readouterr())
    assert said in printed
    assert status == 0 or printed.count("\n") == 1
    if status:
        assert main.main(["run", "--posix", *EMBEDDED, str(tmp_path / "script")]) == 1
        assert said in capsys.readouterr().err


def test_what_is_no_program_is_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = static_program(tmp_path).rename(tmp_path / "other")
    content = bytearray(other.read_bytes())
    struct.pack_into("<H", content, 18, 243)  # EM_RISCV
    other.write_bytes(content)
    (tmp_path / "text").write_text("no program")
    for path, said in (
        (other, "it cannot be run here: it is for riscv"),
        (tmp_path / "text", "it is not executable"),
        (tmp_path, "it is a folder"),
        (tmp_path / "none", "there is no such program"),
    ):
        assert main.main(["run", "--posix", "--check", str(path)]) == 1
        assert said in "".join(capsys.readouterr())


@pytest.mark.parametrize("n", [4, 16, 63, 64, 100])
def test_a_program_that_is_cut_short_is_refused(n: int, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(Path(shutil.which("true") or "").read_bytes()[:n])
    program.chmod(0o755)
    for words in ((), ("--check",)):
        done = ask("run", "--posix", *EMBEDDED, *words, str(program))
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1, done.stderr
        assert "cut short or damaged" in done.stderr


def test_a_library_that_is_damaged_is_named(tmp_path: Path) -> None:
    program, library = tmp_path / "program", tmp_path / "libother.so"
    (tmp_path / "program.c").write_text("int other(void);\nint main(void) { return other(); }\n")
    (tmp_path / "other.c").write_text("int other(void) { return 0; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", str(tmp_path / "other.c"), "-o", str(library)], check=True)
    link = [str(tmp_path / "program.c"), str(library), f"-Wl,-rpath,{tmp_path}"]
    subprocess.run(["gcc", *link, "-o", str(program)], check=True)
    library.write_bytes(library.read_bytes()[:300])
    done = ask("run", "--posix", "--check", str(program))
    assert done.returncode == 1
    assert f"{library} is refused" in done.stderr
    assert done.stderr.count("\n") == 1


def test_check_names_what_is_refused(tmp_path: Path) -> None:
    source, program = tmp_path / "calls.c", tmp_path / "calls"
    source.write_text("#define _GNU_SOURCE\n#include <unistd.h>\nint main(void) { return fork(); }\n")
    subprocess.run(["gcc", str(source), "-o", str(program)], check=True, capture_output=True)
    done = ask("run", "--posix", "--check", str(program))
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == f"{program}: can run"
    assert [line.split(":")[0] for line in lines[1:]] == ["fork"]
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    assert "script" in ask("run", "--posix", "--check", str(script)).stdout


_DIRECT = {
    "x86_64": 'long a = 44; __asm__ volatile("mov $44, %%eax; syscall" : "+a"(a) : : "rcx", "r11", "memory");',
    "aarch64": '__asm__ volatile("mov x8, #206; svc 0" : : : "x0", "x8", "memory");',
}


@pytest.mark.skipif(platform.machine() not in _DIRECT, reason="needs x86-64 or aarch64: instructions are looked at")
def test_check_looks_at_libraries_and_instructions(tmp_path: Path) -> None:
    """What a library calls; that it is missing; system calls past libc."""
    library, program = tmp_path / "libuse.so", tmp_path / "program"
    (tmp_path / "use.c").write_text("int io_uring_queue_init(void);\nint use(void) { return io_uring_queue_init(); }\n")
    code = f"int use(void);\nint main(void) {{ {_DIRECT[platform.machine()]} return use(); }}\n"
    (tmp_path / "program.c").write_text(code)
    subprocess.run(["gcc", "-shared", "-fPIC", str(tmp_path / "use.c"), "-o", str(library)], check=True)
    link = ["-Wl,-rpath,$ORIGIN", "-Wl,--unresolved-symbols=ignore-in-shared-libs", f"-L{tmp_path}", "-luse"]
    subprocess.run(["gcc", str(tmp_path / "program.c"), "-o", str(program), *link], check=True, capture_output=True)
    done = ask("run", "--posix", "--check", str(program))
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:] == [
        "system calls by instructions of its own: on sockets they go past the dataplane: sendto",
        "io_uring_queue_init (in libuse.so): refused on sockets of the dataplane; have it use epoll",
    ]
    library.unlink()
    done = ask("run", "--posix", "--check", str(program))
    assert "libuse.so: is needed, and was not found; install it" in done.stdout
