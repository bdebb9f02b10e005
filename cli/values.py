"""Numbers on command lines: types for argparse, whose errors say what is allowed."""

from __future__ import annotations

import argparse
import math
import re

DAY_S = 86400.0


def positive(text: str) -> int:
    """A whole number from 1 on."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return value


def whole(text: str) -> int:
    """A whole number from 0 on."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
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


def distinct_cpus(text: str) -> tuple[int, ...]:
    """CPU numbers, none of them twice."""
    found = cpus(text)
    if len(set(found)) != len(found):
        raise argparse.ArgumentTypeError(f"{text!r} names a CPU twice")
    return found
