"""corelane load URL: open-loop load and latency of any server."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ..runtime.errors import CorelaneError
from ..runtime.files import write_whole
from ..runtime.hist import Hist
from . import values
from .outputs import check_plot, check_writable
from .usage import WrongUsage, words_are_wrong

if TYPE_CHECKING:
    from ..bench.load.command import Job, Outcome
    from ..bench.load.measuring import Plan
    from ..bench.load.sockload.sockload import Functions
    from ..libos import Runtime

IMPORTS = ("..bench.load.command", "..bench.load.reporting")


OUTPUTS = ("json", "hdr", "plot", "html", "record")
SERVERS, OWN_DESCRIPTORS = 2, 256  # both sides of --vs; a reflector's are closed by then
DATAGRAM_MOST = 65507  # RFC 768, in a packet of IPv4
DOUBLINGS = 1024  # of a rate that a search begins with: so far it goes


def rate(text: str) -> tuple[float, float]:
    """A rate, or two with ".." between them: "500", "10k", "1.5M", "10k..2M"."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kM]?)(?:\.\.(\d+(?:\.\d+)?)([kM]?))?", text, re.ASCII)
    low = high = 0.0
    if found:
        unit = {"": 1.0, "k": 1e3, "M": 1e6}
        low = float(found[1]) * unit[found[2]]
        high = float(found[3]) * unit[found[4]] if found[3] else low
    if not 0 < low <= high <= 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no rate: write it as 10k, or as 10k..2M")
    return low, high


def fraction(text: str) -> float:
    """A number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return value


def exponent(text: str) -> float:
    """Of a Zipf distribution."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to below 100")
    return value


