"""The system calls of a script: what a stack is asked to do for each, and whether it gave what the script says.

`plan(call, world)` makes an Action of a call: one operation of stack.py, and a check of its outcome. Results are
compared as packetdrill does: `...` is anything, a descriptor is whatever the script calls it from then on.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from . import model as m
from . import wire
from .flow import Flow
from .settings import Settings
from .stack import Address, Outcome
from .symbols import ERRNOS, SYMBOLS, error_name, number
from .text import expression_text
from .tokens import NotSupported

_MSG_FASTOPEN = SYMBOLS["MSG_FASTOPEN"]
_REFUSED_FLAGS = {"MSG_ERRQUEUE": socket.MSG_ERRQUEUE, "MSG_ZEROCOPY": SYMBOLS["MSG_ZEROCOPY"]}


@dataclass
class World:
    """What a script has made so far. handles: the script's descriptor -> the stack's; flows: descriptor -> flow."""

    settings: Settings
    handles: dict[int, int] = field(default_factory=dict)
    kinds: dict[int, int] = field(default_factory=dict)
    flows: dict[int, Flow] = field(default_factory=dict)
    connections: list[Flow] = field(default_factory=list)
    bound: dict[int, Address] = field(default_factory=dict)
    listening: bool = False  # the newest socket listens: the next SYN makes a connection
    current: Flow | None = None
    current_fd: int | None = None

    def handle(self, e: m.Expression) -> int:
        """The stack's handle for the script's descriptor; one that no socket has for one that the script never got."""
        return self.handles.get(number(e), 1 << 20)

    def open(self, flow: Flow, fd: int | None) -> None:
        """A new flow, which packets without ports are of from now on."""
        self.connections.append(flow)
        self.current, self.current_fd, self.listening = flow, fd, False
        if fd is not None:
            self.flows[fd] = flow

    def flow_of(self, e: m.Expression) -> Flow | None:
        """The flow of a descriptor."""
        return self.flows.get(number(e))


@dataclass(frozen=True)
class Action:
    """An operation and what to do with its outcome. check: what is wrong with what it gave besides value and errno."""

    operation: str
    arguments: tuple[object, ...]
    check: Callable[[Outcome], str | None] = lambda outcome: None


def plan(call: m.Call, world: World) -> Action:
    """What to do for a call. Raises NotSupported."""
    if call.name not in _CALLS:
        raise NotSupported(f"the system call {call.name}")
    try:
        return _CALLS[call.name](call, world)
    except IndexError:
        raise NotSupported(f"{call.name} with {len(call.arguments)} arguments") from None


def operation_of(name: str) -> str | None:
    """The operation of stack.py that a system call needs, or None for a call that is unknown."""
    if name in ("read", "recv", "recvfrom", "recvmsg", "readv"):
        return "receive"
    if name in ("write", "sendto", "sendmsg", "writev"):
        return "send"
    if name.startswith("epoll_create"):
        return "epoll_create"
    if name == "accept4":
        return "accept"
    return name if name in _CALLS else None


def wrong_result(call: m.Call, outcome: Outcome) -> str | None:
    """How a call's value and errno differ from what the script says, or None."""
    if isinstance(call.result, m.Anything):
        return None
    wanted = number(call.result)
    makes_descriptor = call.name in ("socket", "accept", "accept4", "epoll_create", "epoll_create1")
    if outcome.value != wanted and not (makes_descriptor and min(outcome.value, wanted) >= 0):
        return f"expected {expression_text(call.result)}{_error(call.error)}, came {outcome_text(outcome)}"
    if call.error and outcome.errno != ERRNOS.get(call.error):
        return f"expected -1 {call.error}, came {outcome_text(outcome)}"
    return None


def _error(name: str | None) -> str:
    return f" {name}" if name else ""


def outcome_text(outcome: Outcome) -> str:
    """A result in the script's notation."""
    return f"-1 {error_name(outcome.errno)}" if outcome.value < 0 else str(outcome.value)


# --- arguments ---


def _address(e: m.Expression, default: Address) -> Address | None:
    """An address; `...` is the usual one. None: AF_UNSPEC."""
    if not isinstance(e, m.Struct):
        return default
    family, port, host = e.get("sa_family"), e.get("sin_port"), e.get("sin_addr")
    if family is not None and number(family) == socket.AF_UNSPEC:
        return None
    if family is None or number(family) != socket.AF_INET:
        raise NotSupported(f"the address {expression_text(e)}")
    match port, host:
        case m.Invoke("htons", (port_number,)), m.Invoke("inet_addr", (m.Text(text),)):
            return text, number(port_number)
        case m.Invoke("htons", (port_number,)), m.Word() | m.Int():
            return "0.0.0.0", number(port_number)
    raise NotSupported(f"the address {expression_text(e)}")


