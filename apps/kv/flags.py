"""memcached's own command line, as far as it means something here: what its test suite and its users start it with."""

from __future__ import annotations

import getopt
import shlex
from typing import Any

from ...runtime.errors import CorelaneError

_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _refuse(flag: str, why: str, do: str) -> CorelaneError:
    return CorelaneError(f"take memcached's option {flag}", why, do)


def _number(flag: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _refuse(flag, f"{text!r} is no number", f"give one, as in {flag} 1024") from None


def _bytes(flag: str, text: str) -> int:
    """A size: bytes, or with k, m or g behind it."""
    unit = _UNITS.get(text[-1:].lower(), 1)
    return _number(flag, text[:-1] if unit > 1 else text) * unit


_ELSEWHERE = {
    "-d": ("it runs in the foreground", "start it by a service manager"),
    "-S": ("there is no authentication", "leave it out"),
    "-Z": ("there is no TLS", "leave it out"),
}
_EXTENDED = {
    "idle_timeout": ("idle_timeout_s", 1),
    "read_buf_mem_limit": ("held_bytes", 1 << 20),
    "resp_obj_mem_limit": ("held_bytes", 1 << 20),
}
_DEFAULTS = {  # of -o: what holds here anyway
    *("maxconns_fast", "modern", "no_modern", "lru_crawler", "no_lru_crawler", "lru_maintainer", "no_lru_maintainer"),
    *("slab_reassign", "no_slab_reassign", "hash_algorithm", "hashpower", "slab_automove", "no_hashexpand"),
    *("slab_automove_ratio", "slab_automove_window", "slab_chunk_max", "lru_crawler_sleep", "lru_crawler_tocrawl"),
    *("hot_lru_pct", "warm_lru_pct", "hot_max_factor", "warm_max_factor", "temporary_ttl", "watcher_logbuf_size"),
    *("worker_logbuf_size", "drop_privileges", "no_drop_privileges", "relaxed_privileges"),
}


def options_of(line: str, *, address: str = "", kthreads: int = 0) -> dict[str, Any]:
    """Fields of Options for a line of memcached's options. Raises CorelaneError for what means nothing here.

    address, kthreads: the runtime's, which -l and -t may name and do not change."""
    try:
        flags, rest = getopt.getopt(shlex.split(line), "p:U:s:m:I:c:b:Mvl:t:R:CFWXB:dSZo:u:rkf:n:a:")
    except (getopt.GetoptError, ValueError) as error:
        raise CorelaneError("read memcached's options", str(error), "see the table of them in docs/kv.md") from None
    if rest:
        raise CorelaneError("read memcached's options", f"{rest[0]!r} is none", "see the table of them in docs/kv.md")
    out: dict[str, Any] = {}
    for flag, value in flags:
        if flag in ("-l", "-t"):
            _agree(flag, value, address, kthreads)
        else:
            out.update(_one(flag, value))
    return out


def _agree(flag: str, value: str, address: str, kthreads: int) -> None:
    """What the runtime was given before: refused if it is something else."""
    if flag == "-l" and value not in (address, "0.0.0.0"):
        where = f"the address is the runtime's{f', {address}' if address else ''}"
        raise _refuse(flag, where, "give `corelane run --address`, or [apps.NAME] of the iokernel")
    if flag == "-t" and _number(flag, value) != kthreads:
        threads = f"threads are kthreads of the runtime{f', which has {kthreads}' if kthreads else ''}"
        raise _refuse(flag, threads, "give `corelane run --kthreads`")


def _one(flag: str, value: str) -> dict[str, Any]:
    if flag in _ELSEWHERE:
        raise _refuse(flag, *_ELSEWHERE[flag])
    if flag == "-o":
        return {name: number for part in value.split(",") for name, number in _extended(part).items()}
    made: dict[str, dict[str, Any]] = {
        "-C": {"no_cas": True},
        "-M": {"no_evict": True},
        "-F": {"no_flush": True},
        "-W": {"no_watch": True},
        "-X": {"no_dump": True},
        "-s": {"unix": value},
        "-a": {"unix_mode": value},
        "-v": {},  # there is no log to make more talkative
        "-r": {},
        "-u": {},
        "-k": {},
        "-f": {},  # of slabs, which are not here, as -n
        "-n": {},
    }
    if flag in made:
        return made[flag]
    if flag == "-c" and _number(flag, value) < 1:
        raise _refuse(flag, "one client at least connects", "give 1 or more, as in -c 1024")
    if flag == "-R" and _number(flag, value) < 1:
        raise _refuse(flag, "a turn is one command at least", "give 1 or more, as in -R 20")
    if flag == "-B":
        return {"protocol": value}
    numbers = {"-p": "tcp_port", "-U": "udp_port", "-c": "connections", "-b": "backlog", "-R": "requests_per_event"}
    if flag in numbers:
        return {numbers[flag]: _number(flag, value)}
    if flag == "-m":
        return {"memory_bytes": _number(flag, value) << 20}
    return {"item_max_bytes": _bytes(flag, value)}


def _extended(part: str) -> dict[str, Any]:
    name, _, value = part.partition("=")
    if name in _EXTENDED:
        field, unit = _EXTENDED[name]
        return {field: _number(f"-o {name}", value) * unit}
    if name in _DEFAULTS:
        return {}
    raise _refuse(f"-o {name}", "it means nothing here", "leave it out")
