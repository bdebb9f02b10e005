"""NICs by their names on the command line: DRIVER[:DEVICE][,key=value...], as in tap:cl0 or loadgen:echo,rate=1e5."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..runtime.errors import CorelaneError
from .streams import tell
from .usage import WrongUsage, words_are_wrong
from .values import DAY_S

if TYPE_CHECKING:
    from ..drivers.nic.nic import Nic
    from ..runtime.config import LinkConfig

FORMS = "tap:NAME, af_xdp:IF, pcap:FILE, loadgen:echo|memcached[,rate=R][,seconds=S]"
DRIVERS = ("none", "tap", "af_xdp", "pcap", "loadgen")
NAMED = ("tap", "af_xdp", "pcap")
FAULTS = ("loss", "duplicate", "reorder", "delay", "corrupt", "delay_us", "seed")
WRAPPING = ("record", *FAULTS)
"""Words that any NIC may have, and any that begins with LINK: options of `wrapped` in drivers/nic/wrap.py."""
LINK = "link."
"""link.rate_bps and the like: options of [nic.link]."""


def parse(text: str) -> tuple[str, str, dict[str, str]]:
    """("af_xdp", "eth0", {"queues": "2"}) of "af_xdp:eth0,queues=2". WrongUsage for anything that is not a name."""
    driver, _, rest = text.partition(":")
    device, *words = rest.split(",")
    driver, *more = driver.split(",")
    words = [*more, *words]
    if driver not in DRIVERS:
        name = device or driver
        hint = f"queues of an interface: --nic af_xdp:{name}; a tap device: --nic tap:{name}; else one of {FORMS}"
        raise WrongUsage(f"--nic {text}", f"there is no driver {driver!r}", hint)
    if driver in NAMED and not device:
        raise WrongUsage(f"--nic {text}", f"{driver} needs a name", f"one of: {FORMS}")
    options: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise WrongUsage(f"--nic {text}", f"{word!r} is not of the form key=value", FORMS)
        options[key] = value
    return driver, device, options


def split_wrapping(options: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """(words for what is put around the NIC, the NIC's own words)."""
    around = {key: value for key, value in options.items() if key in WRAPPING or key.startswith(LINK)}
    return around, {key: value for key, value in options.items() if key not in around}


def _take(text: str, options: dict[str, str], key: str, kind: type, default: Any) -> Any:
    try:
        return kind(options.pop(key)) if key in options else default
    except ValueError as e:
        raise WrongUsage(f"--nic {text}", f"{key}: {e}") from e


def _take_between(text: str, options: dict[str, str], key: str, kind: type, default: Any, low: Any, high: Any) -> Any:
    value = _take(text, options, key, kind, default)
    if not low <= value <= high:
        raise WrongUsage(f"--nic {text}", f"{key}: {value} is outside of its limits", f"give {low:g} to {high:g}")
    return value


def open_nic(text: str, queues: int, address: str | None, port: int | None = None) -> tuple[Nic, Any]:
    """Open a NIC for embedded mode. Returns it, and the load generator if it is one (else None).

    address: the application's own, "a.b.c.d" with or without a prefix; a load generator's server address. port: whom a
    load generator asks unless its words name another one.
    """
    driver, device, words = parse(text)
    around, options = split_wrapping(words)
    nic, generator = _open_device(text, driver, device, options, queues, address, port)
    try:
        return _wrap(text, nic, around), generator
    except CorelaneError:
        nic.close()
        if generator is not None:
            generator.close()
        raise


def _wrap(text: str, nic: Nic, words: dict[str, str]) -> Nic:
    """`nic` with what the words ask for around it."""
    from ..drivers.nic.link.link import linked
    from ..drivers.nic.wrap import RATES, wrapped

    line = _line({key: value for key, value in words.items() if key.startswith(LINK)})
    rates = {rate: _take(text, words, rate, float, 0.0) for rate in RATES}
    delay_us, seed = _take(text, words, "delay_us", float, 0.0), _take(text, words, "seed", int, 1)
    if line is not None:
        nic = linked(nic, line.given(), line.seed)
    return wrapped(nic, rates=rates, delay_us=delay_us, seed=seed, record=words.pop("record", ""))


def _line(words: dict[str, str]) -> LinkConfig | None:
    """[nic.link] with those words, if there are any. WrongUsage for what it does not take."""
    if not words:
        return None
    from ..runtime.config import loads

    with words_are_wrong():
        return loads("", overrides=[f"nic.{key}={value}" for key, value in words.items()]).nic.link


def _open_device(
    text: str,
    driver: str,
    device: str,
    options: dict[str, str],
    queues: int,
    address: str | None,
    asked: int | None,
) -> tuple[Nic, Any]:
    if driver == "loadgen":
        return _loadgen(text, device, options, address, asked)
    if driver not in ("tap", "af_xdp", "pcap") or not device:
        raise WrongUsage(f"--nic {text}", "there is no such NIC for embedded mode", f"one of: {FORMS}")
    nic: Nic
    if driver == "tap":
        from ..drivers.nic.tap.tap import open_tap

        host = options.pop("host", None)
        nic = open_tap(device, queues, tell=lambda text: tell(f"corelane run: {text}"), address=host)
    elif driver == "pcap":
        from ..drivers.nic.pcap import ReplayNic

        if queues != 1:
            raise WrongUsage(f"--nic {text}", "a replay has one queue", "use one kthread")
        speed, loops = _take(text, options, "speed", float, 1.0), _take(text, options, "loops", int, 1)
        nic = ReplayNic(device, speed=speed, loops=loops)
    else:
        from ..drivers.nic.af_xdp.af_xdp import AfXdp

        if address is None:
            raise WrongUsage(f"--nic {text}", "it takes the traffic of one address", "give it with --address a.b.c.d/n")
        number = _take(text, options, "queues", int, queues)
        nic = AfXdp(device, number, addresses=[address.partition("/")[0]], mode=options.pop("mode", "auto"))
    if options:
        nic.close()
        raise WrongUsage(f"--nic {text}", f"{driver} has no option {next(iter(options))!r}")
    return nic, None


def _loadgen(
    text: str, traffic: str, options: dict[str, str], address: str | None, asked: int | None
) -> tuple[Nic, Any]:
    from ..drivers.nic.loadgen.loadgen import Echo, Loadgen, Memcached, Phase

    if traffic not in ("echo", "memcached"):
        raise WrongUsage(f"--nic {text}", f"there is no traffic {traffic!r}", "loadgen:echo or loadgen:memcached")
    rate = _take_between(text, options, "rate", float, 1e5, 0.01, 1e9)
    seconds = _take_between(text, options, "seconds", float, 5.0, 0.001, DAY_S)
    usual = asked or (9000 if traffic == "echo" else 11211)
    port = _take_between(text, options, "port", int, usual, 1, 65535)
    keys = _take_between(text, options, "keys", int, 100_000, 1, 1 << 28)
    if options:
        raise WrongUsage(f"--nic {text}", f"loadgen has no option {next(iter(options))!r}")
    kind = Echo() if traffic == "echo" else Memcached(keys=keys, get_fraction=0.9)
    generator = Loadgen(
        kind,
        server_ip=(address or "10.77.0.2").partition("/")[0],
        server_port=port,
        checksum=True,
        schedule=[Phase(min(0.2, seconds / 5), rate, measured=False), Phase(seconds, rate)],
    )
    return generator.nic(), generator


def describe_load(name: str, generator: Any) -> tuple[str, dict[str, Any]]:
    """What became of a generated load: a line for people, and the numbers for JSON (infinite ones as "inf").

    wrong: answers that are not what the traffic asks for, as an echo with other bytes; errors: those that say so.
    strays: answers that belong to no request, as those of a handler that changes the bytes. None counts as answered.
    """
    got = generator.result()
    tail = got.percentiles()
    line = ", ".join(f"{_percentile(key)} {_us(value)} us" for key, value in tail.items())
    text = f"{name}: {got.sent:,} requests at {got.offered_rps:,.0f}/s, {got.answered:,} answered, {got.late:,} late"
    text += "".join(f", {getattr(got, key):,} {key}" for key in ("wrong", "errors") if getattr(got, key))
    other = generator.other()
    if strays := other["stray"] + other["foreign"]:
        text += f", {strays:,} frames that answer nothing that was asked"
    numbers: dict[str, Any] = {key: value if value < 1e12 else "inf" for key, value in tail.items()}
    numbers |= {key: getattr(got, key) for key in ("sent", "answered", "late", "dropped", "wrong", "errors")}
    numbers["strays"] = strays
    return f"{text}: {line}", numbers


def _percentile(key: str) -> str:
    """p50_us: p50; p999_us: p99.9."""
    name = key.removesuffix("_us")
    return f"{name[:3]}.{name[3:]}" if len(name) > 3 else name


def _us(value: float) -> str:
    """Three digits, or as many as there are before the point, in groups."""
    return f"{value:,.0f}" if 100 <= value < 1e12 else f"{value:.3g}"
