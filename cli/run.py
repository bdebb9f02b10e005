"""corelane run TARGET: an application, attached to an iokernel or embedded on a NIC of its own."""

from __future__ import annotations

import argparse
import dataclasses
import errno
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..runtime.ending import end_now
from ..runtime.errors import CorelaneError
from ..runtime.notify import STOPPING, notify
from ..runtime.paths import default_socket
from . import deadline, tracing, values
from .replacing import LOOK_S, tell_replaced
from .saying import say
from .usage import WrongUsage

if TYPE_CHECKING:
    from ..libos import Runtime
    from .coroutines import Main
    from .targets import Service, Target


IMPORTS = ("..libos", "..apps._native")
ENDS_AT_ONCE = True
"""Until it serves, Ctrl-C ends the process: while numba compiles, Python would lose it in a callback."""
_HINTS = {
    "udp_checksum": "wrong sums from a sender on this machine are left to its device: ethtool -K ITS_INTERFACE tx off"
}
"""What to do about frames that were dropped for a reason that is not the sender's fault."""


class _Help(argparse.Action):
    """--help, and behind a built-in application's name with the options that it has."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> None:
        from ..apps import registry

        if namespace.target in registry.names():
            lines = registry.options_help(namespace.target)
            parser.epilog = f"options of {namespace.target} (--option K=V, or --K V):\n{lines}"
            parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.print_help()
        parser.exit()


class _First(argparse.Action):
    """--posix, which is another command if it comes first."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        parser.error("--posix comes first: corelane run --posix PROGRAM ...")


def _target_of(words: Sequence[str], parser: argparse.ArgumentParser) -> str | None:
    """The first word that is no option and no value of one."""
    takes = {text for action in parser._actions if action.nargs is None for text in action.option_strings}
    before = ""
    for word in words:
        if not word.startswith("-") and before not in takes:
            return word
        before = word
    return None


def rewrite(words: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """A built-in application's options may be written as its own: --root DIR for --option root=DIR. One that is yes or
    no needs no value."""
    from ..apps import registry

    target = _target_of(words, parser)
    if target is None or target not in registry.names():
        return list(words)
    known = {text for action in parser._actions for text in action.option_strings}
    fields = {f"--{f.name.replace('_', '-')}": f for f in dataclasses.fields(registry.load(target).options)}
    out, left = [], list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        field = None if name in known else fields.get(name)
        if field is None:
            out.append(word)
            continue
        if not equals and field.type in ("bool", bool) and (not left or left[0].startswith("-")):
            value = "true"
        elif not equals:
            value = left.pop(0) if left else ""
        out += ["--option", f"{field.name}={value}"]
    return out


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-h",
        "--help",
        action=_Help,
        nargs=0,
        help="show this help and end; behind an application's name with its own options",
    )
    parser.add_argument(
        "target",
        help="a built-in application's name, module:name[,name...] of handlers and periodic work, module:name of a "
        "coroutine function for asyncio, or a compiled .so",
    )
    parser.add_argument(
        "--posix",
        action=_First,
        nargs=0,
        help="as the first word: run a stock Linux program instead, its TCP sockets on the dataplane; "
        "corelane run --posix --help",
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--socket",
        type=values.socket,
        metavar="PATH",
        help="attach to the iokernel there (default: the user's own, or root's)",
    )
    place.add_argument(
        "--nic",
        metavar="NIC",
        help="embedded mode: tap:NAME[,host=ADDRESS/N], af_xdp:IF, pcap:FILE, "
        "loadgen:echo|memcached[,rate=R]; record=FILE, loss=P, ... as in corelane up --help",
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="once it serves, have the processes that are attached under the same name drain and end (a group: members "
        "in [apps.NAME] there)",
    )
    parser.add_argument("--name", type=values.app_name, help="the application's name; its addresses follow from it")
    parser.add_argument(
        "--kthreads", type=values.kthreads, default=1, metavar="N", help="threads that run handlers (default 1)"
    )
    parser.add_argument(
        "--cpus", type=values.own_cpus, metavar="A,B", help="CPU of each kthread (default: as the iokernel says)"
    )
    parser.add_argument(
        "--poll", choices=("spin", "adaptive", "block"), default="adaptive", help="what a kthread without work does"
    )
    parser.add_argument(
        "--spin-us", type=values.microseconds, metavar="US", help="adaptive: how long it spins first (default 20)"
    )
    cores = parser.add_argument_group(
        "what it wishes of cores that an iokernel moves; of guarantee and weight it gets what [apps.NAME] or "
        "[users.NAME] there allow"
    )
    cores.add_argument(
        "--class",
        dest="kind",
        choices=("latency", "batch"),
        help="latency goes before batch (default: as it is made)",
    )
    cores.add_argument(
        "--guaranteed", type=values.whole_u32, default=0, metavar="N", help="cores whenever it wants them"
    )
    cores.add_argument("--max-cores", type=values.positive_u32, metavar="N", help="most cores (default: one a kthread)")
    cores.add_argument("--weight", type=values.weight, default=1, metavar="N", help="share among equals (default 1)")
    cores.add_argument(
        "--deadline-us", type=values.whole_u32, default=0, metavar="US", help="what its tail should stay under"
    )
    cores.add_argument(
        "--quantum-us",
        type=values.whole_u32,
        metavar="US",
        help="a user-level thread that ran for so long lets others go first at its next probe; 0: never (default: 1000 "
        "of batch, else 0)",
    )
    cores.add_argument(
        "--quantum-signal",
        action="store_true",
        help="and is sent a signal, for code without probes that may be interrupted; if [apps.NAME] or [users.NAME] "
        "there allow it",
    )
    deadline.add_arguments(parser)
    parser.add_argument(
        "--address",
        type=values.interface,
        metavar="A.B.C.D/N",
        help="embedded mode: the application's IPv4 address",
    )
    parser.add_argument("--port", type=values.port, metavar="P", help="UDP port, instead of the handler's own")
    parser.add_argument("--plain", action="store_true", help="module:handler: call it as it is, do not compile it")
    parser.add_argument("--option", action="append", default=[], metavar="K=V", help="an option of the application")
    parser.add_argument(
        "--every", type=values.seconds, default=1.0, metavar="S", help="how often batch work is reported (default 1)"
    )
    tracing.add_arguments(parser)
    parser.add_argument("--seconds", type=values.seconds, metavar="S", help="end after so long (default: at Ctrl-C)")
    parser.add_argument(
        "--stop-s",
        type=values.seconds,
        default=5.0,
        metavar="S",
        help="how long a handler may take to come back at the end; then the process ends with status 1 (default 5)",
    )
    parser.add_argument(
        "--wait",
        type=values.seconds,
        default=5,
        metavar="S",
        help="how long to wait for the iokernel to come up (default 5)",
    )
    parser.add_argument("--with-parent", action="store_true", help="end when the process that started this one ends")
    parser.add_argument("--json", action="store_true", help="print events and the final counters as JSON lines")


