"""Executes one script on one stack, event by event, and says what was expected and what came instead.

Time: a script's instants are counted from its begin, in the stack's clock. If a runner on real time is late with an
event, the script's clock stands still meanwhile, and `late_us` tells: a failure of a run that was late may be the
runner's own.

A packet that is expected may come in several segments, unless the script says --strict_segments: stacks cut as they
like, and hand large ones to a NIC that cuts them. What is sent and not expected is seen by the next `>`, as in
packetdrill; what is left over at the end is not looked at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from . import calls, code, commands, compare, text, wire
from . import model as m
from .flow import Flow
from .settings import Settings
from .stack import Outcome, Pending, Stack
from .symbols import unknown_words
from .tokens import NotSupported

_GRACE_US = 1_000_000  # how much longer to wait for what is late, to say how late
_ANY_US = 30_000_000  # how long `*` waits
_AT_ONCE_US = 2_000_000  # in which a call returns that is not to wait, on a busy machine


@dataclass(frozen=True)
class Failure:
    """Where a script and a stack part. expected, came: lines in packetdrill's notation, or empty.

    of_time: all was right but the time.
    """

    line: int
    why: str
    expected: str = ""
    came: str = ""
    of_time: bool = False


class _Failed(Exception):
    def __init__(self, why: str, came: str = "", expected: str = "", of_time: bool = False) -> None:
        self.why, self.came, self.expected, self.of_time = why, came, expected, of_time


@dataclass
class Result:
    """What a run gave. failure: None if it passed. late_us: how late the runner was at most with an event."""

    failure: Failure | None = None
    late_us: int = 0
    log: list[str] = field(default_factory=list)


@dataclass
class _Waiting:
    """A call that may wait, and when it is to return."""

    event: m.Event
    call: m.Call
    action: calls.Action
    pending: Pending
    ends_us: int


def needs(script: m.Script, stack: Stack) -> list[tuple[int, str]]:
    """(line, what) of all that a script needs and the stack or the runner lacks."""
    out: list[tuple[int, str]] = []
    known = set(stack.info_fields)
    for event in script.events:
        match event.action:
            case m.TcpPacket(direction=m.OUT) as packet:
                out += [(event.line, what) for what in _packet_needs(packet, stack)]
            case m.Call(name=name):
                operation = calls.operation_of(name)
                if operation is None or operation not in stack.operations:
                    out.append((event.line, f"the system call {name}"))
                out += [(event.line, f"the constant {word}") for word in unknown_words(event.action)]
            case m.Code(source):
                lacks = code.needs(source)
                out += [(event.line, what) for what in lacks]
                if not lacks:
                    unknown = sorted(code.fields(source) - known)
                    out += [(event.line, f"the field {name} of TCP_INFO") for name in unknown]
                    known |= code.assigned(source)
            case m.Command(source):
                out += [(event.line, what) for what in _command_needs(source)]
    return out


def _packet_needs(packet: m.TcpPacket, stack: Stack) -> list[str]:
    """What the stack would have to send, and never does."""
    lacking = [o for o in packet.options or () if type(o) not in stack.tcp_options]
    return [f"the TCP option {text.option_text(o).split()[0]}" for o in lacking]


def _command_needs(source: str) -> list[str]:
    try:
        commands.understand(source)
    except NotSupported as lacks:
        return [lacks.needs]
    return []


def run(script: m.Script, stack: Stack, settings: Settings) -> Result:
    """Execute a script. Raises NotSupported for what shows only on the way."""
    return _Run(script, stack, settings).run()


class _Run:
    def __init__(self, script: m.Script, stack: Stack, settings: Settings) -> None:
        self._script = script
        self._stack = stack
        self._settings = settings
        self._world = calls.World(settings)
        self._waiting: list[_Waiting] = []
        self._queues: dict[int, deque[tuple[int, wire.Segment | wire.Datagram | wire.Message]]] = {}
        self._begin_us = 0  # of the script, by the stack's clock
        self._set_by_code: dict[str, Any] = {}
        self._last_us = 0  # the event before, by the script's
        self._result = Result()

    def run(self) -> Result:
        if self._script.init:
            self._sysctls(commands.understand(self._script.init.text).sysctls)
        self._begin_us = self._stack.now_us()
        event = m.Event(m.Time(), m.Command(""))
        try:
            for event in self._script.events:
                self._event(event)
            for waiting in list(self._waiting):
                event = waiting.event
                self._finish(waiting)
        except _Failed as failed:
            expected = failed.expected or text.event_text(event)
            self._result.failure = Failure(event.line, failed.why, expected, failed.came, failed.of_time)
        except NotSupported as lacks:
            raise NotSupported(lacks.needs, lacks.line or event.line) from lacks
        return self._result

    def _sysctls(self, wanted: tuple[tuple[str, str], ...]) -> None:
        """Set all, or name all that have no meaning."""
        lacks = []
        for name, value in wanted:
            try:
                self._stack.sysctl(name, value)
            except NotSupported as error:
                lacks.append(error.needs)
        if lacks:
            raise NotSupported("; ".join(lacks))

    # --- time ---

    def _script_us(self) -> int:
        return self._stack.now_us() - self._begin_us

    def _at(self, time: m.Time) -> int:
        return time.us + (self._last_us if time.relative else 0)

    def _wait(self, at: int) -> None:
        """Until an event of the runner's own."""
        self._stack.wait_until(self._begin_us + at)
        self._is_late(at)

    def _is_late(self, at: int) -> None:
        """The script's clock stood still while an event of the instant `at` was late, or took its time."""
        late = self._script_us() - at
        if late > 0 and self._stack.real_time:
            self._begin_us += late
            self._result.late_us = max(self._result.late_us, late)

    # --- events ---

    def _event(self, event: m.Event) -> None:
        action = event.action
        if isinstance(action, m.TcpPacket | m.UdpPacket | m.IcmpPacket) and action.direction == m.OUT:
            self._expect(event, action)
            return
        at = self._at(event.time)
        before = at if isinstance(action, m.Call | m.Code) else at - 1
        for waiting in [w for w in self._waiting if w.ends_us <= before]:
            self._finish(waiting)
        if not isinstance(action, m.Command):
            self._wait(at)
        match action:
            case m.Call():
                self._call(event, action, at)
            case m.Code(source):
                self._code(source)
            case m.Command(source):
                meaning = commands.understand(source)
                at += meaning.sleep_us
                self._wait(at)
                self._sysctls(meaning.sysctls)
            case m.TcpPacket() | m.UdpPacket() | m.IcmpPacket():
                self._inject(action)
        self._last_us = at

    def _note(self, what: str, at_us: int | None = None) -> None:
        at = self._script_us() if at_us is None else at_us
        self._result.log.append(f"{text.seconds(max(at, 0)):>10} {what}")

    # --- system calls ---

    def _call(self, event: m.Event, call: m.Call, at: int) -> None:
        action = calls.plan(call, self._world)
        pending = self._stack.begin(call.lasts_us is not None, action.operation, *action.arguments)
        if call.lasts_us is None:
            outcome = pending.outcome(self._stack.now_us() + (_AT_ONCE_US if self._stack.real_time else 0))
            if outcome is None:
                raise _Failed("the call waits, and the script has no time at which it returns")
            self._check(call, action, outcome)
            self._is_late(at)
        else:
            ends = call.lasts_us + (self._last_us if event.time.relative else 0)
            self._waiting.append(_Waiting(event, call, action, pending, ends))

    def _finish(self, waiting: _Waiting) -> None:
        """A call that may wait, at the time at which it is to have returned."""
        self._waiting.remove(waiting)
        allowed = self._settings.allowed_us(waiting.ends_us - self._at_of(waiting))
        deadline = self._begin_us + waiting.ends_us + allowed
        outcome = waiting.pending.outcome(deadline + (_GRACE_US if self._stack.real_time else 0))
        expected = text.event_text(waiting.event)
        if outcome is None:
            raise _Failed("the call has not returned", expected=expected)
        came = outcome.ended_us - self._begin_us
        if abs(came - waiting.ends_us) > allowed:
            when = f"it returned at {text.seconds(max(came, 0))} and not at {text.seconds(waiting.ends_us)}"
            raise _Failed(when, f"= {calls.outcome_text(outcome)}", expected, True)
        self._check(waiting.call, waiting.action, outcome, expected)

    def _at_of(self, waiting: _Waiting) -> int:
        lasts = waiting.call.lasts_us or 0
        return waiting.ends_us - max(0, lasts - waiting.event.time.us)

    def _check(self, call: m.Call, action: calls.Action, outcome: Outcome, expected: str = "") -> None:
        self._note(f"{call.name} = {calls.outcome_text(outcome)}", outcome.ended_us - self._begin_us)
        wrong = calls.wrong_result(call, outcome) or action.check(outcome)
        if wrong:
            shown = text.call_text(replace(call, result=m.Word(calls.outcome_text(outcome)), error=None, note=None))
            raise _Failed(wrong, shown, expected)

    def _code(self, source: str) -> None:
        fd = self._world.current_fd
        handle = self._world.handles.get(fd) if fd is not None else None
        info = {} if handle is None else self._stack.info(handle)
        if handle is None and code.fields(source) - self._set_by_code.keys():
            raise _Failed("there is no socket whose TCP_INFO could be read")
        wrong = code.run(source, info, self._set_by_code)
        if wrong:
            raise _Failed(wrong)

    # --- packets that come in ---

    def _inject(self, packet: m.Packet) -> None:
        flow = self._flow_for(packet)
        try:
            match packet:
                case m.TcpPacket():
                    data = wire.write_tcp(flow.to_wire(packet))
                case m.UdpPacket():
                    data = wire.write_udp(wire.Datagram(flow.remote, flow.local, b"\0" * packet.length))
                case m.IcmpPacket():
                    data = wire.write_icmp(flow.icmp_to_wire(packet))
        except KeyError as error:
            raise NotSupported(f"the ICMP message {error.args[0]}") from error
        except wire.NotAPacket as error:
            raise _Failed(str(error)) from error
        self._note(text.packet_text(packet))
        at = self._script_us()
        self._stack.inject(data)
        self._is_late(at)

    def _flow_for(self, packet: m.Packet) -> Flow:
        """The flow of a packet that the script injects; a SYN may begin one."""
        ports = None if isinstance(packet, m.IcmpPacket) else packet.ports
        if ports and ports != (0, 0):
            found = next((f for f in self._world.connections if (f.remote[1], f.local[1]) == ports), None)
            if found is None:
                found = self._new_flow(packet, ports)
            self._world.current = found
            return found
        current = self._world.current
        syn = isinstance(packet, m.TcpPacket) and packet.has("S") and not packet.has(".")
        if current is None or (self._world.listening and (syn or current.active)):
            return self._new_flow(packet, None)
        return current

    def _new_flow(self, packet: m.Packet, ports: tuple[int, int] | None) -> Flow:
        """From a remote port that no flow has."""
        protocol = wire.UDP if isinstance(packet, m.UdpPacket) else wire.TCP
        remote = ports[0] if ports else 49152 + len(self._world.connections)
        local = ports[1] if ports else self._world.settings.bind_port
        flow = Flow(protocol, (self._settings.local_ip, local), (self._settings.remote_ip, remote))
        self._world.open(flow, None)
        return flow

    # --- packets that are sent ---

    def _expect(self, event: m.Event, packet: m.Packet) -> None:
        time = event.time
        begin = 0 if time.any else self._at(time)
        end = begin if time.end_us is None else time.end_us + (self._last_us if time.relative else 0)
        allowed = 0 if time.any else self._settings.allowed_us(end - self._last_us)
        until = self._script_us() + _ANY_US if time.any else end + allowed + _GRACE_US
        match packet:
            case m.TcpPacket():
                came_us, shown = self._expect_tcp(packet, until)
            case m.UdpPacket():
                came_us, shown = self._expect_one(packet, until, self._came_udp)
            case m.IcmpPacket():
                came_us, shown = self._expect_one(packet, until, self._came_icmp)
        if not time.any and not begin - allowed <= came_us <= end + allowed:
            off = came_us - (begin if came_us < begin else end)
            when = f"{text.seconds(abs(off))} s too {'early' if off < 0 else 'late'}"
            relative = came_us - self._last_us if time.relative else came_us
            stamp = f"{'+' if time.relative else ''}{text.seconds(max(relative, 0))}"
            raise _Failed(f"the packet came {when}", f"{stamp} {shown}", of_time=True)
        exact = not time.any and time.end_us is None
        self._last_us = begin if exact else max(came_us, self._last_us)

    def _next(self, flow: Flow | None, until: int) -> tuple[int, wire.Segment | wire.Datagram | wire.Message]:
        """The next packet of a flow, or ICMP message if that is None, and when it was sent."""
        key = id(flow) if flow else 0
        while not self._queues.get(key):
            found = self._stack.next_packet(self._begin_us + until)
            if found is None:
                raise _Failed("no packet came")
            sent_us, data = found
            try:
                packet = wire.read(data)
            except wire.NotAPacket as error:
                raise _Failed(f"a packet came that cannot be read: {error}", data.hex()) from error
            self._sort(sent_us - self._begin_us, packet)
        return self._queues[key].popleft()

    def _sort(self, at: int, packet: wire.Segment | wire.Datagram | wire.Message) -> None:
        """Into the queue of its flow; what is of none is left out."""
        owner: Flow | None = None
        if not isinstance(packet, wire.Message):
            kind = wire.TCP if isinstance(packet, wire.Segment) else wire.UDP
            ours = [f for f in reversed(self._world.connections) if f.protocol == kind]
            owner = next((f for f in ours if f.is_ours(packet.source, packet.target)), None)
            if owner is None:
                self._note(f"a packet of no flow of the script: {packet}", at)
                return
            if isinstance(packet, wire.Segment):
                owner.sees(packet)
        self._queues.setdefault(id(owner) if owner else 0, deque()).append((at, packet))

    def _current(self, packet: m.TcpPacket | m.UdpPacket) -> Flow:
        if packet.ports:
            found = next((f for f in self._world.connections if (f.local[1], f.remote[1]) == packet.ports), None)
        else:
            found = self._world.current
        if found is None:
            raise _Failed("no packet or call of the script began a connection that could send this")
        return found

    def _expect_tcp(self, packet: m.TcpPacket, until: int) -> tuple[int, str]:
        """One segment, or several that together are the expected one."""
        flow = self._current(packet)
        if packet.has("S"):
            flow.script_local_isn = packet.seq
        rest, came_us = packet, 0
        while True:
            came_us, segment = self._next(flow, until)
            assert isinstance(segment, wire.Segment)
            flow.begins_time(packet, segment)
            came = flow.to_script(segment, packet)
            shown = text.packet_text(came)
            self._note(shown, came_us)
            whole = came.length >= rest.length or self._settings.strict_segments or came.length == 0
            wanted = rest if whole else replace(rest, end=rest.seq + came.length, flags=_inner_flags(rest, came))
            push = packet.has("P") and flow.ends_all(came)
            wrong = segment.malformed or compare.tcp(wanted, came, self._settings, push=push)
            wrong = wrong or flow.check_data(segment)
            if wrong:
                raise _Failed(wrong, f"{self._stamp(came_us)} {shown}")
            flow.maps_time(packet, segment)
            if whole:
                return came_us, shown
            rest = replace(rest, seq=rest.seq + came.length)

    def _stamp(self, at: int) -> str:
        return f"+{text.seconds(max(at - self._last_us, 0))}"

    def _expect_one(
        self, packet: m.UdpPacket | m.IcmpPacket, until: int, compared: Callable[..., tuple[str | None, str]]
    ) -> tuple[int, str]:
        flow = self._current(packet) if isinstance(packet, m.UdpPacket) else None
        came_us, found = self._next(flow, until)
        wrong, shown = compared(packet, found)
        self._note(shown, came_us)
        if wrong:
            raise _Failed(wrong, f"{self._stamp(came_us)} {shown}")
        return came_us, shown

    def _came_udp(self, packet: m.UdpPacket, found: wire.Datagram) -> tuple[str | None, str]:
        ports = (found.source[1], found.target[1]) if packet.ports else None
        came = m.UdpPacket(m.OUT, len(found.data), m.IpInfo(), ports)
        return compare.udp(packet, came), text.packet_text(came)

    def _came_icmp(self, packet: m.IcmpPacket, found: wire.Message) -> tuple[str | None, str]:
        kinds = [word for word, n in wire.ICMP_KINDS.items() if n == found.kind]
        codes = [word for word, n in wire.ICMP_CODES.get(found.kind, {}).items() if n == found.code]
        kind = packet.kind if packet.kind in kinds else (kinds or [f"type_{found.kind}"])[0]
        named = packet.code if packet.code in codes else codes[0] if codes and found.code else None
        came = m.IcmpPacket(m.OUT, kind, named)
        return compare.icmp(packet, came), text.packet_text(came)


def _inner_flags(rest: m.TcpPacket, came: m.TcpPacket) -> str:
    """The flags of a piece that is not the last: without FIN, and PSH and CWR as they came."""
    kept = "".join(c for c in rest.flags if c not in "FPWC")
    return kept + "".join(c for c in "PW" if came.has(c))
