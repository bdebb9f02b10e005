"""Words to a script: recursive descent over packetdrill's grammar, as its syntax page has it.

Understood and refused by name (NotSupported): encapsulation in other headers, flow labels, fuzzing, the options of
AccECN and of MPTCP.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from . import model as m
from .tokens import NotSupported, ScriptError, Token, tokens

_ECN = ("noecn", "ect0", "ect1", "ect01", "ce")
_FLAGS = frozenset("FSRPEWCAU")
_MPTCP = re.compile(
    r"mptcp|mp_[a-z0-9_]+|d(ss|ack|sn)[0-9]*|(add|rm|remove)_addr(ess)?[a-z0-9_]*"
)  # its options begin so
U16, U32 = (1 << 16) - 1, (1 << 32) - 1
_LATEST_S = 100_000  # of a script, and between two of its events
_DEEPEST = 40  # expressions in expressions


def parse(text: str, defines: Mapping[str, str] | None = None) -> m.Script:
    """The script that `text` is. defines: NAME -> value, beside those that its own --define lines make.

    Raises ScriptError, and NotSupported for what is packetdrill's and not ours.
    """
    named = dict(defines or {})
    for name, value in _Parser(tokens(text)).options():
        if name == "define" and value and "=" in value:
            key, _, meaning = value.partition("=")
            named.setdefault(key, meaning)
    return _Parser(tokens(text), named).script()


class _Parser:
    """Reads from a list of tokens. Names that --define lines define are replaced behind those lines alone."""

    def __init__(self, words: list[Token], defines: Mapping[str, str] | None = None) -> None:
        self._words = words
        self._at = 0
        self._defines = defines or {}
        self._depth = 0  # of the expression that is being read

    # --- reading tokens ---

    def _peek(self, ahead: int = 0) -> Token:
        return self._words[min(self._at + ahead, len(self._words) - 1)]

    def _next(self) -> Token:
        token = self._peek()
        self._at += 1
        return token

    def _is(self, *kinds_or_words: str) -> bool:
        token = self._peek()
        return token.kind in kinds_or_words or (token.kind == "word" and token.text in kinds_or_words)

    def _take(self, what: str) -> bool:
        """Take the token if it is `what`."""
        if self._is(what):
            self._at += 1
            return True
        return False

    def _need(self, kind: str, where: str) -> Token:
        token = self._next()
        if token.kind != kind and not (token.kind == "word" and token.text == kind):
            raise self._wrong(token, f"{kind!r} {where}")
        return token

    def _wrong(self, token: Token, expected: str) -> ScriptError:
        found = f"{token.text!r}" if token.kind != "end" else "the end"
        return ScriptError(token.line, f"expected {expected}, found {found}")

    def _int(self, where: str, most: int = U32) -> int:
        token = self._next()
        if token.kind not in ("int", "hex"):
            raise self._wrong(token, f"a number {where}")
        value = int(token.text, 0) if token.kind == "hex" else int(token.text)
        if not 0 <= value <= most:
            raise ScriptError(token.line, f"{token.text} {where} is not from 0 to {most}")
        return value

    # --- the whole ---

    def options(self) -> tuple[tuple[str, str | None], ...]:
        """`--name=value` lines."""
        out: list[tuple[str, str | None]] = []
        while self._is("option"):
            name = self._next().text
            out.append((name, self._option_value() if self._take("=") else None))
        return tuple(out)

    def _option_value(self) -> str:
        token = self._next()
        if token.kind not in ("int", "hex", "float", "word", "string", "ip", ":"):
            raise self._wrong(token, "a value of the option")
        value = token.text
        while self._take("-") or (self._peek().kind == "int" and self._peek().text.startswith("-")):
            value += "-" + self._next().text.removeprefix("-")  # ipv4-mapped-ipv6
        while self._is(":"):  # IPv6, which the settings refuse
            value += self._next().text
            value += self._next().text if self._is("int", "word", "ip") else ""
        if self._take("/"):
            value += "/" + self._need("int", "behind the slash").text
        if token.kind == "word" and self._take("="):
            right = self._next()
            quote = {"string": '"', "command": "`"}.get(right.kind, "")
            value += f"={quote}{right.text}{quote}"
        return value

    def script(self) -> m.Script:
        """All of it."""
        options = self.options()
        if self._defines:
            self._words = [_put_in_place(token, self._defines) for token in self._words]
        init = m.Command(self._next().text) if self._is("command") else None
        events, cleanup = [], None
        while not self._is("end"):
            if self._is("command"):
                cleanup = m.Command(self._next().text)
                break
            events.append(self._event())
        self._need("end", "behind the last command")
        return m.Script(options, init, tuple(events), cleanup)

    def _event(self) -> m.Event:
        line = self._peek().line
        time = self._time()
        action = self._action()
        out_packet = isinstance(action, m.TcpPacket | m.UdpPacket | m.IcmpPacket) and action.direction == m.OUT
        if (time.any or time.end_us is not None) and not out_packet:
            raise ScriptError(line, "`*` and time ranges are for packets that are expected (`>`) alone")
        return m.Event(time, action, line)

    def _time(self) -> m.Time:
        if self._take("*"):
            return m.Time(any=True)
        relative = self._take("+")
        begin, end = self._seconds(), None
        if self._take("~"):
            line = self._peek().line
            if relative != self._take("+"):
                raise ScriptError(line, "both ends of a time range have a plus sign, or none has")
            end = self._seconds()
            if end < begin:
                raise ScriptError(line, "the time range ends before it begins")
        return m.Time(begin, relative, end)

    def _seconds(self) -> int:
        token = self._next()
        if token.kind not in ("int", "float"):
            raise self._wrong(token, "a time in seconds")
        if token.text.startswith("-"):
            raise ScriptError(token.line, f"the time {token.text} is negative")
        whole, _, part = token.text.partition(".")
        if int(whole or 0) > _LATEST_S:
            raise ScriptError(token.line, f"a time of {token.text} s is longer than a script may last ({_LATEST_S} s)")
        return int(whole or 0) * 1_000_000 + int((part + "000000")[:6])

    def _action(self) -> m.Action:
        if self._is("<", ">"):
            return self._packet()
        if self._is("command"):
            return m.Command(self._next().text)
        if self._is("code"):
            return m.Code(self._next().text)
        return self._call()

    # --- packets ---

    def _packet(self) -> m.Packet:
        direction = self._next().kind
        for name in ("ipv4", "ipv6", "gre", "GREv0", "mpls"):
            if self._is(name):
                raise NotSupported(f"packets inside others ({name})", self._peek().line)
        if self._is("[") and self._peek(2).kind == ":":  # of older scripts: before the message that is about it
            echoed = self._echoed()
            return self._icmp(direction, self._ip_info(direction), echoed)
        ip = self._ip_info(direction)
        if self._is("icmp"):
            return self._icmp(direction, ip)
        if self._take("udp"):
            ports = self._opt_ports()
            self._need("(", "before the length of a datagram")
            length = self._int("as length of a datagram", U16)
            self._need(")", "behind the length of a datagram")
            return m.UdpPacket(direction, length, ip, ports)
        return self._tcp(direction, ip)

    def _ip_info(self, direction: str) -> m.IpInfo:
        if not self._is("(", "["):
            return m.IpInfo()
        close = {"(": ")", "[": "]"}[self._next().kind]
        token = self._next()
        ip = m.IpInfo()
        if token.text in _ECN:
            ip = m.IpInfo(ecn=token.text)
        elif token.text == "tos":
            ip = m.IpInfo(tos=self._int("as type of service", 255))
        elif token.text == "ttl":
            ip = m.IpInfo(ttl=self._int("as time to live", 255))
        elif token.text != "flowlabel":
            raise self._wrong(token, f"one of {', '.join(_ECN)}, tos, ttl")
        if token.text == "flowlabel" or self._is(","):
            raise NotSupported("flow labels of IPv6", token.line)
        if ip.ecn == "ect01" and direction == m.IN:
            raise ScriptError(token.line, "[ect01] is for packets that are expected (`>`) alone")
        self._need(close, "behind what is said of the IP header")
        return ip

    def _opt_ports(self) -> tuple[int, int] | None:
        if self._peek().kind != "int" or self._peek(1).kind != ">":
            return None
        source = self._int("as port", U16)
        self._next()
        return source, self._int("as port", U16)

    def _tcp(self, direction: str, ip: m.IpInfo) -> m.TcpPacket:
        ports = self._opt_ports()
        flags, ace = self._flags()
        seq, end = self._range()
        ack = self._int("as acknowledgement") if self._take("ack") else None
        win = self._int("as window", U16) if self._take("win") else None
        urg = self._int("as urgent pointer", U16) if self._take("urg") else None
        line = self._peek().line
        options = self._options() if self._is("<") else ()
        if options is None and direction == m.IN:
            raise ScriptError(line, "<...> is for packets that are expected (`>`) alone")
        if self._is("{"):
            raise NotSupported("fuzzing", self._peek().line)
        return m.TcpPacket(direction, flags, seq, end, ack, win, urg, options, ip, ports, ace)

    def _flags(self) -> tuple[str, int | None]:
        token = self._next()
        flags = ""
        if token.kind == "-":
            return "", None
        if token.kind == "word":
            flags = token.text
            if not set(flags) <= _FLAGS:
                raise self._wrong(token, "flags of a TCP segment, such as S, F. or P.")
            if not self._is(".", "float"):
                return flags, None
            token = self._next()
        if token.kind == ".":
            return flags + ".", None
        if token.kind == "float" and token.text.startswith(".") and token.text[1:].isdigit():
            ace = int(token.text[1:])
            if ace > 7:
                raise ScriptError(token.line, f"{ace} as counter of AccECN is not from 0 to 7")
            return flags + ".", ace
        raise self._wrong(token, "flags of a TCP segment, such as S, F. or P.")

    def _range(self) -> tuple[int, int]:
        line = self._peek().line
        seq = self._int("as first sequence number")
        self._need(":", "between sequence numbers")
        end = self._int("as last sequence number")
        self._need("(", "before the length of a segment")
        length = self._int("as length of a segment", U16)
        self._need(")", "behind the length of a segment")
        if end != seq + length:
            raise ScriptError(line, f"{seq}:{end} are {end - seq} bytes and not {length}")
        return seq, end

    def _options(self) -> tuple[m.TcpOption, ...] | None:
        self._need("<", "before options")
        if self._take("ellipsis"):
            self._need(">", "behind options")
            return None
        out = [self._option()]
        while self._take(","):
            out.append(self._option())
        self._need(">", "behind options")
        return tuple(out)

    def _option(self) -> m.TcpOption:
        token = self._next()
        known: dict[str, Callable[[], m.TcpOption]] = {
            "nop": m.Nop,
            "eol": m.Eol,
            "sackOK": m.SackOk,
            "mss": lambda: m.Mss(self._int("as MSS", U16)),
            "wscale": lambda: m.Wscale(self._int("as window scale", 255)),
            "sack": self._sack,
            "TS": self._timestamp,
            "FO": lambda: m.FastOpen(self._blob()),
            "FOEXP": lambda: m.FastOpen(self._blob(), True),
            "md5": lambda: m.Md5(self._blob()),
        }
        if token.text in ("ECN", "e0b", "e1b", "ceb"):
            raise NotSupported("options of AccECN", token.line)
        if _MPTCP.fullmatch(token.text):
            raise NotSupported(f"options of MPTCP ({token.text})", token.line)
        if token.text not in known:
            raise self._wrong(token, f"a TCP option: {', '.join(known)}")
        return known[token.text]()

    def _sack(self) -> m.Sack:
        blocks: list[tuple[int, int]] = []
        while self._is("int") or not blocks:
            left = self._int("as edge of a SACK block")
            self._need(":", "between the edges of a SACK block")
            blocks.append((left, self._int("as edge of a SACK block")))
        return m.Sack(tuple(blocks))

    def _timestamp(self) -> m.Timestamp:
        self._need("val", "in a timestamp")
        val = self._int("as timestamp")
        self._need("ecr", "in a timestamp")
        return m.Timestamp(val, self._int("as timestamp"))

    def _blob(self) -> str:
        if not self._is("word", "int"):
            return ""
        token = self._next()
        try:
            bytes.fromhex(token.text)
        except ValueError:
            raise ScriptError(token.line, f"{token.text!r} is not a row of bytes in hexadecimal") from None
        return token.text

    def _icmp(self, direction: str, ip: m.IpInfo, echoed: m.Echoed | None = None) -> m.IcmpPacket:
        self._need("icmp", "in front of an ICMP message")
        kind = self._need("word", "as type of ICMP message").text
        code = self._next().text if self._is("word") and not self._is("mtu", "id") else None
        mtu = self._int("as MTU", U32) if self._take("mtu") else None
        echo_id = self._int("as identifier", U16) if self._take("id") else None
        if self._is("["):
            echoed = self._echoed()
        return m.IcmpPacket(direction, kind, code, mtu, echo_id, echoed, ip)

    def _echoed(self) -> m.Echoed:
        """The packet that an ICMP message is about."""
        self._need("[", "before the packet that an ICMP message is about")
        if self._is("udp", "raw"):
            protocol = self._next().text
            self._need("(", "before the length of a packet")
            found = m.Echoed(protocol, 0, self._int("as length of a packet", U16))
            self._need(")", "behind the length of a packet")
        else:
            seq, end = self._range()
            found = m.Echoed("tcp", seq, end - seq)
        self._need("]", "behind the packet that an ICMP message is about")
        return found

    # --- system calls ---

    def _call(self) -> m.Call:
        lasts = self._seconds() if self._take("ellipsis") else None
        token = self._next()
        if token.kind != "word":
            raise self._wrong(token, "a packet (< or >), a system call, `a command` or %{ code }%")
        self._need("(", f"behind {token.text}")
        arguments = self._list(")")
        self._need("=", f"and the result of {token.text}")
        result = self._expression()
        error = self._next().text if self._is("word") else None
        note = self._note() if self._is("(") else None
        if error is not None and note is None:
            raise self._wrong(self._peek(), f"a note in brackets behind {error}, as in {error} (what it means)")
        return m.Call(token.text, arguments, result, lasts, error, note)

    def _note(self) -> str:
        self._need("(", "before a note")
        words = []
        while not self._is(")"):
            token = self._next()
            if token.kind != "word":
                raise self._wrong(token, "words in brackets")
            words.append(token.text)
        self._next()
        return " ".join(words)

    def _list(self, close: str) -> tuple[m.Expression, ...]:
        """Expressions up to `close`, which is taken."""
        out: list[m.Expression] = []
        while not self._take(close):
            if out:
                self._need(",", "between expressions")
            out.append(self._expression())
        return tuple(out)

    def _expression(self) -> m.Expression:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ScriptError(self._peek().line, f"expressions are nested deeper than {_DEEPEST}")
        parts = [self._primary()]
        while self._take("|"):
            parts.append(self._primary())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else m.Or(tuple(parts))

    def _primary(self) -> m.Expression:
        token = self._next()
        match token.kind:
            case "ellipsis":
                return m.Anything()
            case "int":
                return m.Int(int(token.text))
            case "hex":
                return m.Int(int(token.text, 16), True)
            case "string":
                text = token.text
                while self._is("string"):
                    text += self._next().text
                return m.Text(text, self._take("ellipsis"))
            case "[":
                return m.Array(self._list("]"))
            case "{":
                return m.Struct(self._list("}"))
            case "word":
                return self._named(token.text)
        raise self._wrong(token, "an expression")

    def _named(self, name: str) -> m.Expression:
        """What begins with a word: a constant, a field, a function."""
        arguments: tuple[m.Expression, ...] | None = self._list(")") if self._take("(") else None
        if self._take("="):
            if arguments is not None and len(arguments) != 1:
                raise ScriptError(self._peek().line, f"the field {name} has one argument")
            return m.Field(name, self._expression(), arguments[0] if arguments else None)
        return m.Word(name) if arguments is None else m.Invoke(name, arguments)


def _put_in_place(token: Token, defines: Mapping[str, str]) -> Token:
    """`--define=NAME=value`: the value in place of the name."""
    value = defines.get(token.text) if token.kind == "word" else None
    if value is None:
        return token
    found = tokens(value)
    return Token(found[0].kind, found[0].text, token.line) if len(found) == 2 else token