def run(options: argparse.Namespace) -> int:
    """Run until SIGINT or SIGTERM, the end of --seconds, or the end of the generated load."""
    from . import service, targets

    if options.with_parent:
        _end_with_parent()
    if options.cpus is not None and len(options.cpus) != options.kthreads:
        raise WrongUsage("--cpus", f"{len(options.cpus)} CPUs for {options.kthreads} kthreads", "give each one CPU")
    deadline.check(options)
    if service.is_service(options.target) and service.can_be_alone(options):
        return service.become(options)
    target = targets.resolve(options.target, options.option, port=options.port, plain=options.plain)
    if target.main is not None:
        _refuse_for_loops(options)
    name = options.name or target.name
    nic = generator = None
    address = options.address
    if options.nic:
        from .nics import open_nic

        nic, generator = open_nic(options.nic, options.kthreads, address, target.port or options.port)
        if address is None and (generator is not None or nic.ipv4 is None):
            address = "10.77.0.2/16"  # whom a generated load asks for
    try:
        with _runtime(options, name, target, nic, address) as runtime:
            if options.replace and runtime.member is None:
                hint = f"members = 2 or more in [apps.{name}] there lets a new version join beside the old one"
                raise WrongUsage("--replace", f"{name} is of no group", hint)
            if target.main is not None:
                return _run_loop(options, name, target.main, runtime)
            return _serve(options, name, target, runtime, generator)
    finally:
        _tell_recording(options, nic)
        if nic is not None:
            nic.close()
        if generator is not None:
            generator.close()


def _refuse_for_loops(options: argparse.Namespace) -> None:
    if options.work is not None:
        raise WrongUsage("--work", "a loop of asyncio counts no work", "end it by --seconds")
    if options.kthreads != 1:
        raise WrongUsage("--kthreads", f"a loop of asyncio has one, not {options.kthreads}", "start several of a group")
    if (options.nic or "").startswith("loadgen:"):
        raise WrongUsage("--nic", "a generated load is for handlers", "give it a tap, or an iokernel's --socket")


