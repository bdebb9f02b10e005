"""Numbers on command lines: types for argparse, whose errors say what is allowed."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable

DAY_S = 86400.0
MOST = 2**63 - 1  # of a number without another bound: what comes after it does not fit into 64 bits
SOCKET = "the iokernel's socket (default: the user's own, or root's)"


def width() -> int:
    """Columns that lines for people may have: the terminal's, else 80."""
    import os
    import sys

    try:
        return max(40, os.get_terminal_size(sys.stdout.fileno()).columns)
    except (OSError, ValueError):  # no terminal, or no descriptor
        return 80


def wrapped(line: str, columns: int | None, indent: str = "  ") -> list[str]:
    """A line in pieces of so many columns (None: any), those behind the first one indented."""
    import textwrap

    if columns is None or len(line) <= columns:
        return [line]
    return textwrap.wrap(line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def wrapped_command(line: str, columns: int | None, indent: str = "    ") -> list[str]:
    """A shell command in pieces, which a shell reads as one: broken at spaces that no quotes are around."""
    import textwrap

    command, comment, told = line.partition("  # ")  # goes on to the end of its line, whatever is there
    words, quote, word = [], "", ""
    for c in command:
        quote = "" if c == quote else quote or (c if c in "'\"" else "")
        if c == " " and not quote:
            words.append(word)
            word = ""
        else:
            word += c
    words.append(word)
    out = [words[0]]
    for word in words[1:]:
        if columns is not None and len(out[-1]) + 1 + len(word) > columns - 2:
            out[-1] += " \\"
            out.append(indent + word)
        else:
            out[-1] += f" {word}"
    if comment and (columns is None or len(out[-1]) + len(comment) + len(told) <= columns):
        out[-1] += comment + told
    elif comment:
        out += textwrap.wrap(told, columns or 80, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
    return out


def positive(text: str) -> int:
    """A whole number from 1 on."""
    return _whole_from(text, 1)


def whole(text: str) -> int:
    """A whole number from 0 on."""
    return _whole_from(text, 0)


def _whole_from(text: str, low: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if value < low:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} on")
    if value > MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is too large: at most {MOST}")
    return value


def size(text: str) -> int:
    """Bytes, from 1 on, of a file that there can be: "4096", "64M", "10GiB"; powers of 1024."""
    match = re.fullmatch(r"(\d{1,20})([KMGT]?)(iB|B)?", text, re.IGNORECASE | re.ASCII)
    value = int(match[1]) << 10 * " KMGT".index(match[2].upper() or " ") if match else 0
    if not 0 < value < 1 << 63:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: write it as in 64M or 10G")
    return value


def seconds(text: str) -> float:
    """A time in seconds, from 0 to a day."""
    return _within(text, DAY_S, "seconds, from 0 to a day")


def microseconds(text: str) -> float:
    """A time in microseconds, from 0 to a second."""
    return _within(text, 1e6, "microseconds, from 0 to 1000000")


def _within(text: str, most: float, expected: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= most:  # not a number is neither
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of {expected}")
    return value


def _whole_within(text: str, low: int, high: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
    return value


def between(low: int, high: int) -> Callable[[str], int]:
    """The type of whole numbers from low to high."""
    return lambda text: _whole_within(text, low, high)


def port(text: str) -> int:
    """A UDP port."""
    return _whole_within(text, 1, 65535)


def kthreads(text: str) -> int:
    """Kthreads of an application (CL_SHM_MAX_KTHREADS)."""
    return _whole_within(text, 1, 64)


def raft_nodes(text: str) -> int:
    """Nodes of a simulated cluster (MOST_NODES)."""
    return _whole_within(text, 1, 9)


def weight(text: str) -> int:
    """A share among equals."""
    return _whole_within(text, 1, 1000)


def whole_u32(text: str) -> int:
    """A whole number that 32 bits hold."""
    return _whole_within(text, 0, (1 << 32) - 1)


def positive_u32(text: str) -> int:
    """The same from 1 on."""
    return _whole_within(text, 1, (1 << 32) - 1)


def interface(text: str) -> str:
    """An IPv4 address, with or without the length of its network's prefix."""
    import ipaddress

    try:
        ipaddress.IPv4Interface(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no IPv4 address: write it as in 10.77.0.9/16") from None
    return text


def app_name(text: str) -> str:
    """The name of an application."""
    if not re.fullmatch(r"[A-Za-z0-9_.:-]{1,31}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name: use 1 to 31 letters, digits and _.:-")
    return text


def socket(text: str) -> str:
    """The path of a Unix socket (unix(7), sun_path)."""
    import os

    if not 0 < len(os.fsencode(text)) < 108:
        raise argparse.ArgumentTypeError("the path of a socket has 1 to 107 bytes")
    return text


def cpus(text: str) -> tuple[int, ...]:
    """CPU numbers as in 0,1."""
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError as e:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of CPUs like 0,1") from e


def own_cpus(text: str) -> tuple[int, ...]:
    """CPU numbers that this process may run on, whatever its affinity is now."""
    import os

    found, before = cpus(text), os.sched_getaffinity(0)
    try:
        for cpu in found:
            os.sched_setaffinity(0, {cpu})  # asks the kernel, which alone knows the cpuset, what is online, and how
    except (OSError, ValueError, OverflowError) as e:
        from ..runtime.topology import Topology, format_cpu_list

        topology = Topology.read()
        allowed = sorted(set(topology.cpus) & set(topology.cpuset or topology.cpus))
        raise argparse.ArgumentTypeError(
            f"CPU {cpu} does not exist or may not be used: choose from {format_cpu_list(allowed)}"
        ) from e
    finally:
        os.sched_setaffinity(0, before)
    return found


def loop_cpus(text: str) -> str:
    """CPUs that loops of an iokernel may run on, or "auto"; as it is written."""
    if text != "auto":
        own_cpus(text)
    return text


def distinct_cpus(text: str) -> tuple[int, ...]:
    """CPU numbers that this process may run on, none of them twice."""
    found = cpus(text)
    if len(set(found)) != len(found):
        raise argparse.ArgumentTypeError(f"{text!r} names a CPU twice")
    return own_cpus(text)