def header(text: str) -> str:
    """A header line of HTTP."""
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[ \t]*[^\r\n]*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no header: write it as 'Name: value'")
    return text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, in groups."""
    parser.add_argument("url", help="memcached:// redis:// rediss:// http:// https:// udp:// tcp:// HOST:PORT")
    what = parser.add_argument_group("load")
    what.add_argument("--rate", type=rate, default=(1000.0, 1000.0), metavar="R", help="requests/s, 10k, or 10k..2M")
    what.add_argument("--seconds", type=values.seconds, default=10.0, metavar="S", help="of each load (default 10)")
    what.add_argument("--warm", type=values.seconds, default=1.0, metavar="S", help="before it, not measured")
    connections, depth = values.between(1, 1 << 20), values.between(1, 1 << 16)
    what.add_argument("--connections", type=connections, default=16, metavar="N", help="(default 16)")
    what.add_argument("--depth", type=depth, default=1, metavar="N", help="requests outstanding on each")
    what.add_argument("--fresh", action="store_true", help="a new connection for each request")
    what.add_argument("--arrivals", default="poisson", metavar="KIND", help="poisson, uniform, bursty, replay:FILE")
    what.add_argument("--timeout", type=values.seconds, default=0.0, metavar="S", help="give a connection up after it")
    what.add_argument("--drain", type=values.seconds, default=1.0, metavar="S", help="await answers after the end")
    what.add_argument("--seed", type=values.whole, default=1, metavar="N", help="of all that is drawn")
    _add_workload(parser.add_argument_group("what is asked for"))
    _add_search(parser.add_argument_group("more than one load"))
    client = parser.add_argument_group("client")
    client.add_argument("--threads", type=values.between(1, 64), default=1, metavar="N", help="that send (default 1)")
    client.add_argument("--cpus", type=values.distinct_cpus, default=(), metavar="A,B", help="pin them there")
    client.add_argument(
        "--sleep", action="store_true", help="sleep for answers instead of polling: slower, saves a core"
    )
    client.add_argument("--no-share", action="store_true", help="do not measure the client's own share")
    client.add_argument("--deep-idle", action="store_true", help="leave idle states alone")
    _add_way(parser.add_argument_group("what carries it, instead of the kernel's sockets"))
    _add_tls(parser.add_argument_group("TLS"))
    _add_outputs(parser.add_argument_group("output"))


def _add_workload(group: Any) -> None:
    group.add_argument("--workload", default="get", metavar="NAME", help="get, set, ycsb-a to ycsb-f, etc, usr, sys")
    group.add_argument("--keys", type=values.positive_u32, metavar="N", help="(default 100000)")
    group.add_argument("--zipf", type=exponent, metavar="S", help="popularity of keys (default 0.99; 0: uniform)")
    group.add_argument("--key-bytes", metavar="N", help="of a key: 17, or 16..40")
    group.add_argument("--value-bytes", metavar="N", help="of a value: 64, 4K, 64..1024, etc")
    group.add_argument("--get", type=fraction, metavar="F", help="GETs and SETs only, so many of them GETs")
    group.add_argument("--no-preload", action="store_true", help="do not store the keys before")
    of_echo = values.between(32, 64 << 20)
    group.add_argument("--request-bytes", type=of_echo, default=64, metavar="N", help="udp, tcp: of an echo")
    group.add_argument("--request", metavar="MODULE:FUNCTION", help="udp, tcp: writes a request (numba)")
    group.add_argument("--reply", metavar="MODULE:FUNCTION", help="says whether a reply is whole and right (numba)")
    group.add_argument("--header", type=header, action="append", default=[], metavar="LINE", help="http: one more")


def _add_way(group: Any) -> None:
    place = group.add_mutually_exclusive_group()
    place.add_argument(
        "--socket", type=values.socket, metavar="PATH", help="the dataplane: an application of the iokernel there"
    )
    place.add_argument("--nic", metavar="NIC", help="a NIC of its own: af_xdp:IF or tap:NAME, as of corelane run")
    group.add_argument("--address", type=values.interface, metavar="A.B.C.D/N", help="with --nic: its IPv4 address")
    group.add_argument("--name", type=values.app_name, default="load", help="with --socket: the application's (load)")


def _add_tls(group: Any) -> None:
    group.add_argument("--insecure", action="store_true", help="do not look at the server's certificate")
    group.add_argument("--ca", metavar="FILE", help="trust certificates signed by these (PEM), not this machine's")


@contextlib.contextmanager
def carried(options: argparse.Namespace) -> Iterator[Runtime | None]:
    """The runtime that carries the load; None: the kernel's sockets do. WrongUsage if words do not go together."""
    if not options.socket and not options.nic:
        if options.address:
            raise WrongUsage("--address", "the kernel's sockets have the machine's addresses", "give a --nic beside it")
        yield None
        return
    if options.threads > 1:
        raise WrongUsage(
            f"--threads {options.threads}", "over the dataplane there is one thread of load", "leave it out"
        )
    if options.socket and options.address:
        raise WrongUsage("--address", "the iokernel gives addresses", "say there which one, by [apps.NAME] and --name")
    from ..libos import Runtime

    with contextlib.ExitStack() as stack:
        nic = None
        if options.nic:
            from .nics import open_nic

            if options.nic.partition(":")[0] not in ("af_xdp", "tap"):
                raise WrongUsage(f"--nic {options.nic}", "no server is beyond it", "give af_xdp:IF or tap:NAME")
            nic, _ = open_nic(options.nic, 1, options.address)
            stack.callback(nic.close)
            if options.address is None and nic.ipv4 is None:
                raise WrongUsage(f"--nic {options.nic}", "it has no address", "give one with --address A.B.C.D/N")
        runtime = Runtime(
            options.socket,
            nic=nic,
            name=options.name if options.socket else None,
            kthreads=1,
            cpus=options.cpus[:1] or None,
            address=options.address,
        )
        stack.callback(runtime.close)
        runtime.start()
        yield runtime


def _way(options: argparse.Namespace) -> str:
    if options.socket:
        return f"the iokernel at {options.socket}"
    return f"{options.nic}, corelane's stack" if options.nic else "kernel sockets"


