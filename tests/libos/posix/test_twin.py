"""The same sequences of calls on Linux' sockets and on ours: the same results, the same errno."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cltest.cbuild import ROOT
from elftools.elf.elffile import ELFFile

from .conftest import INSIDE, LIBRARY, OURS, preloaded, run

PROGRAMS = ROOT / "tests" / "libos" / "posix" / "c"


def sequences_of(program: str) -> list[str]:
    """Those that are compared: they have their function's name."""
    return re.findall(r'\{"(\w+)", \1\}', (PROGRAMS / f"{program}.c").read_text())


COMPARED = "calls epolls datagrams control holds again left ports pipes forms worlds streams limits interrupted found"
COMPARED += " amounts past asks across huge nowhere wild"
SEQUENCES = [(program, sequence) for program in COMPARED.split() for sequence in sequences_of(program)]


IN_TIME = {("holds", "mores")}  # Linux sends by itself what was held for 0.2 s: a busy machine may be slower than that


@pytest.mark.parametrize(("program", "sequence"), SEQUENCES)
def test_calls_return_what_linux_returns(stock: Callable[[str], Path], program: str, sequence: str) -> None:
    binary = stock(program)
    for _ in range(10):
        linux, ours = run(binary, "127.0.0.1", sequence), run(binary, OURS, sequence, config=INSIDE)
        if ours == linux or (program, sequence) not in IN_TIME:
            break
    assert "waited in vain" not in linux
    assert ours == linux


@pytest.mark.parametrize("sequence", ["names", "bytes", "ends", "refused", "opening", "shares"])
def test_127_0_0_1_as_the_programs_own(stock: Callable[[str], Path], sequence: str) -> None:
    binary = stock("calls")
    assert run(binary, "127.0.0.1", sequence, config=f"{INSIDE},loopback=1") == run(binary, "127.0.0.1", sequence)


@pytest.mark.parametrize("sequence", sequences_of("six"))
def test_sockets_of_ipv6_serve_ipv4_with_a_word(stock: Callable[[str], Path], sequence: str) -> None:
    binary = stock("six")
    said = run(binary, OURS, sequence, config=INSIDE).splitlines()
    words = [line for line in said if line.startswith("corelane: ")]
    assert [line for line in said if line not in words] == run(binary, "127.0.0.1", sequence).splitlines()
    assert len(words) == 1
    assert ("stays Linux'" if sequence == "alone" else "is taken for IPv4 alone") in words[0]


def test_waits_for_another_process_end_as_linux_ends_them(stock: Callable[[str], Path]) -> None:
    """By a handler, or cancelled."""
    binary = stock("interrupted")
    said = run(binary, OURS, "family", config=INSIDE).splitlines()
    words = [line for line in said if line.startswith("corelane: ")]
    assert [line for line in said if line not in words] == run(binary, "127.0.0.1", "family").splitlines()
    assert len(words) == 1
    assert "another process of this program has the sockets" in words[0]


@pytest.mark.parametrize("sequence", ["many", "refused", "waits"])
def test_datagrams_by_other_kthreads(stock: Callable[[str], Path], sequence: str) -> None:
    binary = stock("datagrams")
    config = f"{INSIDE},poll=block,kthreads=3"
    assert run(binary, OURS, sequence, config=config) == run(binary, "127.0.0.1", sequence)


@pytest.mark.parametrize("config", ["poll=block", "poll=block,kthreads=3", "kthreads=2"])
@pytest.mark.parametrize(
    ("program", "sequence"),
    [
        ("calls", "much"),
        *(("epolls", sequence) for sequence in ("waits", "epolls", "nests", "wakes")),
        *(("interrupted", sequence) for sequence in ("ends", "restarts", "of_both_kinds", "cancelled")),
        *(("left", sequence) for sequence in ("told_once", "both_ends")),
    ],
)
def test_the_same_by_other_kthreads(stock: Callable[[str], Path], program: str, sequence: str, config: str) -> None:
    binary = stock(program)
    assert run(binary, OURS, sequence, config=f"{INSIDE},{config}") == run(binary, "127.0.0.1", sequence)


FAULT = """
import faulthandler, socket, sys
listener = socket.create_server((sys.argv[1], 0))
client = socket.create_connection(listener.getsockname())
faulthandler.enable()
faulthandler._sigsegv()
"""


def test_a_programs_own_fault_is_told_by_its_own_handler_and_ends_it() -> None:
    command = ["/usr/bin/python3", "-S", "-c", FAULT, OURS]
    done = subprocess.run(command, env=preloaded(INSIDE), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr


def test_its_names_are_libcs() -> None:
    """What it exports stands before libc's: no other name of ours is in a program's way."""
    with LIBRARY.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym")
        exported = {s.name for s in symbols.iter_symbols() if s["st_shndx"] != "SHN_UNDEF"} - {""}
    libc_path = next(
        line.split()[-1]
        for line in Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines()  # a path may be no text
        if "/libc.so" in line
    )
    with Path(libc_path).open("rb") as file:
        libc = {s.name for s in ELFFile(file).get_section_by_name(".dynsym").iter_symbols()}
    assert {"read", "accept4", "epoll_wait", "__poll_chk"} <= exported
    assert exported <= libc
