"""gdb commands that show uthreads: gdb -x $(corelane config --gdb) -p PID

    corelane-uthreads            a line for each uthread: what it does, how much stack it uses, where it is
    corelane-uthread N bt        its stack; any other command runs with its innermost frame selected

They read memory and change nothing, so they serve for core files, too: those that the kernel writes. (gdb's own gcore
stops at the first guard below a stack.) A uthread that does not run has its registers in
its object (struct cl_context in switch.h). An unwinder puts them behind frame 0 of the thread that is selected: frame 1
is then where the uthread went away from. Schedulers are found by their kthreads' thread-local pointer (kthread.c), so
libcorelane.so needs the debug information that it is built with.

Does not deal with: schedulers without a kthread (not started, stepped by hand, stopped), and uthreads in the middle of
a switch. Tests: tests/libos/sched/test_uthreads_gdb.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import gdb
import gdb.unwinder

REGISTERS = {"i386:x86-64": ("rip", "rsp", "rbp"), "aarch64": ("pc", "sp", "x29")}
RING = 256  # CL_RUNQ_SIZE
JOIN_DONE = 1  # CL_JOIN_DONE
INSIDE = re.compile(r"(\.{1,2}/)*(libos/sched|sysdeps|nptl|signal)/")  # sources that no user looks for


class FrameId:
    """What gdb's unwinders call a frame."""

    def __init__(self, sp: gdb.Value, pc: gdb.Value) -> None:
        self.sp, self.pc = sp, pc


class Unwinder(gdb.unwinder.Unwinder):
    """Says that the selected thread's frame 0 was called by a uthread that does not run, while there is one."""

    def __init__(self) -> None:
        super().__init__("corelane-uthread")
        self.context: dict[str, int] | None = None
        self._top = 0

    def show(self, context: gdb.Value | None) -> None:
        """From now on: the uthread of this context; None: nobody."""
        self.context = None
        gdb.invalidate_cached_frames()
        if context is not None:
            pc, sp, fp = registers()
            self._top = int(gdb.newest_frame().read_register(sp))
            self.context = {pc: int(context["pc"]), sp: int(context["sp"]), fp: int(context["fp"])}
            gdb.invalidate_cached_frames()

    def __call__(self, pending: gdb.PendingFrame) -> gdb.UnwindInfo | None:
        if self.context is None:
            return None
        pc, sp, _ = registers()
        top = pending.read_register(sp)
        if int(top) != self._top:
            return None
        info = pending.create_unwind_info(FrameId(top, pending.read_register(pc)))
        for name, value in self.context.items():
            info.add_saved_register(name, gdb.Value(value).cast(pending.read_register(name).type))
        return info


UNWINDER = Unwinder()
gdb.unwinder.register_unwinder(None, UNWINDER, replace=True)


def registers() -> tuple[str, str, str]:
    """Names of program counter, stack pointer and frame pointer."""
    name = gdb.selected_inferior().architecture().name()
    if name not in REGISTERS:
        raise gdb.GdbError(f"corelane: uthreads of {name} are not known here")
    return REGISTERS[name]


def kthreads() -> dict[int, tuple[gdb.Value, gdb.InferiorThread]]:
    """By its address each kthread, and the thread that is it."""
    symbol = gdb.lookup_static_symbol("this_kthread", gdb.SYMBOL_VAR_DOMAIN)
    if symbol is None:
        raise gdb.GdbError("corelane: this process has no libcorelane.so with debug information")
    here, found = gdb.selected_thread(), {}
    if here is None:
        raise gdb.GdbError("corelane: no process, and no core file")
    try:
        for thread in gdb.selected_inferior().threads():
            thread.switch()
            kthread = symbol.value()
            if int(kthread):
                found[int(kthread)] = kthread.dereference(), thread
    finally:
        here.switch()
    return found


def chain(first: gdb.Value) -> Iterator[int]:
    """Addresses of uthreads in a list by `next`."""
    while int(first):
        yield int(first)
        first = first["next"]


class Uthread:
    """A uthread that exists, and what it does: running, ready, waiting, idle or ended."""

    def __init__(self, sched: gdb.Value, index: int, name: str) -> None:
        self.value = sched["uthreads"][index]
        self.address = int(self.value.address)
        self.name = name
        self.state = "waiting"
        self.thread: gdb.InferiorThread | None = None  # that runs it

    @property
    def used(self) -> int:
        """Bytes of its stack in use, where it does not run."""
        return 0 if self.thread else int(self.value["stack_top"]) - int(self.value["context"]["sp"])


