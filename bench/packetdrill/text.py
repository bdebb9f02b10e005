"""A script, or a part of one, in packetdrill's notation. parse.parse(script_text(x)) == x."""

from __future__ import annotations

from . import model as m

_PAIR = {m.IN: "<", m.OUT: ">"}


def expression_text(e: m.Expression) -> str:
    """An expression."""
    match e:
        case m.Anything():
            return "..."
        case m.Int(value, hexadecimal):
            return f"{value:#x}" if hexadecimal else str(value)
        case m.Word(name):
            return name
        case m.Text(text, is_open):
            return f'"{text}"...' if is_open else f'"{text}"'
        case m.Or(parts):
            return "|".join(map(expression_text, parts))
        case m.Invoke(name, arguments):
            return f"{name}({_list(arguments)})"
        case m.Field(name, value, argument):
            of = "" if argument is None else f"({expression_text(argument)})"
            return f"{name}{of}={expression_text(value)}"
        case m.Array(items):
            return f"[{_list(items)}]"
        case m.Struct(items):
            return f"{{{_list(items)}}}"
    raise AssertionError(e)


def _list(items: tuple[m.Expression, ...]) -> str:
    return ", ".join(map(expression_text, items))


def option_text(o: m.TcpOption) -> str:
    """A TCP option."""
    match o:
        case m.Nop():
            return "nop"
        case m.Eol():
            return "eol"
        case m.Mss(size):
            return f"mss {size}"
        case m.Wscale(shift):
            return f"wscale {shift}"
        case m.SackOk():
            return "sackOK"
        case m.Sack(blocks):
            return " ".join(["sack", *(f"{a}:{b}" for a, b in blocks)])
        case m.Timestamp(val, ecr):
            return f"TS val {val} ecr {ecr}"
        case m.FastOpen(cookie, experimental):
            return " ".join(["FOEXP" if experimental else "FO", *([cookie] if cookie else [])])
        case m.Md5(digest):
            return f"md5 {digest}"
        case m.Unknown(kind, data):
            return f"option-{kind} {data.hex()}".rstrip()
    raise AssertionError(o)


def _ip(ip: m.IpInfo) -> str:
    said = ip.ecn or (f"tos {ip.tos:#x}" if ip.tos is not None else f"ttl {ip.ttl}" if ip.ttl is not None else "")
    return f"[{said}] " if said else ""


def _ports(ports: tuple[int, int] | None) -> str:
    return f"{ports[0]} > {ports[1]} " if ports else ""


def packet_text(p: m.Packet) -> str:
    """A packet, with its direction."""
    head = f"{_PAIR[p.direction]} {_ip(p.ip)}"
    match p:
        case m.TcpPacket():
            flags = p.flags if p.ace is None else f"{p.flags.replace('.', '')}.{p.ace}"
            words = [f"{head}{_ports(p.ports)}{flags or '-'} {p.seq}:{p.end}({p.length})"]
            words += [f"ack {p.ack}"] if p.ack is not None else []
            words += [f"win {p.win}"] if p.win is not None else []
            words += [f"urg {p.urg}"] if p.urg is not None else []
            if p.options is None:
                words.append("<...>")
            elif p.options:
                words.append(f"<{','.join(map(option_text, p.options))}>")
            return " ".join(words)
        case m.UdpPacket():
            return f"{head}udp {_ports(p.ports)}({p.length})"
        case m.IcmpPacket():
            words = [f"{head}icmp {p.kind}"]
            words += [p.code] if p.code else []
            words += [f"mtu {p.mtu}"] if p.mtu is not None else []
            words += [f"id {p.echo_id}"] if p.echo_id is not None else []
            words += [f"[{_echoed(p.echoed)}]"] if p.echoed else []
            return " ".join(words)
    raise AssertionError(p)


def _echoed(e: m.Echoed) -> str:
    return f"{e.seq}:{e.seq + e.length}({e.length})" if e.protocol == "tcp" else f"{e.protocol} ({e.length})"


def call_text(c: m.Call) -> str:
    """A system call with its result, without the time at which it returns."""
    error = f" {c.error} ({c.note})" if c.error else f" ({c.note})" if c.note else ""
    return f"{c.name}({_list(c.arguments)}) = {expression_text(c.result)}{error}"


def seconds(us: int) -> str:
    """Microseconds as seconds."""
    whole, rest = divmod(us, 1_000_000)
    return f"{whole}.{rest:06}" if rest else str(whole)


def time_text(t: m.Time) -> str:
    """When an event is."""
    if t.any:
        return "*"
    sign = "+" if t.relative else ""
    end = "" if t.end_us is None else f"~{sign}{seconds(t.end_us)}"
    return f"{sign}{seconds(t.us)}{end}"


def action_text(a: m.Action) -> str:
    """What happens."""
    match a:
        case m.Call():
            return call_text(a)
        case m.Command(text):
            return f"`{text}`"
        case m.Code(text):
            return f"%{{ {text} }}%"
        case _:
            return packet_text(a)


def event_text(e: m.Event) -> str:
    """A line of a script."""
    lasts = f"...{seconds(e.action.lasts_us)}" if isinstance(e.action, m.Call) and e.action.lasts_us is not None else ""
    return f"{time_text(e.time)}{lasts} {action_text(e.action)}"


def script_text(s: m.Script) -> str:
    """A whole script."""
    lines = [f"--{name}" if value is None else f"--{name}={value}" for name, value in s.options]
    lines += [f"`{s.init.text}`"] if s.init else []
    lines += map(event_text, s.events)
    lines += [f"`{s.cleanup.text}`"] if s.cleanup else []
    return "\n".join(lines) + "\n"