def _size(e: m.Expression) -> int:
    """Bytes that an array of iovecs holds."""
    match e:
        case m.Array(items) | m.Struct(items) if items and all(isinstance(i, m.Struct) for i in items):
            return sum(_size(item) for item in items)
        case m.Struct((_, length)):
            return number(length)
    raise NotSupported(f"the buffers {expression_text(e)}")


def _flags(e: m.Expression | None) -> int:
    flags = 0 if e is None else number(e)
    for name, bit in _REFUSED_FLAGS.items():
        if flags & bit:
            raise NotSupported(f"the flag {name}")
    return flags


def _option_value(e: m.Expression, size: int) -> bytes:
    """The value of a socket option as bytes."""
    match e:
        case m.Text(text):
            return text.encode()
        case m.Array((m.Text(text),)):
            return text.encode()
        case m.Array((one,)):
            return _option_value(one, size)
        case m.Struct() if e.get("onoff") is not None:
            return struct.pack("ii", number(e.get("onoff") or m.Int(0)), number(e.get("linger") or m.Int(0)))
        case m.Int() | m.Word() | m.Or():
            if size not in (1, 4, 8):
                size = 4
            return (number(e) % (1 << 8 * size)).to_bytes(size, "little")
    raise NotSupported(f"the value {expression_text(e)} of a socket option")


# --- calls that make and end connections ---


def _socket(call: m.Call, world: World) -> Action:
    domain, kind, protocol = call.arguments
    if not isinstance(domain, m.Anything) and number(domain) != socket.AF_INET:
        raise NotSupported(f"sockets of {expression_text(domain)}")
    what, proto = number(kind), number(protocol)
    plain = what & 15
    if plain not in (socket.SOCK_STREAM, socket.SOCK_DGRAM) or proto not in (0, wire.TCP, wire.UDP):
        raise NotSupported(f"sockets of {expression_text(kind)}, {expression_text(protocol)}")

    def check(outcome: Outcome) -> str | None:
        if outcome.value >= 0:
            world.kinds[_named(call, outcome, world)] = plain
        return None

    return Action("socket", (what, proto), check)


def _named(call: m.Call, outcome: Outcome, world: World) -> int:
    """Give a new handle the script's name; the descriptor."""
    fd = outcome.value if isinstance(call.result, m.Anything) else number(call.result)
    world.handles[fd] = outcome.value
    return fd


def _bind(call: m.Call, world: World) -> Action:
    fd, address, *_ = call.arguments
    where = _address(address, (world.settings.local_ip, world.settings.bind_port))
    if where is None:
        raise NotSupported("bind to AF_UNSPEC")

    def check(outcome: Outcome) -> str | None:
        if outcome.value == 0 and world.kinds.get(number(fd)) == socket.SOCK_DGRAM:
            remote = (world.settings.remote_ip, world.settings.connect_port)
            world.open(Flow(wire.UDP, (world.settings.local_ip, where[1]), remote), number(fd))
        if outcome.value == 0:
            world.bound[number(fd)] = where
        return None

    return Action("bind", (world.handle(fd), where), check)


def _listen(call: m.Call, world: World) -> Action:
    fd, backlog = call.arguments

    def check(outcome: Outcome) -> str | None:
        if outcome.value == 0:
            world.listening, world.current_fd = True, number(fd)
        return None

    return Action("listen", (world.handle(fd), number(backlog)), check)


def _accept(call: m.Call, world: World) -> Action:
    flags = number(call.arguments[3]) if call.name == "accept4" else 0

    def check(outcome: Outcome) -> str | None:
        if outcome.value < 0:
            return None
        fd = _named(call, outcome, world)
        world.kinds[fd] = socket.SOCK_STREAM
        flow = next((f for f in reversed(world.connections) if outcome.address == f.remote), None)
        if flow is None:
            return f"it is a connection from {outcome.address}, which no packet of the script began"
        world.flows[fd] = flow
        if flow is world.current:
            world.current_fd = fd
        return None

    return Action("accept", (world.handle(call.arguments[0]), flags), check)


def _connect(call: m.Call, world: World) -> Action:
    fd, address, *_ = call.arguments
    where = _address(address, (world.settings.remote_ip, world.settings.connect_port))
    if where is not None and number(fd) not in world.flows:
        _begin_connection(number(fd), where, world)
    return Action("connect", (world.handle(fd), where))


def _begin_connection(fd: int, where: Address, world: World) -> None:
    """From now on packets to `where` are of a new flow."""
    tcp = world.kinds.get(fd) != socket.SOCK_DGRAM
    local = (world.settings.local_ip, world.bound.get(fd, ("", 0))[1])
    world.open(Flow(wire.TCP if tcp else wire.UDP, local, where, active=True), fd)


