"""corelane up: an iokernel in the foreground, from a configuration file and what the command line says otherwise."""

from __future__ import annotations

import argparse
import functools
import json
from typing import TYPE_CHECKING, Any

from ..runtime import imports
from ..runtime.notify import READY, STOPPING, notify
from . import values
from .streams import tell
from .usage import words_are_wrong

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..iokernel import Iokernel
    from ..runtime.config import Config
    from ..runtime.ending import Ending


IMPORTS = ("..iokernel",)
_NOTIFIED = {"iokernel": READY, "stopping": STOPPING}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="TOML file; without one, all defaults")
    parser.add_argument(
        "--socket",
        type=values.socket,
        metavar="PATH",
        help="control socket (default: /run/corelane.sock as root, else in $XDG_RUNTIME_DIR)",
    )
    parser.add_argument(
        "--nic",
        metavar="NIC",
        help="uplink: none, tap:NAME[,host=ADDRESS], af_xdp:IF, pcap:FILE[,speed=X][,loops=N] (a replay), or "
        "loadgen:echo|memcached[,rate=R][,seconds=S][,app=NAME]; on each of them record=FILE writes its traffic to a "
        "pcap file, and loss, duplicate, reorder, delay, corrupt=PROBABILITY, delay_us=US, seed=N make it a bad wire, "
        "link.rate_bps=R, link.delay_us=US and others of [nic.link] a slow line; "
        "other words are options of [nic], as in tap:cl0,queues=2",
    )
    parser.add_argument(
        "--cores", type=values.loop_cpus, metavar="A,B", help="CPUs to poll on, a loop each (default: the quietest)"
    )
    parser.add_argument("--poll", choices=("spin", "adaptive", "block"), help="what an idle loop does")
    parser.add_argument(
        "--policy",
        metavar="SPEC",
        help="who gets the worker cores: static, shenango, delay (the default), fair, attained, module:function or "
        "file.so:symbol; none: kthreads stay where they were put. Its settings: --set policy.NAME=VALUE",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any option, as in network.subnet=10.9.0.0/16"
    )
    parser.add_argument("--sample", action="store_true", help="print a configuration file with every option, and end")
    parser.add_argument("--json", action="store_true", help="print events as JSON lines")


def configuration(options: argparse.Namespace) -> Config:
    """The configuration of a command line. ConfigError names what is wrong in file or option."""
    from ..runtime import config

    overrides = []
    if options.socket is not None:
        overrides.append(f"iokernel.socket={options.socket}")
    if options.cores is not None:
        overrides.append(f"iokernel.cores=[{options.cores}]" if options.cores != "auto" else "iokernel.cores=auto")
    if options.poll is not None:
        overrides.append(f"iokernel.poll={options.poll}")
    if options.policy is not None:
        _check_policy(options.policy)
        overrides.append(f"cores.policy={options.policy}")
    if options.nic is not None:
        overrides += _nic_overrides(options.nic)
    settled = config.load(options.config)
    with words_are_wrong():
        return config.override(settled, [*overrides, *options.set])


def _check_policy(spec: str) -> None:
    if spec == "none":
        return
    from ..iokernel.policy.policy import check_spec

    with words_are_wrong():
        check_spec(spec)


def _nic_overrides(text: str) -> list[str]:
    """The assignments that --nic stands for. A load generator's own words are not options: `_under_load` reads them."""
    from .nics import FAULTS, parse, split_wrapping

    driver, device, words = parse(text)
    wrapping, rest = split_wrapping(words)
    made = [f"nic.{'fault.' if key in FAULTS else ''}{key}={value}" for key, value in wrapping.items()]
    if driver == "loadgen":
        return made
    if "host" in rest:
        made.append(f"network.host_address={rest.pop('host')}")
    made += [f"nic.{key}={value}" for key, value in rest.items()]
    return [*made, *([f"nic.device={device}"] if device else []), f"nic.driver={driver}"]


def run(options: argparse.Namespace) -> int:
    """Run until SIGINT or SIGTERM, or until the generated load has ended."""
    if options.sample:
        from ..runtime import config

        print(config.sample(), end="")
        return 0
    settled = configuration(options)
    if options.nic is not None and options.nic.startswith("loadgen"):
        return _under_load(options, settled)
    from ..iokernel import main

    imports.come_first()  # a policy of the user's own may lie there

    def report(event: str, text: str, /, **facts: object) -> None:
        _say(options, event, text, **facts)

    return main.run(settled, report)


def _say(options: argparse.Namespace, event: str, text: str, **more: object) -> None:
    if event in _NOTIFIED:
        notify(_NOTIFIED[event], f"STATUS={text}")
    if options.json:
        print(json.dumps({"event": event, "text": text, **more}) + "\n", end="", flush=True)  # by any thread: at once
    else:
        tell(f"corelane up: {text}")


def has_started(iokernel: Iokernel, name: str) -> bool:
    """Whether an application of that name is attached, and its runtime runs, which announces its address first of all.

    Until then it may compile its handlers."""
    return any(app["name"] == name and app["tx_taken"] for app in iokernel.stats()["apps"])


def _under_load(options: argparse.Namespace, config: Config) -> int:
    """An iokernel whose uplink is the load generator: loads the application of that name once that has started."""
    import ipaddress

    from ..drivers.nic.wrap import recorded
    from ..iokernel import main
    from ..iokernel.control.addresses import Addresses
    from ..runtime.ending import Ending
    from .nics import open_nic, parse, split_wrapping

    _, traffic, words = parse(options.nic)
    _, words = split_wrapping(words)  # `config` has those
    name = words.pop("app", "kv" if traffic == "memcached" else "echo")
    addresses = Addresses(main.network(config), config.apps)
    address = str(ipaddress.IPv4Address(addresses.ipv4(name, config.app(name), 0)))
    spec = f"loadgen:{traffic}" + "".join(f",{key}={value}" for key, value in words.items())
    inner, generator = open_nic(spec, 1, address)
    nic = main.wrap(inner, config)
    try:
        with (
            main.open_storage(config, functools.partial(_say, options)) as areas,
            main.make(config, nic, main.place(config), areas, functools.partial(_say, options)) as iokernel,
        ):
            text = f"iokernel on {iokernel.socket_path} waits for the application {name} to load it"
            _say(options, "iokernel", text, **main.facts(iokernel, "loadgen"))
            stop = Ending()
            with stop.by_signals():
                while not has_started(iokernel, name):
                    main.check_serves(iokernel)
                    if stop.wait(0.05):
                        return 0
                _load(options, name, generator, stop, functools.partial(main.check_serves, iokernel))
            if told := recorded(nic):
                _say(options, "recording", told.text, **told.facts)
    finally:
        nic.close()
        generator.close()
    return 0


def _load(
    options: argparse.Namespace, name: str, generator: Any, stop: Ending, check_serves: Callable[[], None]
) -> None:
    from .nics import describe_load

    generator.start()
    while generator.running:
        check_serves()
        if stop.wait(0.05):
            generator.abort()
            return
    generator.wait()
    text, numbers = describe_load(name, generator)
    _say(options, "load", text, **numbers)