def _end_with_parent() -> None:
    """Have the kernel send SIGTERM when the parent ends, however it does (prctl(2), PR_SET_PDEATHSIG)."""
    import ctypes
    import signal

    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, int(signal.SIGTERM))
    if os.getppid() != parent:  # it ended before we asked
        raise CorelaneError("run with the parent", "it has ended already")


def _runtime(options: argparse.Namespace, name: str, target: Target, nic: Any, address: str | None) -> Runtime:
    """The runtime; waits for an iokernel that is still starting."""
    from ..libos import CoreShare, Runtime, Scheduler

    trace = tracing.of(options)
    spin = {} if options.spin_us is None else {"spin_us": options.spin_us}
    deadline = time.monotonic() + (options.wait if nic is None else 0)
    while True:
        try:
            return Runtime(
                None if nic is not None else options.socket or default_socket(),
                nic=nic,
                name=name,
                kthreads=options.kthreads,
                kind=options.kind or target.kind,
                adopted=int(target.main is not None),
                poll=options.poll,
                cpus=options.cpus,
                address=address,
                scheduler=Scheduler(
                    quantum_us=options.quantum_us,
                    quantum_signal=options.quantum_signal,
                    stop_s=options.stop_s,
                    **spin,
                ),
                share=CoreShare(
                    guaranteed=options.guaranteed,
                    max_cores=options.max_cores or 0,
                    weight=options.weight,
                    deadline_us=options.deadline_us,
                ),
                trace=trace,
                on_event=lambda event, text: say(options, event, text),
            )
        except CorelaneError as e:
            if e.errno not in (errno.ENOENT, errno.ECONNREFUSED) or time.monotonic() >= deadline:
                raise
            time.sleep(0.05)


def _cpus_of(options: argparse.Namespace, name: str, runtime: Runtime) -> list[int]:
    """CPUs of the kthreads: as asked for, else as the iokernel gave them; empty: they were not pinned."""
    if options.cpus is not None or not (options.json and runtime.attached):
        return list(options.cpus or ())
    from .watch import snapshot

    try:
        apps = snapshot(options.socket or default_socket())["apps"]
    except CorelaneError:  # it has just gone, and that is an event of its own
        return []
    same = (app for app in apps if (app["name"], app["member"]) == (name, runtime.member))
    return next((list(app["cpus"]) for app in same), [])


def _serve(options: argparse.Namespace, name: str, target: Target, runtime: Runtime, generator: Any) -> int:
    service = target.setup(runtime)
    runtime.publish(service.stats)
    work: deadline.Work | None = None
    try:
        if options.work is not None:
            work = deadline.Work(options, name, runtime, service.stats)
        with runtime.ended_by_signals(), runtime.ends_in_time():  # before anybody can know that it serves
            runtime.start()
            others = runtime.ready(replace=options.replace)
            _announce(options, name, runtime, service)
            if options.replace:
                tell_replaced(options, name, runtime, others)
            if generator is not None:
                _load(runtime, generator)
            else:
                _wait(options, runtime, service, runtime.wait if work is None else work.wait)
            _stop(options, runtime, service)
        _finish(options, name, runtime, service, generator)
    finally:
        # Handlers point into the service: the runtime goes first.
        runtime.close()
        service.close()
    runtime.wait(0)  # raises what was found to have failed only then
    return 1 if work is not None and work.late else 0


def _run_loop(options: argparse.Namespace, name: str, main: Main, runtime: Runtime) -> int:
    """A program for asyncio, on this thread."""
    from .coroutines import Program

    telling: list[threading.Thread] = []

    def ready(program: Program, others: int) -> None:
        _announce(options, name, runtime, program)
        if options.replace:
            telling.append(threading.Thread(target=tell_replaced, args=(options, name, runtime, others)))
            telling[-1].start()

    program = Program(main, runtime, ready, replace=options.replace)
    try:
        runtime.publish(program.stats)
        program.run(options.seconds)
        notify(STOPPING)
    finally:
        program.close()
        runtime.stop()
        for thread in telling:
            thread.join()
    _finish(options, name, runtime, program, None)
    return 0


def _load(runtime: Runtime, generator: Any) -> None:
    """The generated load, or as much of it as there was before a signal. Raises what has failed meanwhile."""
    generator.start()
    while generator.running:
        if runtime.wait(LOOK_S):
            generator.abort()
            break
    generator.wait()
    runtime.wait(0)