def _close(call: m.Call, world: World) -> Action:
    fd = number(call.arguments[0])
    handle = world.handle(call.arguments[0])

    def check(outcome: Outcome) -> str | None:
        if outcome.value == 0:
            world.handles.pop(fd, None)
            world.flows.pop(fd, None)
            if world.current_fd == fd:
                world.current_fd = None
        return None

    return Action("close", (handle,), check)


def _shutdown(call: m.Call, world: World) -> Action:
    return Action("shutdown", (world.handle(call.arguments[0]), number(call.arguments[1])))


# --- calls that move data ---


def _reading(fd: m.Expression, size: int, flags: int, world: World, expected_flags: int | None = None) -> Action:
    flow = world.flow_of(fd)

    def check(outcome: Outcome) -> str | None:
        if expected_flags is not None and outcome.value >= 0 and outcome.numbers[0] & ~0x40000000 != expected_flags:
            return f"its msg_flags: expected {expected_flags:#x}, came {outcome.numbers[0]:#x}"
        if flow is None or flow.protocol != wire.TCP or outcome.value < 0:
            return None
        if flags & socket.MSG_TRUNC:
            flow.stream.read += outcome.value
            return None
        if flags & socket.MSG_OOB:
            return None
        return flow.stream.check_read(outcome.data, bool(flags & socket.MSG_PEEK))

    return Action("receive", (world.handle(fd), size, flags), check)


def _read(call: m.Call, world: World) -> Action:
    fd, _, size = call.arguments[:3]
    return _reading(fd, number(size), _flags(call.arguments[3]) if len(call.arguments) > 3 else 0, world)


def _readv(call: m.Call, world: World) -> Action:
    return _reading(call.arguments[0], _size(call.arguments[1]), 0, world)


def _message(e: m.Expression) -> m.Struct:
    if not isinstance(e, m.Struct) or e.get("msg_iov") is None:
        raise NotSupported(f"the message {expression_text(e)}")
    if e.get("msg_control") not in (None, m.Array(())):
        raise NotSupported("control messages")
    return e


def _recvmsg(call: m.Call, world: World) -> Action:
    fd, message, flags = call.arguments
    e = _message(message)
    expected = e.get("msg_flags")
    wanted = number(expected) if expected is not None and not isinstance(expected, m.Anything) else None
    return _reading(fd, _size(e.get("msg_iov") or message), _flags(flags), world, wanted)


def _writing(fd: m.Expression, size: int, flags: int, to: Address | None, world: World) -> Action:
    if flags & _MSG_FASTOPEN and number(fd) not in world.flows:
        where = to or (world.settings.remote_ip, world.settings.connect_port)
        _begin_connection(number(fd), where, world)
        to = where
    flow = world.flow_of(fd)
    data = flow.stream.offer(size) if flow and flow.protocol == wire.TCP else b"\0" * size

    def check(outcome: Outcome) -> str | None:
        if flow and flow.protocol == wire.TCP:
            flow.stream.took(size, outcome.value)
        return None

    return Action("send", (world.handle(fd), data, flags, to), check)


def _write(call: m.Call, world: World) -> Action:
    fd, what, size = call.arguments[:3]
    if not isinstance(what, m.Anything):
        raise NotSupported(f"{call.name} of data that the script gives")
    flags = _flags(call.arguments[3]) if len(call.arguments) > 3 else 0
    return _writing(fd, number(size), flags, None, world)


def _writev(call: m.Call, world: World) -> Action:
    return _writing(call.arguments[0], _size(call.arguments[1]), 0, None, world)


def _sendto(call: m.Call, world: World) -> Action:
    fd, what, size, flags, address, _ = call.arguments
    if not isinstance(what, m.Anything):
        raise NotSupported("sendto of data that the script gives")
    connected = number(fd) in world.flows and world.kinds.get(number(fd)) != socket.SOCK_DGRAM
    to = None if connected else _address(address, (world.settings.remote_ip, world.settings.connect_port))
    return _writing(fd, number(size), _flags(flags), to, world)


def _sendmsg(call: m.Call, world: World) -> Action:
    fd, message, flags = call.arguments
    e = _message(message)
    return _writing(fd, _size(e.get("msg_iov") or message), _flags(flags), None, world)


# --- options, names, waiting ---


def _setsockopt(call: m.Call, world: World) -> Action:
    fd, level, name, value, size = call.arguments
    data = _option_value(value, number(size))
    return Action("setsockopt", (world.handle(fd), number(level), number(name), data))


