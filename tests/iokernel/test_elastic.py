"""Memory that batch work can give back, between runtimes and an iokernel that runs: it shrinks for an arena, grows
again, and one that never shrinks is shown, or ended."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import threading

import pytest
from cltest import die_with_parent, wait_until
from cltest.switching import stats_of

from corelane import libos
from corelane.drivers.nic.memory import memory_link
from corelane.iokernel.control import elastic
from corelane.iokernel.control.resident import PENDING, Residents, resident_bytes
from corelane.runtime.config import MemoryConfig
from corelane.runtime.errors import CorelaneError

CPU = max(os.sched_getaffinity(0))
MIB = 1 << 20
ODD = 7 * MIB + 13 * mmap.PAGESIZE  # a mapping is known by its size: no other one of this process has that


def touch(memory: libos.Elastic, n_bytes: int) -> None:
    for at in range(0, n_bytes, mmap.PAGESIZE):
        memory.data[at] = 7


def test_what_is_given_back_is_gone_from_the_process() -> None:
    inner, outer = memory_link()
    with inner, outer, libos.Runtime(nic=inner, address="10.77.0.9") as runtime:
        memory = runtime.elastic(ODD, least=MIB)
        assert (len(memory), memory.limit, memory.held) == (ODD, ODD, 0)
        assert memory.use(ODD) == ODD
        touch(memory, ODD)
        wait_until(lambda: resident_bytes(os.getpid(), ODD) == ODD)  # a page that Linux moves is in none
        assert memory.use(2 * MIB + 1) == 2 * MIB + 1
        assert resident_bytes(os.getpid(), ODD) == 2 * MIB + mmap.PAGESIZE
        assert (memory.data[0], memory.data[4 * MIB], memory.held) == (7, 0, 2 * MIB + 1)
        with pytest.raises(CorelaneError, match="has elastic memory already"):
            runtime.elastic(MIB)
        with pytest.raises(CorelaneError, match="cannot be"):
            runtime.elastic(MIB, least=2 * MIB)
    memory.data[0] = 9  # it lives on
    assert memory.limit == ODD
    del memory


def test_it_shrinks_for_an_arena_and_grows_again(start, attach, socket_path):
    io = start(worker_cpus=[CPU], policy="delay", batch_memory=MemoryConfig(limit_mib=100))
    with libos.Runtime(socket_path, name="job", kind="batch") as runtime:
        memory = runtime.elastic(95 * MIB, least=2 * MIB)
        runtime.start()
        own = stats_of(io, "job")["arena"]["total_bytes"]
        wait_until(lambda: memory.use(95 * MIB) == 100 * MIB - own)
        other = attach("other")
        arena = stats_of(io, "other")["arena"]["total_bytes"]
        wait_until(lambda: memory.use(95 * MIB) == 100 * MIB - own - arena)
        wait_until(lambda: io.stats()["memory"]["shrunk"] == 1)
        shown = stats_of(io, "job")["memory"]
        assert (shown["least_bytes"], shown["most_bytes"], shown["asked"]) == (2 * MIB, 95 * MIB, 1)
        other.close()
        wait_until(lambda: memory.use(95 * MIB) == 100 * MIB - own)
    assert io.stats()["memory"]["stubborn"] == 0


def test_one_that_never_shrinks_is_shown(start, attach, socket_path):
    told: list[str] = []
    io = start(
        worker_cpus=[CPU],
        policy="delay",
        batch_memory=MemoryConfig(limit_mib=90, shrink_ms=250),
        tell=lambda event, text: told.append(f"{event}: {text}"),
    )
    with libos.Runtime(socket_path, name="deaf", kind="batch") as runtime:
        memory = runtime.elastic(60 * MIB)
        runtime.start()
        wait_until(lambda: stats_of(io, "deaf")["memory"] is not None)
        memory.use(60 * MIB)
        attach("other")
        wait_until(lambda: any(line.startswith("stubborn: deaf holds 60 MiB") for line in told), 60, lambda: str(told))
        shown = stats_of(io, "deaf")["memory"]
        assert (shown["stubborn"], shown["denied"]) == (True, True)
        assert memory.use(60 * MIB) < 60 * MIB
        wait_until(lambda: not stats_of(io, "deaf")["memory"]["stubborn"])
        assert not stats_of(io, "deaf")["memory"]["denied"]


def test_a_function_chooses_what_goes(start, attach, socket_path, caplog):
    """It keeps what lies at the end, once it can: until then it is asked again."""
    io = start(worker_cpus=[CPU], policy="delay", batch_memory=MemoryConfig(limit_mib=90, shrink_ms=60_000))
    asked: list[int] = []
    refused: list[str] = []
    with libos.Runtime(socket_path, name="job", kind="batch") as runtime:
        memory = runtime.elastic(60 * MIB, least=MIB)

        def shrink(limit: int) -> int:
            asked.append(limit)
            if len(asked) == 1:
                raise ValueError("not now")
            if len(asked) == 2:
                return memory.held  # nor now
            try:
                memory.on_shrink(None)
            except CorelaneError as error:
                refused.append(str(error))
            assert memory.use(60 * MIB) == 60 * MIB  # nothing goes but what this one lets go
            memory.data[:MIB] = memory.data[59 * MIB :]
            return MIB

        memory.on_shrink(shrink)
        runtime.start()
        wait_until(lambda: stats_of(io, "job")["memory"] is not None)
        assert memory.use(60 * MIB) == 60 * MIB
        memory.data[60 * MIB - 1] = 9
        attach("other")
        wait_until(lambda: memory.held == MIB)
        assert (memory.data[MIB - 1], memory.data[60 * MIB - 1]) == (9, 0)
        assert len(asked) == 3
        assert all(MIB <= limit < 60 * MIB for limit in asked)
        assert "elsewhere" in refused[0]
        assert [r.exc_info[0] for r in caplog.records if r.exc_info] == [ValueError]
        wait_until(lambda: io.stats()["memory"]["shrunk"] == 1)
        memory.use(60 * MIB)
        memory.on_shrink(None)
    assert memory.limit == 60 * MIB


def test_memory_that_its_own_function_lets_go_is_freed(start, attach, socket_path):
    io = start(worker_cpus=[CPU], policy="delay", batch_memory=MemoryConfig(limit_mib=90, shrink_ms=60_000))
    with libos.Runtime(socket_path, name="job", kind="batch") as runtime:
        held = [runtime.elastic(60 * MIB)]
        held[0].on_shrink(lambda limit: held.clear() or 0)
        runtime.start()
        wait_until(lambda: stats_of(io, "job")["memory"] is not None)
        held[0].use(60 * MIB)
        attach("other")
        wait_until(lambda: not held)
        again = wait_until(lambda: try_elastic(runtime))
        assert again.limit < 60 * MIB
        del again


def try_elastic(runtime: libos.Runtime) -> libos.Elastic | None:
    try:
        return runtime.elastic(60 * MIB)
    except CorelaneError:
        return None


DEAF = """
import signal, sys
from corelane import libos
signal.signal(signal.SIGTERM, signal.SIG_IGN)
runtime = libos.Runtime(sys.argv[1], name="deaf", kind="batch")
memory = runtime.elastic(60 << 20)
memory.use(60 << 20)
runtime.start()
print("ready", flush=True)
sys.stdin.read()
"""


def test_one_that_never_shrinks_is_ended_where_that_is_configured(start, attach, socket_path):
    """A process that heeds no SIGTERM either."""
    memory = MemoryConfig(limit_mib=70, shrink_ms=250, stubborn="end")
    io = start(worker_cpus=[CPU], policy="delay", batch_memory=memory, tell=lambda *_: None)
    with subprocess.Popen(
        [sys.executable, "-c", DEAF, socket_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=die_with_parent,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        attach("other")
        assert process.wait(60) == -signal.SIGKILL
    wait_until(lambda: io.apps == ("other",))
    assert io.stats()["memory"]["ended"] == 1


def test_without_limits_nobody_is_looked_at(start, socket_path):
    io = start(worker_cpus=[CPU], policy="delay")
    with libos.Runtime(socket_path, name="job", kind="batch") as runtime:
        memory = runtime.elastic(60 * MIB)
        runtime.start()
        assert memory.use(60 * MIB) == 60 * MIB
        assert stats_of(io, "job")["memory"] is None


def test_what_another_process_has_is_read_on_a_thread_of_its_own() -> None:
    residents = Residents()
    assert residents.ask(1, 2**22 + 1, MIB) == PENDING
    assert wait_until(lambda: residents.ask(1, 2**22 + 1, MIB) != PENDING)
    residents.close()
    assert not [t for t in threading.enumerate() if t.name == "corelane-resident" and wait_for_end(t)]


def wait_for_end(thread: threading.Thread) -> bool:
    thread.join(60)
    return thread.is_alive()


LIAR = """
import ctypes, sys, time
from corelane import libos
runtime = libos.Runtime(sys.argv[1], name="liar", kind="batch")
memory = runtime.elastic(7 << 20)
memory.use(7 << 20)
at = ctypes.addressof(ctypes.c_char.from_buffer(memory.data))
if ctypes.CDLL(None).mlock(ctypes.c_void_p(at), ctypes.c_size_t(7 << 20)):
    sys.exit(print("refused"))
runtime.start()
while memory.limit == 7 << 20:
    time.sleep(0.01)
memory.use(0)
print("lies", flush=True)
sys.stdin.read()
"""


def test_one_that_says_that_it_has_shrunk_and_has_not(start, socket_path):
    """Its memory is locked, and stays at no moment less than it was."""
    told: list[str] = []
    memory = MemoryConfig(limit_mib=1, shrink_ms=1000)
    start(
        worker_cpus=[CPU], policy="delay", batch_memory=memory, tell=lambda event, text: told.append(f"{event}: {text}")
    )
    with subprocess.Popen(
        [sys.executable, "-c", LIAR, socket_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    ) as process:
        assert process.stdout is not None
        if (line := process.stdout.readline()) == "refused\n":
            pytest.skip("needs 7 MiB that may be locked: ulimit -l unlimited")
        assert line == "lies\n"
        said = "liar says that it holds 0 MiB, and has 7"
        wait_until(lambda: any(said in line for line in told), 60, lambda: str(told))
        process.kill()


def test_what_the_machine_has_is_read() -> None:
    assert resident_bytes(2**22 + 1, MIB) is None
    assert 0 < elastic.available_bytes() < 1 << 46