def uthreads(sched: gdb.Value, threads: dict[int, gdb.InferiorThread], prefix: str) -> list[Uthread]:
    """Those of a scheduler that exist, by number. threads: by address of their kthread."""
    free = set(chain(sched["depot"]))
    state: dict[int, str] = dict.fromkeys(chain(sched["inject_first"]), "ready")
    runs: dict[int, gdb.InferiorThread] = {}
    for number in range(int(sched["n_kthreads"])):
        k = sched["kthreads"][number]
        free |= set(chain(k["cache"]))
        queue = k["runq"]
        for at in range(int(queue["head"]), int(queue["head"]) + (int(queue["tail"]) - int(queue["head"])) % 2**32):
            state[int(queue["ring"][at % RING])] = "ready"
        state |= dict.fromkeys(chain(queue["first"]), "ready")
        state |= {int(k[name]): "ready" for name in ("front", "over")}
        state[int(k["idle_runner"])] = "idle"
        state[int(k["current"])] = f"kthread {number}"
        runs[int(k["current"])] = threads.get(int(k.address))
    out = []
    for index in range(int(sched["created"])):
        t = Uthread(sched, index, f"{prefix}{index}")
        if t.address in free:
            continue
        t.thread = runs.get(t.address)
        ended = int(t.value["join"]) == JOIN_DONE and t.address not in state
        t.state = "ended" if ended else state.get(t.address, t.state)
        out.append(t)
    return out


def everyone() -> list[Uthread]:
    """All uthreads. With several schedulers a number is SCHEDULER.UTHREAD."""
    found = kthreads()
    if not found:
        raise gdb.GdbError("corelane: no thread of this process is a kthread")
    threads = {address: thread for address, (_, thread) in found.items()}
    scheds = {int(k["sched"]): k["sched"].dereference() for k, _ in found.values()}
    several = len(scheds) > 1
    return [t for i, at in enumerate(sorted(scheds)) for t in uthreads(scheds[at], threads, f"{i}." if several else "")]


class On:
    """With it the selected frame is the uthread's innermost one. Afterwards all is as it was."""

    def __init__(self, t: Uthread) -> None:
        self._t = t
        self.skipped = 0  # frames of gdb's that are not the uthread's

    def __enter__(self) -> On:
        self._thread, self._frame = gdb.selected_thread(), gdb.selected_frame()
        if self._t.thread:
            self._t.thread.switch()
            gdb.newest_frame().select()
        else:
            UNWINDER.show(self._t.value["context"])
            gdb.newest_frame().older().select()
            self.skipped = 1
        return self

    def __exit__(self, *_: object) -> None:
        if self.skipped:
            UNWINDER.show(None)
            gdb.newest_frame().select()
        else:
            self._thread.switch()
            if self._frame.is_valid():
                self._frame.select()

    def frames(self) -> Iterator[gdb.Frame]:
        """The uthread's, innermost first."""
        frame = gdb.selected_frame()
        while frame is not None and frame.pc():
            yield frame
            frame = frame.older()


def place(t: Uthread) -> str:
    """Where it is: the innermost frame that is not the scheduler's."""
    if not t.thread and t.used <= 8:
        return "(has not begun)"
    with On(t) as on:
        frames = [(f.name() or hex(f.pc()), f.find_sal()) for f in on.frames()]
    for name, sal in frames:
        file = sal.symtab.filename if sal.symtab else ""
        if file and not INSIDE.match(file):
            return f"{name} ({file}:{sal.line})"
    return frames[0][0] if frames else "?"


class Uthreads(gdb.Command):
    """List the uthreads of this process or core file: number, state, bytes of stack in use, where each is."""

    def __init__(self) -> None:
        super().__init__("corelane-uthreads", gdb.COMMAND_STACK)

    def invoke(self, argument: str, from_tty: bool) -> None:
        gdb.write(f"{'N':>8}  {'STATE':<10} {'STACK':>7}  {'STARTED IN':<24}  NOW IN\n")
        for t in everyone():
            start = re.sub(r"^0x\w+ <(.*)>$", r"\1", str(t.value["fn"]))
            used = "-" if t.thread else str(t.used)
            where = "" if t.state == "ended" else place(t)
            gdb.write(f"{t.name:>8}  {t.state:<10} {used:>7}  {start:<24}  {where}\n")


class OneUthread(gdb.Command):
    """corelane-uthread N COMMAND: run a gdb command on a uthread, with its innermost frame selected.

    `bt` prints its stack. N as in corelane-uthreads.
    """

    def __init__(self) -> None:
        super().__init__("corelane-uthread", gdb.COMMAND_STACK)

    def invoke(self, argument: str, from_tty: bool) -> None:
        name, _, command = argument.partition(" ")
        if not name or not command.strip():
            raise gdb.GdbError("corelane-uthread: say which, and what: corelane-uthread 3 bt")
        for t in everyone():
            if t.name == name:
                with On(t) as on:
                    if command.strip() in ("bt", "backtrace"):
                        self._backtrace(on)
                    else:
                        gdb.execute(command)
                return
        raise gdb.GdbError(f"corelane-uthread: there is no uthread {name}: see corelane-uthreads")

    def _backtrace(self, on: On) -> None:
        """What gdb prints of each frame, numbered from 0."""
        for number, frame in enumerate(list(on.frames())):
            frame.select()
            text = gdb.execute("with print frame-info location -- frame", to_string=True)
            gdb.write(re.sub(r"^#\d+ +", f"#{number:<3}", text, count=1))


Uthreads()
OneUthread()