def _add_search(group: Any) -> None:
    group.add_argument("--sweep", action="store_true", help="from the lower rate up, until the tail breaks")
    group.add_argument("--slo", metavar="p99=100us", help="the highest rate that keeps it; with --sweep, where it ends")
    group.add_argument("--vs", metavar="URL", help="load another server in turns with it")
    group.add_argument("--rounds", type=values.positive, default=3, metavar="N", help="of turns (default 3)")
    points = values.between(1, 10000)
    group.add_argument("--points", type=points, default=10, metavar="N", help="rates of a sweep (default 10)")
    group.add_argument("--tries", type=values.positive, default=24, metavar="N", help="loads of a search (default 24)")


def _add_outputs(group: Any) -> None:
    group.add_argument("--percentile", default="99", metavar="P", help="the highest one wanted (default 99)")
    group.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write JSON to FILE, or to stdout")
    group.add_argument("--hdr", metavar="FILE", help="write an HdrHistogram log")
    group.add_argument("--plot", metavar="FILE.png", help="write a plot (needs matplotlib)")
    group.add_argument("--html", metavar="FILE", help="write one page with everything in it")
    group.add_argument("--record", metavar="FILE", help="write arrivals and latencies, for --arrivals replay:FILE")


def functions(options: argparse.Namespace) -> Functions | None:
    """The functions of --request and --reply, compiled; None if there are none."""
    if options.request is None:
        if options.reply is not None:
            raise WrongUsage("--reply", "there is no --request beside it", "give both")
        return None
    from ..bench.load.custom import compiled

    ask = _imported("--request", options.request)
    return compiled(ask, _imported("--reply", options.reply) if options.reply else None)


def _imported(option: str, text: str) -> Callable[..., Any]:
    from ..runtime.imports import hidden, user_module

    module, _, name = text.partition(":")
    if not module or not name.isidentifier():
        raise WrongUsage(f"{option} {text}", "it is not of the form module:function")
    loaded = user_module(f"import {module}", module)
    found = getattr(loaded, name, None)
    if not callable(found):
        why = f"{module} has no function {name}"
        raise CorelaneError(f"{option} {text}", why, hidden(module, getattr(loaded, "__file__", None)).rstrip("; "))
    function: Callable[..., Any] = found
    return function


def _plan(url: str, options: argparse.Namespace, custom: Functions | None, over: Runtime | None) -> Plan:
    from ..bench.load import arrivals, targets, workloads
    from ..bench.load.measuring import Plan

    with words_are_wrong():
        target = targets.parse(url)
        workload = workloads.changed(
            workloads.find(options.workload),
            keys=options.keys,
            zipf=options.zipf,
            key_bytes=options.key_bytes,
            value_bytes=options.value_bytes,
            get=options.get,
        )
        drawn = arrivals.parse(options.arrivals)
        if custom and target.scheme not in ("udp", "tcp"):
            raise WrongUsage("--request", f"{target.scheme}:// has requests of its own", "use it with udp:// or tcp://")
        if target.udp and options.request_bytes > DATAGRAM_MOST:
            why = f"a datagram of UDP has {DATAGRAM_MOST} bytes at most"
            raise WrongUsage(f"--request-bytes {options.request_bytes}", why)
    return Plan(
        target=targets.resolved(target),
        workload=workload,
        arrivals=drawn,
        custom=custom,
        connections=options.connections,
        depth=options.depth,
        threads=options.threads,
        cpus=tuple(options.cpus),
        spin=not options.sleep,
        fresh=options.fresh,
        preload=not options.no_preload,
        request_bytes=options.request_bytes,
        timeout_s=options.timeout,
        drain_s=options.drain,
        warm_s=options.warm,
        seed=options.seed,
        asked=_percentile(options.percentile),
        headers=tuple(options.header),
        over=over,
        way=_way(options),
        insecure=options.insecure,
        ca=options.ca or "",
    )


def _percentile(text: str) -> float:
    try:
        value = float(text.removeprefix("p")) / 100
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise WrongUsage(f"--percentile {text}", "it is not between 0 and 100")
    return value


