"""A script as data: what parse.py reads and text.py prints. All of it is immutable and compares by value.

Names of parts are those of packetdrill's grammar (Cardwell et al., USENIX ATC 2013; its syntax page).
"""

from __future__ import annotations

from dataclasses import dataclass, field

# --- expressions ---


@dataclass(frozen=True)
class Anything:
    """`...`: any value, or one that the runner chooses."""


@dataclass(frozen=True)
class Int:
    """A number; hexadecimal: as it was written."""

    value: int
    hexadecimal: bool = False


@dataclass(frozen=True)
class Word:
    """A symbolic constant."""

    name: str


@dataclass(frozen=True)
class Text:
    """A string, without its quotes. open: `"abc"...`, a longer one that begins so."""

    text: str
    open: bool = False


@dataclass(frozen=True)
class Or:
    """`A|B|C`."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Invoke:
    """`htons(80)`, `inet_addr("1.2.3.4")`."""

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Field:
    """`name = value`, `name(argument) = value` in braces."""

    name: str
    value: Expression
    argument: Expression | None = None


@dataclass(frozen=True)
class Array:
    """`[a, b]`."""

    items: tuple[Expression, ...]


@dataclass(frozen=True)
class Struct:
    """`{a = 1, b = 2}` or `{..., 1000}`."""

    items: tuple[Expression, ...]

    def get(self, name: str) -> Expression | None:
        """The value of a field, if it is there."""
        return next((item.value for item in self.items if isinstance(item, Field) and item.name == name), None)


Expression = Anything | Int | Word | Text | Or | Invoke | Field | Array | Struct


# --- TCP options (RFC 9293, 2018, 7323, 7413, 2385) ---


@dataclass(frozen=True)
class Nop:
    """No operation."""


@dataclass(frozen=True)
class Eol:
    """End of the list."""


@dataclass(frozen=True)
class Mss:
    """Maximum segment size."""

    size: int


@dataclass(frozen=True)
class Wscale:
    """Window scale."""

    shift: int


@dataclass(frozen=True)
class SackOk:
    """SACK permitted."""


@dataclass(frozen=True)
class Sack:
    """Blocks of (from, behind)."""

    blocks: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Timestamp:
    """Timestamps."""

    val: int
    ecr: int


@dataclass(frozen=True)
class FastOpen:
    """A cookie, in hexadecimal; "" asks for one. experimental: option 254 with its magic number."""

    cookie: str = ""
    experimental: bool = False


@dataclass(frozen=True)
class Md5:
    """A digest, in hexadecimal."""

    digest: str


@dataclass(frozen=True)
class Unknown:
    """An option that came and has no name in scripts."""

    kind: int
    data: bytes = b""


TcpOption = Nop | Eol | Mss | Wscale | SackOk | Sack | Timestamp | FastOpen | Md5 | Unknown


# --- packets ---

IN, OUT = "<", ">"


@dataclass(frozen=True)
class IpInfo:
    """What is in brackets behind the direction. None: not said.

    ecn: "noecn", "ect0", "ect1", "ce", and "ect01" for either of two; tos: the whole byte.
    """

    ecn: str | None = None
    tos: int | None = None
    ttl: int | None = None


@dataclass(frozen=True)
class TcpPacket:
    """A TCP segment. Sequence numbers are the script's.

    flags: letters of FSRPEWAU (C is W, too) and "." for ACK, as written. ace: the counter of AccECN, instead of E, W
    and A. ack, win, urg: None if not said. options: None for `<...>`, any.
    """

    direction: str
    flags: str
    seq: int
    end: int
    ack: int | None = None
    win: int | None = None
    urg: int | None = None
    options: tuple[TcpOption, ...] | None = ()
    ip: IpInfo = IpInfo()
    ports: tuple[int, int] | None = None
    ace: int | None = None

    @property
    def length(self) -> int:
        """Bytes of data."""
        return self.end - self.seq

    def has(self, letter: str) -> bool:
        """Whether a flag is set."""
        return letter in self.flags or (letter == "W" and "C" in self.flags)


@dataclass(frozen=True)
class UdpPacket:
    """A UDP datagram of `length` bytes of data."""

    direction: str
    length: int
    ip: IpInfo = IpInfo()
    ports: tuple[int, int] | None = None


@dataclass(frozen=True)
class Echoed:
    """The packet that an ICMP message is about. protocol: "tcp", "udp" or "raw"."""

    protocol: str
    seq: int
    length: int


@dataclass(frozen=True)
class IcmpPacket:
    """An ICMP message. kind and code are words, such as "unreachable" and "frag_needed"."""

    direction: str
    kind: str
    code: str | None = None
    mtu: int | None = None
    echo_id: int | None = None
    echoed: Echoed | None = None
    ip: IpInfo = IpInfo()


Packet = TcpPacket | UdpPacket | IcmpPacket


# --- events ---


@dataclass(frozen=True)
class Call:
    """A system call. lasts_us: `...T`, when a blocking one returns, counted as the event's time is.

    error: the errno's name, with its note in text; note: what stands in brackets behind a result without an errno.
    """

    name: str
    arguments: tuple[Expression, ...]
    result: Expression
    lasts_us: int | None = None
    error: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class Command:
    """What stands in backquotes."""

    text: str


@dataclass(frozen=True)
class Code:
    """What stands in %{ }%."""

    text: str


Action = TcpPacket | UdpPacket | IcmpPacket | Call | Command | Code


@dataclass(frozen=True)
class Time:
    """When an event is to happen, in microseconds.

    us: since the script's begin; relative: since the event before. end_us: the last instant of a range, counted like
    us. any: `*`, whenever it comes.
    """

    us: int = 0
    relative: bool = False
    end_us: int | None = None
    any: bool = False


@dataclass(frozen=True)
class Event:
    """An action and its time. line: where its time is written; it does not take part in comparing."""

    time: Time
    action: Action
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Script:
    """options: (name, value) in order, value None if there is none. init, cleanup: commands before and behind all."""

    options: tuple[tuple[str, str | None], ...] = ()
    init: Command | None = None
    events: tuple[Event, ...] = ()
    cleanup: Command | None = None
