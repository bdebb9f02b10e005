"""What a URL names: a server, and the protocol that it speaks.

memcached://HOST[:11211]             ASCII, over TCP
redis://[:PASSWORD@]HOST[:6379][/DB] RESP2; rediss://: the same over TLS
http://HOST[:80][/PATH]              GETs; {key} in the path stands for a key's name; https://HOST[:443]: over TLS
udp://HOST:PORT, tcp://HOST:PORT     an echo server, or requests of your own (--request)
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, unquote, urlsplit

from ...runtime.errors import CorelaneError

PORTS = {"memcached": 11211, "redis": 6379, "rediss": 6379, "http": 80, "https": 443, "udp": 0, "tcp": 0}
PROTOCOLS = {"rediss": "redis", "https": "http"}
"""Of schemes that are a protocol over TLS."""
STORES = ("memcached", "redis")
SCHEMES = ", ".join(f"{scheme}://" for scheme in PORTS)


@dataclass(frozen=True)
class Target:
    """A server. scheme: of PORTS. host: as it was written; address: its number, once `resolved`."""

    url: str
    scheme: str
    host: str
    port: int
    path: str = "/"
    user: str = ""
    password: str = ""
    address: str = ""

    @property
    def stores(self) -> bool:
        """Whether it has keys and values."""
        return self.protocol in STORES

    @property
    def protocol(self) -> str:
        """The scheme without TLS."""
        return PROTOCOLS.get(self.scheme, self.scheme)

    @property
    def tls(self) -> bool:
        return self.scheme in PROTOCOLS

    @property
    def udp(self) -> bool:
        return self.scheme == "udp"

    @property
    def authority(self) -> str:
        """HTTP's Host: header (RFC 9110, 7.2)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def shown(self) -> str:
        """The URL without its password."""
        return _shown(self.url)

    def greeting(self) -> tuple[bytes, int]:
        """What is sent on each new connection, and how many "+OK" answer it."""
        commands: list[list[str]] = []
        if self.protocol != "redis":
            return b"", 0
        if self.password:
            commands.append(["AUTH", *([self.user] if self.user else []), self.password])
        if self.path.strip("/"):
            commands.append(["SELECT", self.path.strip("/")])
        return b"".join(_resp(words) for words in commands), len(commands)


def _resp(words: list[str]) -> bytes:
    encoded = [word.encode() for word in words]
    return b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)


def _shown(url: str) -> str:
    """A URL without its password, however that is written; also one that is none."""
    head, mark, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    who, at, host = authority.rpartition("@")
    user, colon, _ = who.partition(":")
    return f"{head}{mark}{user}{colon}{'...' if colon else ''}{at}{host}{slash}{path}"


def _written(path: str) -> str:
    """As it goes into a request's line: what cannot stand there is encoded, the rest is as it was."""
    return "".join(char if "!" <= char <= "~" else quote(char) for char in path)


def _check_user(what: str, parts: SplitResult) -> None:
    """Who has a name in the URL is told where it would be ignored."""
    if parts.scheme in ("redis", "rediss"):
        if parts.username and not parts.password:
            raise CorelaneError(what, "a user needs a password", f"write it as {parts.scheme}://USER:PASSWORD@HOST")
    elif parts.scheme in ("http", "https"):
        if parts.username is not None:
            raise CorelaneError(what, "a user in the URL is not sent", "give --header 'Authorization: ...'")
    elif parts.username is not None:
        raise CorelaneError(what, f"{parts.scheme}:// knows no users", "leave it out")


def parse(url: str) -> Target:
    """A URL's parts. CorelaneError if it names no server that can be loaded."""
    what = f"load {_shown(url)}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise CorelaneError(what, f"it is no URL ({error})", "write it as memcached://HOST:PORT") from error
    if parts.scheme not in PORTS:
        raise CorelaneError(what, f"it does not begin with one of {SCHEMES}", "write it as memcached://HOST:PORT")
    if not host:
        raise CorelaneError(what, "it names no host", f"write it as {parts.scheme}://HOST:PORT")
    _check_user(what, parts)
    if port is None:
        port = PORTS[parts.scheme]
    if not port:
        raise CorelaneError(what, "it names no port", f"write it as {parts.scheme}://{host}:PORT")
    path = parts.path or "/"
    if parts.scheme in ("redis", "rediss") and path != "/" and not path[1:].isdecimal():
        raise CorelaneError(
            what, f"{path[1:]!r} is no number of a database", f"write it as {parts.scheme}://HOST:PORT/0"
        )
    if parts.scheme in ("memcached", "udp", "tcp") and path != "/":
        raise CorelaneError(what, f"{parts.scheme}:// has no path", f"leave {path} out")
    if parts.query and PROTOCOLS.get(parts.scheme, parts.scheme) != "http":
        raise CorelaneError(what, f"{parts.scheme}:// has no query", f"leave ?{parts.query} out")
    path = _written(path + (f"?{parts.query}" if parts.query else ""))
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return Target(url, parts.scheme, host, port, path, user, password)


def resolved(target: Target) -> Target:
    """The same with its address. CorelaneError if the name has none."""
    kind = socket.SOCK_DGRAM if target.udp else socket.SOCK_STREAM
    try:
        found = socket.getaddrinfo(target.host, target.port, type=kind)
    except OSError as error:
        raise CorelaneError(f"load {target.shown}", f"{target.host} has no address: {error.strerror}") from error
    # localhost has both as a rule, and servers listen on the older one at least.
    four = [entry for entry in found if entry[0] == socket.AF_INET]
    address = str((four or found)[0][4][0]).partition("%")[0]
    return Target(
        target.url, target.scheme, target.host, target.port, target.path, target.user, target.password, address
    )