def _getsockopt(call: m.Call, world: World) -> Action:
    fd, level, name, value, size = call.arguments
    match size:
        case m.Array((one,)):
            room = number(one)
        case m.Int(n):
            room = n
        case _:
            room = 256

    def check(outcome: Outcome) -> str | None:
        if outcome.value < 0 or isinstance(value, m.Anything) or value == m.Array((m.Anything(),)):
            return None
        wanted = _option_value(value, min(room, max(len(outcome.data), 1)))
        found = outcome.data
        if isinstance(value, m.Text):
            found = found.rstrip(b"\0")
        if wanted == found[: len(wanted)] and (len(found) == len(wanted) or not isinstance(value, m.Text)):
            return None
        came = int.from_bytes(found[:4], "little", signed=True) if len(found) <= 4 else found.hex()
        return f"its value: expected {expression_text(value)}, came {came}"

    return Action("getsockopt", (world.handle(fd), number(level), number(name), room), check)


def _fcntl(call: m.Call, world: World) -> Action:
    fd, command, *rest = call.arguments
    return Action("fcntl", (world.handle(fd), number(command), number(rest[0]) if rest else 0))


def _ioctl(call: m.Call, world: World) -> Action:
    fd, request, value = call.arguments

    def check(outcome: Outcome) -> str | None:
        match value:
            case m.Array((one,)) if outcome.value >= 0 and not isinstance(one, m.Anything):
                wanted = number(one)
                return None if outcome.numbers[0] == wanted else f"expected [{wanted}], came [{outcome.numbers[0]}]"
        return None

    return Action("ioctl", (world.handle(fd), number(request)), check)


def _names(call: m.Call, world: World) -> Action:
    fd, address, *_ = call.arguments
    wanted = _address(address, ("", 0))

    def check(outcome: Outcome) -> str | None:
        if outcome.value < 0 or wanted in (None, ("", 0)) or outcome.address == wanted:
            return None
        return f"expected {wanted}, came {outcome.address}"

    return Action(call.name, (world.handle(fd),), check)


def _poll(call: m.Call, world: World) -> Action:
    sockets, _, ms = call.arguments
    if not isinstance(sockets, m.Array):
        raise NotSupported(f"poll of {expression_text(sockets)}")
    wanted, expected = [], []
    for item in sockets.items:
        fd, events = (item.get("fd"), item.get("events")) if isinstance(item, m.Struct) else (None, None)
        if fd is None or events is None or not isinstance(item, m.Struct):
            raise NotSupported(f"poll of {expression_text(item)}")
        wanted.append((world.handle(fd), number(events)))
        expected.append(number(item.get("revents") or m.Int(0)))

    def check(outcome: Outcome) -> str | None:
        if outcome.value < 0 or outcome.numbers == tuple(expected):
            return None
        return f"its revents: expected {[hex(n) for n in expected]}, came {[hex(n) for n in outcome.numbers]}"

    return Action("poll", (tuple(wanted), number(ms)), check)


def _epoll_create(call: m.Call, world: World) -> Action:
    def check(outcome: Outcome) -> str | None:
        if outcome.value >= 0:
            _named(call, outcome, world)
        return None

    return Action("epoll_create", (), check)


def _epoll_ctl(call: m.Call, world: World) -> Action:
    epoll, operation, fd, event = call.arguments
    events = event.get("events") if isinstance(event, m.Struct) else None
    bits = number(events) if events is not None else 0
    return Action("epoll_ctl", (world.handle(epoll), number(operation), world.handle(fd), bits))


def _epoll_wait(call: m.Call, world: World) -> Action:
    epoll, event, most, ms = call.arguments
    events = event.get("events") if isinstance(event, m.Struct) else None
    wanted = number(events) if events is not None else None

    def check(outcome: Outcome) -> str | None:
        if outcome.value != 1 or wanted is None or outcome.numbers[1] == wanted:
            return None
        return f"its events: expected {wanted:#x}, came {outcome.numbers[1]:#x}"

    return Action("epoll_wait", (world.handle(epoll), number(most), number(ms)), check)


_CALLS: dict[str, Callable[[m.Call, World], Action]] = {
    "socket": _socket,
    "bind": _bind,
    "listen": _listen,
    "accept": _accept,
    "accept4": _accept,
    "connect": _connect,
    "close": _close,
    "shutdown": _shutdown,
    "read": _read,
    "recv": _read,
    "recvfrom": _read,
    "readv": _readv,
    "recvmsg": _recvmsg,
    "write": _write,
    "send": _write,
    "writev": _writev,
    "sendto": _sendto,
    "sendmsg": _sendmsg,
    "setsockopt": _setsockopt,
    "getsockopt": _getsockopt,
    "getsockname": _names,
    "getpeername": _names,
    "fcntl": _fcntl,
    "ioctl": _ioctl,
    "poll": _poll,
    "epoll_create": _epoll_create,
    "epoll_create1": _epoll_create,
    "epoll_ctl": _epoll_ctl,
    "epoll_wait": _epoll_wait,
}
