"""The system calls of a script: what a stack is asked to do for each, and whether it gave what the script says.

`plan(call, world)` makes an Action of a call: one operation of stack.py, and a check of its outcome. Results are
compared as packetdrill does: `...` is anything, a descriptor is whatever the script calls it from then on.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from . import model as m
from . import wire
from .arguments import address_of, flags_of, integer, length, option_bytes, size_of
from .flow import Flow
from .settings import Settings
from .stack import Address, Outcome
from .symbols import ERRNOS, SYMBOLS, error_name
from .text import expression_text
from .tokens import NotSupported

_MSG_FASTOPEN = SYMBOLS["MSG_FASTOPEN"]


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
        return self.handles.get(integer(e), 1 << 20)

    def open(self, flow: Flow, fd: int | None) -> None:
        """A new flow, which packets without ports are of from now on."""
        self.connections.append(flow)
        self.current, self.current_fd, self.listening = flow, fd, False
        if fd is not None:
            self.flows[fd] = flow

    def flow_of(self, e: m.Expression) -> Flow | None:
        """The flow of a descriptor."""
        return self.flows.get(integer(e))


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
    planned, counts = _CALLS[call.name]
    if len(call.arguments) not in counts:
        raise NotSupported(f"{call.name} with {len(call.arguments)} arguments")
    return planned(call, world)


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
    wanted = integer(call.result)
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


# --- calls that make and end connections ---


def _socket(call: m.Call, world: World) -> Action:
    domain, kind, protocol = call.arguments
    if not isinstance(domain, m.Anything) and integer(domain) != socket.AF_INET:
        raise NotSupported(f"sockets of {expression_text(domain)}")
    what, proto = integer(kind), integer(protocol)
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
    fd = outcome.value if isinstance(call.result, m.Anything) else integer(call.result)
    world.handles[fd] = outcome.value
    return fd


def _bind(call: m.Call, world: World) -> Action:
    fd, address, *_ = call.arguments
    where = address_of(address, (world.settings.local_ip, world.settings.bind_port))
    if where is None:
        raise NotSupported("bind to AF_UNSPEC")

    def check(outcome: Outcome) -> str | None:
        if outcome.value == 0 and world.kinds.get(integer(fd)) == socket.SOCK_DGRAM:
            remote = (world.settings.remote_ip, world.settings.connect_port)
            world.open(Flow(wire.UDP, (world.settings.local_ip, where[1]), remote), integer(fd))
        if outcome.value == 0:
            world.bound[integer(fd)] = where
        return None

    return Action("bind", (world.handle(fd), where), check)


def _listen(call: m.Call, world: World) -> Action:
    fd, backlog = call.arguments

    def check(outcome: Outcome) -> str | None:
        if outcome.value == 0:
            world.listening, world.current_fd = True, integer(fd)
        return None

    return Action("listen", (world.handle(fd), integer(backlog)), check)


def _accept(call: m.Call, world: World) -> Action:
    flags = integer(call.arguments[3]) if call.name == "accept4" else 0

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
    where = address_of(address, (world.settings.remote_ip, world.settings.connect_port))
    if where is not None and integer(fd) not in world.flows:
        _begin_connection(integer(fd), where, world)
    return Action("connect", (world.handle(fd), where))


def _begin_connection(fd: int, where: Address, world: World) -> None:
    """From now on packets to `where` are of a new flow."""
    tcp = world.kinds.get(fd) != socket.SOCK_DGRAM
    local = (world.settings.local_ip, world.bound.get(fd, ("", 0))[1])
    world.open(Flow(wire.TCP if tcp else wire.UDP, local, where, active=True), fd)


def _close(call: m.Call, world: World) -> Action:
    fd = integer(call.arguments[0])
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
    return Action("shutdown", (world.handle(call.arguments[0]), integer(call.arguments[1])))


# --- calls that move data ---


def _reading(
    fd: m.Expression,
    size: int,
    flags: int,
    world: World,
    expected_flags: int | None = None,
    expected_left: int | None = None,
) -> Action:
    flow = world.flow_of(fd)

    def check(outcome: Outcome) -> str | None:
        if expected_flags is not None and outcome.value >= 0 and outcome.numbers[0] & ~0x40000000 != expected_flags:
            return f"its msg_flags: expected {expected_flags:#x}, came {outcome.numbers[0]:#x}"
        if expected_left is not None and outcome.value >= 0 and outcome.numbers[1:] != (expected_left,):
            return (
                f"what waits: expected {expected_left}, came {outcome.numbers[1] if outcome.numbers[1:] else 'nothing'}"
            )
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
    return _reading(fd, length(size), flags_of(call.arguments[3]) if len(call.arguments) > 3 else 0, world)


def _readv(call: m.Call, world: World) -> Action:
    return _reading(call.arguments[0], size_of(call.arguments[1]), 0, world)


def _message(e: m.Expression) -> m.Struct:
    if not isinstance(e, m.Struct) or e.get("msg_iov") is None:
        raise NotSupported(f"the message {expression_text(e)}")
    return e


def _left_of(e: m.Struct) -> int | None:
    """What TCP_INQ is to say in a message. Other control messages are refused by name."""
    left = None
    control = e.get("msg_control")
    for item in control.items if isinstance(control, m.Array) else ():
        kind = item.get("cmsg_type") if isinstance(item, m.Struct) else None
        data = item.get("cmsg_data") if isinstance(item, m.Struct) else None
        if kind != m.Word("TCP_CM_INQ") or data is None:
            raise NotSupported(f"control messages of {expression_text(kind or item)}")
        left = integer(data)
    return left


def _recvmsg(call: m.Call, world: World) -> Action:
    fd, message, flags = call.arguments
    e = _message(message)
    expected = e.get("msg_flags")
    wanted = integer(expected) if expected is not None and not isinstance(expected, m.Anything) else None
    return _reading(fd, size_of(e.get("msg_iov") or message), flags_of(flags), world, wanted, _left_of(e))


def _writing(fd: m.Expression, size: int, flags: int, to: Address | None, world: World) -> Action:
    if flags & _MSG_FASTOPEN and integer(fd) not in world.flows:
        where = to or (world.settings.remote_ip, world.settings.connect_port)
        _begin_connection(integer(fd), where, world)
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
    flags = flags_of(call.arguments[3]) if len(call.arguments) > 3 else 0
    return _writing(fd, length(size), flags, None, world)


def _writev(call: m.Call, world: World) -> Action:
    return _writing(call.arguments[0], size_of(call.arguments[1]), 0, None, world)


def _sendto(call: m.Call, world: World) -> Action:
    fd, what, size, flags, address, _ = call.arguments
    if not isinstance(what, m.Anything):
        raise NotSupported("sendto of data that the script gives")
    connected = integer(fd) in world.flows and world.kinds.get(integer(fd)) != socket.SOCK_DGRAM
    to = None if connected else address_of(address, (world.settings.remote_ip, world.settings.connect_port))
    return _writing(fd, length(size), flags_of(flags), to, world)


def _sendmsg(call: m.Call, world: World) -> Action:
    fd, message, flags = call.arguments
    e = _message(message)
    if _left_of(e) is not None:
        raise NotSupported("sendmsg with control messages of TCP_CM_INQ")
    return _writing(fd, size_of(e.get("msg_iov") or message), flags_of(flags), None, world)


# --- options, names, waiting ---


def _setsockopt(call: m.Call, world: World) -> Action:
    fd, level, name, value, size = call.arguments
    data = option_bytes(value, integer(size))
    return Action("setsockopt", (world.handle(fd), integer(level), integer(name), data))


def _getsockopt(call: m.Call, world: World) -> Action:
    fd, level, name, value, size = call.arguments
    match size:
        case m.Array((one,)):
            room = length(one)
        case m.Int():
            room = length(size)
        case _:
            room = 256

    def check(outcome: Outcome) -> str | None:
        if outcome.value < 0 or isinstance(value, m.Anything) or value == m.Array((m.Anything(),)):
            return None
        wanted = option_bytes(value, min(room, max(len(outcome.data), 1)))
        found = outcome.data
        if isinstance(value, m.Text):
            found = found.rstrip(b"\0")
        if wanted == found[: len(wanted)] and (len(found) == len(wanted) or not isinstance(value, m.Text)):
            return None
        came = int.from_bytes(found[:4], "little", signed=True) if len(found) <= 4 else found.hex()
        return f"its value: expected {expression_text(value)}, came {came}"

    return Action("getsockopt", (world.handle(fd), integer(level), integer(name), room), check)


def _fcntl(call: m.Call, world: World) -> Action:
    fd, command, *rest = call.arguments
    return Action("fcntl", (world.handle(fd), integer(command), integer(rest[0]) if rest else 0))


def _ioctl(call: m.Call, world: World) -> Action:
    fd, request, value = call.arguments

    def check(outcome: Outcome) -> str | None:
        match value:
            case m.Array((one,)) if outcome.value >= 0 and not isinstance(one, m.Anything):
                wanted = integer(one)
                return None if outcome.numbers[0] == wanted else f"expected [{wanted}], came [{outcome.numbers[0]}]"
        return None

    return Action("ioctl", (world.handle(fd), integer(request)), check)


def _names(call: m.Call, world: World) -> Action:
    fd, address, *_ = call.arguments
    wanted = address_of(address, ("", 0))

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
        wanted.append((world.handle(fd), integer(events)))
        expected.append(integer(item.get("revents") or m.Int(0)))

    def check(outcome: Outcome) -> str | None:
        if outcome.value < 0 or outcome.numbers == tuple(expected):
            return None
        return f"its revents: expected {[hex(n) for n in expected]}, came {[hex(n) for n in outcome.numbers]}"

    return Action("poll", (tuple(wanted), integer(ms)), check)


def _epoll_create(call: m.Call, world: World) -> Action:
    def check(outcome: Outcome) -> str | None:
        if outcome.value >= 0:
            _named(call, outcome, world)
        return None

    return Action("epoll_create", (), check)


def _epoll_ctl(call: m.Call, world: World) -> Action:
    epoll, operation, fd, event = call.arguments
    events = event.get("events") if isinstance(event, m.Struct) else None
    bits = integer(events) if events is not None else 0
    return Action("epoll_ctl", (world.handle(epoll), integer(operation), world.handle(fd), bits))


def _epoll_wait(call: m.Call, world: World) -> Action:
    epoll, event, most, ms = call.arguments
    events = event.get("events") if isinstance(event, m.Struct) else None
    wanted = integer(events) if events is not None else None

    def check(outcome: Outcome) -> str | None:
        if outcome.value != 1 or wanted is None or outcome.numbers[1] == wanted:
            return None
        return f"its events: expected {wanted:#x}, came {outcome.numbers[1]:#x}"

    return Action("epoll_wait", (world.handle(epoll), integer(most), integer(ms)), check)


# What plans a call, and how many arguments it may have.
_CALLS: dict[str, tuple[Callable[[m.Call, World], Action], tuple[int, ...]]] = {
    "socket": (_socket, (3,)),
    "bind": (_bind, (3,)),
    "listen": (_listen, (2,)),
    "accept": (_accept, (3,)),
    "accept4": (_accept, (4,)),
    "connect": (_connect, (3,)),
    "close": (_close, (1,)),
    "shutdown": (_shutdown, (2,)),
    "read": (_read, (3,)),
    "recv": (_read, (4,)),
    "recvfrom": (_read, (4, 6)),
    "readv": (_readv, (3,)),
    "recvmsg": (_recvmsg, (3,)),
    "write": (_write, (3,)),
    "send": (_write, (4,)),
    "writev": (_writev, (3,)),
    "sendto": (_sendto, (6,)),
    "sendmsg": (_sendmsg, (3,)),
    "setsockopt": (_setsockopt, (5,)),
    "getsockopt": (_getsockopt, (5,)),
    "getsockname": (_names, (3,)),
    "getpeername": (_names, (3,)),
    "fcntl": (_fcntl, (2, 3)),
    "ioctl": (_ioctl, (3,)),
    "poll": (_poll, (3,)),
    "epoll_create": (_epoll_create, (1,)),
    "epoll_create1": (_epoll_create, (1,)),
    "epoll_ctl": (_epoll_ctl, (4,)),
    "epoll_wait": (_epoll_wait, (4,)),
}
