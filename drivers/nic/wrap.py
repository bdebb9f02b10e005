"""NICs around NICs, by what a configuration or a command line says: a bad wire, then a recorder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...runtime.errors import CorelaneError
from .nic import Nic

RATES = ("loss", "duplicate", "reorder", "delay", "corrupt")
"""What may befall a frame: probabilities 0..1, the first fields of `fault.Faults`."""


def wrapped(
    nic: Nic, *, rates: Mapping[str, float] | None = None, delay_us: float = 0.0, seed: int = 1, record: str | Path = ""
) -> Nic:
    """`nic` behind faults of those rates, in both directions, and a recorder to the pcap file `record`.

    delay_us: longest delay of a delayed frame. The recorder is next to the user: it sees what comes through the faults,
    and what is sent into them. Without rates and record this is `nic` itself. Raises CorelaneError; `nic` is then
    closed. A slow line comes below: `link.linked`.
    """
    top = nic
    try:
        if bool(rates and rates.get("delay")) != (delay_us > 0):
            why = "delay is the share of frames that are delayed, and delay_us for how long at most"
            raise CorelaneError("make a bad wire", why, "give both, or neither")
        if rates and any(rates.values()):
            from .fault import FaultNic, Faults

            faults = Faults(*(rates.get(name, 0.0) for name in RATES))
            top = FaultNic(top, rx=faults, tx=faults, seed=seed, delay_us=(0.0, delay_us))
        if record:
            from .pcap import PcapNic

            top = PcapNic(top, record)
    except CorelaneError:
        top.close()
        raise
    return top


@dataclass(frozen=True, slots=True)
class Recorded:
    """What became of a recording: a line for people, and the recorder's counters by name."""

    text: str
    facts: dict[str, int]


def recorded(nic: Nic) -> Recorded | None:
    """What a recorder made by `wrapped` has in its file by now, or why it stopped; None if `nic` is no recorder."""
    from .pcap import PcapNic

    if not isinstance(nic, PcapNic):
        return None
    stopped = ""
    try:
        nic.flush()
    except CorelaneError as error:
        stopped = str(error)
    counts = nic.counts()
    text = stopped or f"{counts.recorded:,} frames recorded, {counts.missed:,} missed: the recorder did not keep up"
    if not stopped and not counts.missed:
        text = f"{counts.recorded:,} frames recorded"
    return Recorded(text, {name: getattr(counts, name) for name in counts.__dataclass_fields__})