def _stop(options: argparse.Namespace, runtime: Runtime, service: Service) -> None:
    """Stop it, and tell systemd. What is under way may end before, if the service knows of it.

    If a kthread's code does not come back the process ends here: nothing that it uses can be closed."""
    from ..apps.registry import Drains

    notify(STOPPING)
    _in_time(options, runtime.drain)  # new connections go to the other members of its group, before it refuses them
    if isinstance(service, Drains):
        service.drain()
    elif runtime.member is not None:
        _in_time(options, runtime.wait_closed)
    try:
        runtime.stop()
    except CorelaneError as error:
        if error.errno != errno.ETIMEDOUT:
            raise
        say(options, "stuck", str(error))
        end_now(1)


def _in_time(options: argparse.Namespace, wait: Callable[[], None]) -> None:
    """Wait for it, as long as it does; then say that it took longer."""
    try:
        wait()
    except CorelaneError as error:
        if error.errno != errno.ETIMEDOUT:
            raise
        say(options, "undrained", str(error))


def _tcp_ports(service: Service) -> tuple[int, ...]:
    from ..apps.registry import tcp_ports_of

    return tcp_ports_of(service)


def _serves(service: Service) -> str:
    """What it does, in words: on which ports."""
    kinds = {"UDP": service.ports, "TCP": _tcp_ports(service)}
    parts = [f"{kind} port {', '.join(map(str, ports))}" for kind, ports in kinds.items() if ports]
    return f"serves {' and '.join(parts)}" if parts else "works"


def _announce(options: argparse.Namespace, name: str, runtime: Runtime, service: Service) -> None:
    does = _serves(service)
    socket = options.socket or default_socket()
    where = f"attached to {socket}" if runtime.attached else f"embedded on {options.nic}"
    say(
        options,
        "serving",
        f"{name} {does} at {runtime.address} ({where}, {runtime.kthreads} kthread{'s' * (runtime.kthreads != 1)})",
        app=name,
        target=options.target,
        pid=os.getpid(),
        port=service.ports[0] if service.ports else None,
        ports=list(service.ports),
        tcp_ports=list(_tcp_ports(service)),
        address=runtime.address,
        mac=runtime.mac,
        cpus=_cpus_of(options, name, runtime),
        kthreads=runtime.kthreads,
        attached=runtime.attached,
        socket=socket if runtime.attached else None,
        nic=options.nic,
    )


def _wait(
    options: argparse.Namespace, runtime: Runtime, service: Service, wait: Callable[[float | None], object]
) -> None:
    """Until a signal, the end of --seconds or of the work. What works by itself is reported each --every seconds."""
    from ..apps.registry import Work

    if not isinstance(service, Work):
        wait(options.seconds)
        return
    over = threading.Event()

    def report() -> None:
        while not over.wait(options.every):
            text, numbers = service.progress()
            say(options, "work", text, **numbers)

    reporter = threading.Thread(target=report, name="corelane-report")
    reporter.start()
    try:
        wait(options.seconds)  # here, in the main thread: it takes the signals
    finally:
        over.set()
        reporter.join()
        service.end()


def _tell_recording(options: argparse.Namespace, nic: Any) -> None:
    """What became of record=FILE."""
    from ..drivers.nic.wrap import recorded

    if nic is not None and (told := recorded(nic)):
        say(options, "recording", told.text, **told.facts)


def _finish(options: argparse.Namespace, name: str, runtime: Runtime, service: Service, generator: Any) -> None:
    """The final counters."""
    from .watch import FOR_OTHERS

    stats = runtime.stats()
    dropped = {reason: n for reason, n in stats.dropped.items() if n}
    dropped |= {reason: n for reason, n in stats.net.items() if n and reason.startswith("tx_dropped_")}
    counts = service.stats()
    text = f"{name} handled {stats.net['handled']:,} requests, replied to {stats.net['replied']:,}"
    if "requests" in counts and not service.ports:  # what came was bytes: what they meant the service knows
        text = f"{name} answered {counts['requests']:,} requests"
    elif "endpoints" in counts:
        text = f"{name} had {counts['endpoints']:,} endpoints"
    text += f", failed {failed:,} in the handler" if (failed := stats.net["handler_errors"]) else ""
    lost = [f"{n:,} {reason}" for reason, n in dropped.items() if f"dropped_{reason}" not in FOR_OTHERS]
    text += f", dropped {', '.join(lost) or 'none'}"
    text += "".join(f"; {hint}" for reason, hint in _HINTS.items() if reason in dropped)
    text += "; another process has taken over" if runtime.replaced else ""
    more = {"net": stats.net, "dropped": dropped, "sched": stats.sched, "service": counts}
    say(options, "stopped", text, replaced=runtime.replaced, **more)
    if generator is not None:
        from .nics import describe_load

        line, numbers = describe_load(name, generator)
        say(options, "load", line, **numbers)