def job_of(options: argparse.Namespace, over: Runtime | None = None) -> Job:
    """What the options ask for. WrongUsage or CorelaneError if that cannot be."""
    from dataclasses import replace

    from ..bench.load import searching
    from ..bench.load.command import Job

    if not options.seconds:
        raise WrongUsage("--seconds 0", "nothing can be measured in no time")
    custom = functions(options)
    plan = _plan(options.url, options, custom, over)
    other = _plan(options.vs, options, custom, over) if options.vs else None
    with words_are_wrong():
        slo = searching.parse_limit(options.slo) if options.slo else None
    if slo:
        plan = replace(plan, asked=max(plan.asked, slo.q))
        other = other and replace(other, asked=plan.asked)
    ranged = options.rate[0] < options.rate[1]
    given, seconds = options.rate, options.seconds
    if (options.sweep or slo) and not ranged:
        given = (given[0], min(DOUBLINGS * given[0], 1e9))
    if plan.arrivals.kind == "replay":
        if ranged or options.sweep or slo:
            raise WrongUsage("--arrivals replay", "recorded arrivals have a rate of their own", "leave --rate out")
        seconds = min(options.seconds, plan.arrivals.seconds - plan.warm_s)
        if seconds <= 0:
            why = f"they end after {plan.arrivals.seconds:.3g} s, and what --warm {plan.warm_s:g} has is not measured"
            raise WrongUsage("--arrivals replay", why, "give a shorter --warm, or 0")
        if not (mean := plan.arrivals.rate(plan.warm_s, seconds)):
            why = f"none is due in the {seconds:.3g} s that are measured, after --warm {plan.warm_s:g}"
            raise WrongUsage("--arrivals replay", why, "give another --warm, or more --seconds")
        given = (mean, mean)
    return Job(
        plan,
        given,
        seconds,
        other=other,
        rounds=options.rounds,
        sweep=options.sweep or (ranged and slo is None),
        slo=slo,
        points=options.points,
        tries=options.tries,
        share=not options.no_share,
    )


def allow_descriptors(wanted: int) -> None:
    """Raise this process's limit of open files, as far as may be: a shell's is 1024 as a rule."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def run(options: argparse.Namespace) -> int:
    """Load, and say what came of it. 0; 1 if a server could not be loaded; 130 if it was interrupted."""
    with carried(options) as over:
        return _run(options, job_of(options, over))


def _run(options: argparse.Namespace, job: Job) -> int:
    from ..bench.load import command
    from ..bench.load.reporting import report

    for name in OUTPUTS:
        path = getattr(options, name)
        if path and path != "-":
            (check_plot if name == "plot" else check_writable)(Path(path))
    if options.hdr:
        from ..bench.load.exporting import hdr_histogram

        hdr_histogram(Hist())  # what is not installed is said before measuring
    allow_descriptors(SERVERS * options.connections + OWN_DESCRIPTORS)
    with command.session_for(job, options) as session:
        outcome = command.run(job, session)
    document = session.document()
    told = sys.stderr if options.json == "-" else sys.stdout
    print(report(document), file=told, flush=True)  # before what a full disk may stop
    write_outputs(options, document, outcome, told)
    return 130 if outcome.interrupted else 0


def write_outputs(options: argparse.Namespace, document: dict[str, Any], outcome: Outcome, told: TextIO) -> None:
    """Every file that was asked for; `told` of each. If one cannot be written the others are, before the error."""
    from ..bench.harness import document as doc
    from ..bench.load import exporting
    from ..bench.load.page import page

    loads = [(name, measured) for name, each in outcome.measured.items() for measured in each]
    if options.json == "-":
        print(json.dumps(document, indent=1, allow_nan=False))
    writers: dict[str, Callable[[Path], None]] = {
        "json": lambda path: doc.write(document, path),
        "hdr": lambda path: exporting.write_hdr(loads, outcome.started_s, path),
        "record": lambda path: write_whole(path, exporting.recorded(measured for _, measured in loads).encode()),
        "html": lambda path: write_whole(path, page(document, loads).encode()),
    }
    if loads:
        writers["plot"] = lambda path: exporting.canvas(document).finish(path, document)
    failed: OSError | None = None
    for name, write in writers.items():
        if (asked := getattr(options, name)) and asked != "-":
            path = Path(asked)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                write(path)
                print(f"wrote {path}", file=told)
            except OSError as error:
                failed = failed or error
    if failed:
        raise failed
