"""Requests by families, the same bytes for any HTTP/1.1 server of the test folder (tests/apps/http/conftest.py).

A case is what a client sends before it asks for LAST, on the same connection, and sends no more. {etag} stands for the
entity tag that the server gives TEXT's file.
"""

from __future__ import annotations

LAST = b"GET /sub/a%20b.txt HTTP/1.1\r\nHost: last\r\n\r\n"
LAST_BODY = b"a space"
DATE, EARLIER, LATER = (f"{day} Nov 1994 08:49:37 GMT" for day in ("Sun, 06", "Sat, 05", "Mon, 07"))


def ask(target: str = "/text.txt", *lines: str, method: str = "GET", version: str = "1.1", body: str = "") -> bytes:
    """A request with a Host, and the lines of its head besides."""
    head = "".join(f"{line}\r\n" for line in ("Host: here", *lines))
    return f"{method} {target} HTTP/{version}\r\n{head}\r\n{body}".encode("latin-1")


def line(text: str, *more: str) -> bytes:
    """A request by its first line."""
    return "".join(f"{each}\r\n" for each in (text, "Host: here", *more, "")).encode("latin-1")


def each(texts: str) -> list[str]:
    """Those that a bar is between."""
    return texts.split(" | ")


def chunked(body: str, *lines: str, target: str = "/take", method: str = "POST") -> bytes:
    return ask(target, "Transfer-Encoding: chunked", *lines, method=method, body=body)


def _lines() -> dict[str, bytes]:
    """First lines: methods, forms of a target, versions, spaces."""
    cases = {
        f"method {m}": ask(method=m) for m in ("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "PATCH", "POST")
    }
    cases |= {
        f"method {m} with a body": ask("/text.txt", "Content-Length: 3", method=m, body="abc")
        for m in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH")
    }
    for name in ("get", "Get", "BREW", "G3T", "M-SEARCH", "PROPFIND", "MKCOL", "LOCK", "GE(T", "", "CONNECT", "X" * 40):
        cases[f"method {name[:10]!r}"] = line(f"{name} /text.txt HTTP/1.1")
    for target in each(
        "* | text.txt |  | http://here/text.txt | HTTP://HERE/text.txt | http://here | http://here?a=b | "
        "http://here:80/text.txt | http://[::1]/text.txt | http://user@here/text.txt | http:///text.txt | "
        "http://here:x/text.txt | http:/text.txt | http://there/text.txt | https://here/text.txt | here:80 | "
        "://here/text.txt | /text.txt? | /text.txt?a=b | /text.txt?a?b | /text.txt?a b | /text.txt?%zz | "
        '?a=b | /text.txt#part | /# | /a|b | /a\\b | /a"b | /<a> | /a^b | /{a} | /\x7f | /\xe9 | /\x01 | /a\tb'
    ):
        cases[f"target {target!r}"] = line(f"GET {target} HTTP/1.1")
    for version in each(
        "HTTP/1.0 | HTTP/1.2 | HTTP/1.9 | HTTP/2.0 | HTTP/2 | HTTP/0.9 | HTTP/3.0 | HTTP/1 | HTTP/1. | "
        "HTTP/.1 | HTTP/01.1 | HTTP/1.10 | HTTP/1.01 | HTTP/11.1 | HTTP/1.1  | HTTP/1.1 x | http/1.1 | "
        "Http/1.1 | HTTP 1.1 | HTTP/1,1 | HTTP/-1.1 | HTTP/a.b | RTSP/1.0 | HTTPS/1.1 | "
    ):
        cases[f"version {version!r}"] = line(f"GET /text.txt {version}")
    for text in each(
        "GET /text.txt |  GET /text.txt HTTP/1.1 | \tGET /text.txt HTTP/1.1 | GET  /text.txt HTTP/1.1 | "
        "GET /text.txt  HTTP/1.1 | GET\t/text.txt HTTP/1.1 | GET /text.txt\tHTTP/1.1 | GET /a b HTTP/1.1 | "
        "GET/text.txt HTTP/1.1 | GET /text.txtHTTP/1.1 | GET | \x16\x03\x01\x02 | \x00 | GET /\x00 HTTP/1.1 | "
        "GET /text.txt HTTP/1.1\r | PRI * HTTP/2.0"
    ):
        cases[f"line {text!r}"] = line(text)
    cases["HTTP/0.9"] = b"GET /text.txt\r\n"
    cases["an empty line before"] = b"\r\n" + ask()
    cases["two empty lines before"] = b"\r\n\r\n" + ask()
    cases["an empty line of LF before"] = b"\n" + ask()
    cases["LF ends all lines"] = b"GET /text.txt HTTP/1.1\nHost: here\n\n"
    cases["LF ends the first line"] = b"GET /text.txt HTTP/1.1\nHost: here\r\n\r\n"
    for n in (1000, 7000, 9000, 100_000):
        cases[f"a target of {n} bytes"] = ask("/" + "x" * n)
        cases[f"a query of {n} bytes"] = ask("/text.txt?" + "x" * n)
    return cases


def _heads() -> dict[str, bytes]:
    """Header lines."""
    cases = {
        "no Host": b"GET /text.txt HTTP/1.1\r\n\r\n",
        "no Host in 1.0": b"GET /text.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        "two Hosts": ask("/text.txt", "Host: there"),
        "the same Host twice": ask("/text.txt", "Host: here"),
        "two Hosts in 1.0": ask("/text.txt", "Host: there", version="1.0"),
    }
    for host in (
        "",
        "here:80",
        "here:",
        "here:x",
        "here:99999",
        "[::1]",
        "[::1]:80",
        "[::1",
        "::1",
        "a b",
        "a/b",
        "a,b",
        "user@here",
        "a\tb",
        "here.",
        ".",
        "..",
        "a..b",
        "HERE",
        "*",
        "a_b",
        "a%20b",
        "a\\b",
        "\xe9",
        "a?b",
        "a#b",
        "a\0b",
        "x" * 300,
    ):
        cases[f"Host {host[:10]!r}"] = b"GET /text.txt HTTP/1.1\r\nHost: " + host.encode("latin-1") + b"\r\n\r\n"
    for text in each(
        "X: y | X:y | X: | X:  | X:\ty\t | X : y | X\t: y |  X: y | \tX: y | X Y: z | XY | : y | : | "
        "X: a\x00b | X: a\x01b | X: a\x7fb | X: \xe9 | X\xe9: y | X: a\rb | X\x00: y | X(: y | X_Y: z | "
        'X.Y: z | X"Y: z | X@Y: z | X: a\r\n b | X: a\r\n\tb | X: a\nY: b | X: a\r\r\nY: b | \x0bX: y | '
        "X: y\x0b | Content Length: 3"
    ):
        cases[f"header {text!r}"] = ask("/text.txt", text)
    for n in (20, 90, 200, 5000):
        cases[f"{n} headers"] = ask("/text.txt", *(f"X-{i}: y" for i in range(n)))
    for n in (4000, 7000, 9000, 20_000, 70_000):
        cases[f"a header of {n} bytes"] = ask("/text.txt", "X: " + "y" * n)
        cases[f"a name of {n} bytes"] = ask("/text.txt", "X" * n + ": y")
    for value in each(
        "close | Close | keep-alive | close, keep-alive | keep-alive, close | x, close | close, | ,close | "
        'upgrade | x |  | closed | "close" | close;q=1'
    ):
        cases[f"Connection {value!r}"] = ask("/text.txt", f"Connection: {value}")
        cases[f"Connection {value!r} in 1.0"] = ask("/text.txt", f"Connection: {value}", version="1.0")
    cases["Connection twice"] = ask("/text.txt", "Connection: keep-alive", "Connection: close")
    cases["Connection twice, close first"] = ask("/text.txt", "Connection: close", "Connection: x")
    for value in ("h2c", "websocket", "HTTP/2.0, TLS/1.0", "x"):
        cases[f"Upgrade {value!r}"] = ask(
            "/text.txt", "Connection: Upgrade", f"Upgrade: {value}", "HTTP2-Settings: AAMAAABk"
        )
    for value in ("100-continue", "100-Continue", "100-continue, x", "x", "", "200-ok"):
        cases[f"Expect {value!r}"] = ask("/take", f"Expect: {value}", "Content-Length: 3", method="POST", body="abc")
        cases[f"Expect {value!r} without a body"] = ask("/text.txt", f"Expect: {value}")
        cases[f"Expect {value!r} in 1.0"] = ask(
            "/text.txt", f"Expect: {value}", "Connection: keep-alive", version="1.0"
        )
    return cases


def _bodies() -> dict[str, bytes]:
    """Framing of a body, for a handler and for a file."""
    cases = {}
    for length in (
        "3",
        "0",
        "03",
        "+3",
        "-3",
        "3 ",
        "3\t",
        " 3",
        "",
        "x",
        "3x",
        "3,3",
        "3, 3",
        "3,4",
        "0x3",
        "3.0",
        "1e1",
        "3;x",
        '"3"',
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551619",
        "9" * 40,
        "0" * 40 + "3",
        "1048576",
        "1048577",
        "\x0b3",
        "3\x00",
    ):
        cases[f"Content-Length {length[:24]!r}"] = ask("/take", f"Content-Length: {length}", method="POST", body="abc")
    cases["no length"] = ask("/take", method="POST")
    cases["PUT without a length"] = ask("/take", method="PUT")
    cases["two lengths"] = ask("/take", "Content-Length: 3", "Content-Length: 4", method="POST", body="abc")
    cases["the same length twice"] = ask("/take", "Content-Length: 3", "Content-Length: 3", method="POST", body="abc")
    cases["a length, then chunks"] = chunked("0\r\n\r\n", "Content-Length: 3")
    cases["chunks, then a length"] = ask(
        "/take", "Content-Length: 3", "Transfer-Encoding: chunked", method="POST", body="0\r\n\r\n"
    )
    cases["a length less than what comes"] = ask("/take", "Content-Length: 2", method="POST", body="abc")
    cases["a length more than what comes"] = ask("/take", "Content-Length: 500", method="POST", body="abc")
    for coding in each(
        "Chunked | chunked  | chunked, | ,chunked | identity | gzip | gzip, chunked | chunked, gzip | "
        'chunked, chunked |  | xchunked | chunkedx | "chunked" | chunked;q=1 | \x0bchunked | '
        "chunked, identity | chunked\x00"
    ):
        cases[f"Transfer-Encoding {coding!r}"] = ask(
            "/take", f"Transfer-Encoding: {coding}", method="POST", body="3\r\nabc\r\n0\r\n\r\n"
        )
    cases["Transfer-Encoding twice"] = chunked("0\r\n\r\n", "Transfer-Encoding: chunked")
    cases["Transfer-Encoding twice, two codings"] = ask(
        "/take", "Transfer-Encoding: gzip", "Transfer-Encoding: chunked", method="POST", body="0\r\n\r\n"
    )
    cases["chunks in 1.0"] = ask(
        "/take", "Transfer-Encoding: chunked", method="POST", version="1.0", body="3\r\nabc\r\n0\r\n\r\n"
    )
    for body in (
        "3\r\nabc\r\n0\r\n\r\n",
        "0\r\n\r\n",
        "003\r\nabc\r\n000\r\n\r\n",
        "3;x\r\nabc\r\n0;y\r\n\r\n",
        '3;x="a"\r\nabc\r\n0\r\n\r\n',
        "3 ;x\r\nabc\r\n0\r\n\r\n",
        "3; x\r\nabc\r\n0\r\n\r\n",
        "3;\r\nabc\r\n0\r\n\r\n",
        "3 \r\nabc\r\n0\r\n\r\n",
        " 3\r\nabc\r\n0\r\n\r\n",
        "3\t\r\nabc\r\n0\r\n\r\n",
        "A\r\n0123456789\r\n0\r\n\r\n",
        "a\r\n0123456789\r\n0\r\n\r\n",
        "+3\r\nabc\r\n0\r\n\r\n",
        "-3\r\nabc\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "x\r\nabc\r\n0\r\n\r\n",
        "\r\nabc\r\n0\r\n\r\n",
        "3\nabc\n0\n\n",
        "3\r\nabc0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\r\nab\r\n0\r\n\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "3\r\nabc\r\n0\n\r\n",
        "3\r\nabc\r\n0\r\n\n",
        "3\r\nabc\r\n0\r\nX: y\r\n\r\n",
        "3\r\nabc\r\n0\r\nX: y\n\r\n",
        "3\r\nabc\r\n0\r\nContent-Length: 5\r\n\r\n",
        "3\r\nabc\r\n0\r\nX y\r\n\r\n",
        "3\r\nabc\r\n0\r\n X: y\r\n\r\n",
        "3\r\nabc\r\n0\r\nX: a\r\n b\r\n\r\n",
        "ffffffffffffffff\r\nabc\r\n",
        "fffffffffffffffff\r\nabc\r\n",
        "7fffffffffffffff\r\nabc\r\n",
        "10000000000000003\r\nabc\r\n0\r\n\r\n",
        "8000000000000000\r\nabc\r\n",
        "3;a\nb\r\nabc\r\n0\r\n\r\n",
        "3;a\rb\r\nabc\r\n0\r\n\r\n",
        "3;\x00\r\nabc\r\n0\r\n\r\n",
        "1\r\na\r\n" * 100 + "0\r\n\r\n",
        "200000\r\n",
    ):
        cases[f"chunks {body[:40]!r}"] = chunked(body)
    cases["chunks with a long extension"] = chunked("3;" + "x" * 10_000 + "\r\nabc\r\n0\r\n\r\n")
    cases["many trailers"] = chunked("3\r\nabc\r\n0\r\n" + "X: y\r\n" * 1000 + "\r\n")
    cases["chunks for a file"] = chunked("3\r\nabc\r\n0\r\n\r\n", target="/text.txt", method="GET")
    cases["a long body for a file"] = ask("/text.txt", "Content-Length: 50000", body="x" * 50_000)
    cases["a request within a body"] = ask("/text.txt", f"Content-Length: {len(ask('/no'))}", body=ask("/no").decode())
    return cases


def _ranges() -> dict[str, bytes]:
    cases = {}
    for text in (
        "bytes=0-4",
        "bytes=5-",
        "bytes=-7",
        "bytes=0-99999999",
        "bytes=-99999999",
        "bytes=0-0",
        "bytes=689-",
        "bytes=690-",
        "bytes=-0",
        "bytes=99999-",
        "bytes=2-1",
        "bytes=a-b",
        "bytes=",
        "bytes=-",
        "bytes=1",
        "bytes=--1",
        "bytes=1-2-3",
        "bytes=1-2x",
        "bytes= 1-2",
        "bytes=1-2 ",
        "bytes=1 -2",
        "bytes=1- 2",
        "bytes =1-2",
        "Bytes=1-2",
        "lines=1-2",
        "bytes",
        "bytes:1-2",
        "",
        "bytes=+1-2",
        "bytes=0x1-2",
        "bytes=1-99999999999999999999999",
        "bytes=99999999999999999999999-",
        "bytes=-99999999999999999999999",
        "bytes=0-0,2-2",
        "bytes=0-0, 2-2",
        "bytes=0-0 ,2-2",
        "bytes=0-0,,2-2",
        "bytes=,0-0",
        "bytes=0-0,",
        "bytes=,",
        "bytes=0-9,5-14",
        "bytes=10-19,0-9",
        "bytes=-5,0-4",
        "bytes=0-0,99999-",
        "bytes=99999-,0-0",
        "bytes=99999-,88888-",
        "bytes=0-0,2-1",
        "bytes=0-0,x",
        "bytes=0-,0-",
        "bytes=0-,0-,0-,0-",
        "bytes=0-0\t,\t2-2",
        "bytes=" + ",".join(f"{i}-{i}" for i in range(0, 32, 2)),
        "bytes=" + ",".join(f"{i}-{i}" for i in range(0, 34, 2)),
        "bytes=" + ",".join("0-" for _ in range(500)),
    ):
        cases[f"Range {text[:40]!r}"] = ask("/text.txt", f"Range: {text}")
    cases |= {
        "Range of nothing": ask("/empty", "Range: bytes=0-"),
        "Range of the last of nothing": ask("/empty", "Range: bytes=-1"),
        "Range of HEAD": ask("/text.txt", "Range: bytes=0-4", method="HEAD"),
        "Range of HEAD that is not there": ask("/text.txt", "Range: bytes=99999-", method="HEAD"),
        "Range of POST": ask("/take", "Range: bytes=0-1", "Content-Length: 3", method="POST", body="abc"),
        "Range twice": ask("/text.txt", "Range: bytes=0-1", "Range: bytes=2-3"),
        "Range in 1.0": ask("/text.txt", "Range: bytes=0-4", version="1.0"),
        "Range of what is not there": ask("/none", "Range: bytes=0-4"),
        "Range of a folder": ask("/sub/", "Range: bytes=0-1"),
        "Range of a redirect": ask("/sub", "Range: bytes=0-1"),
        "Range of a large file": ask("/large.bin", "Range: bytes=1000000-1000009"),
        "Ranges of a large file": ask("/large.bin", "Range: bytes=0-9,300000-300009,-10"),
    }
    for text in (
        "{etag}",
        "W/{etag}",
        '"other"',
        "*",
        '{etag}, "x"',
        DATE,
        EARLIER,
        LATER,
        "yesterday",
        "",
        "Sunday, 06-Nov-94 08:49:37 GMT",
    ):
        cases[f"If-Range {text!r}"] = ask("/text.txt", "Range: bytes=0-4", f"If-Range: {text}")
    cases["If-Range without Range"] = ask("/text.txt", "If-Range: {etag}")
    cases["If-Range, no such range"] = ask("/text.txt", "If-Range: {etag}", "Range: bytes=99999-")
    cases["If-Range of another, no such range"] = ask("/text.txt", 'If-Range: "other"', "Range: bytes=99999-")
    return cases


def _conditions() -> dict[str, bytes]:
    cases = {}
    tags = each(
        '{etag} | W/{etag} | w/{etag} | "other" | * | "other", {etag} | "other",{etag} | '
        '{etag} , "other" | , {etag} | "a,b", {etag} |  | other | " | "x | *, "x" | "*" | W/* | '
        "{etag}x"
    )
    dates = (
        DATE,
        EARLIER,
        LATER,
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "Saturday, 05-Nov-94 08:49:37 GMT",
        "Sat Nov  5 08:49:37 1994",
        "Mon Nov  7 08:49:37 1994",
        "yesterday",
        "",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37 +0000",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Mon, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 nov 1994 08:49:37 GMT",
        "Sun, 31 Feb 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 25:49:37 GMT",
        "Fri, 01 Jan 9999 00:00:00 GMT",
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "Sun, 06 Nov 1994 08:49:37 GMT; length=690",
        "0",
        "784111777",
        "Wed, 01 Jan 1900 00:00:00 GMT",
        "Sun, 06 Nov 1994 08:49:60 GMT",
    )
    for field in ("If-Match", "If-None-Match"):
        cases |= {f"{field} {tag!r}": ask("/text.txt", f"{field}: {tag}") for tag in tags}
    for field in ("If-Modified-Since", "If-Unmodified-Since"):
        cases |= {f"{field} {date!r}": ask("/text.txt", f"{field}: {date}") for date in dates}
    for name, lines in {
        "two If-None-Match": ['If-None-Match: "other"', "If-None-Match: {etag}"],
        "two If-Match": ['If-Match: "other"', "If-Match: {etag}"],
        "two If-Modified-Since": [f"If-Modified-Since: {EARLIER}", f"If-Modified-Since: {LATER}"],
        "another tag, and not modified": ['If-None-Match: "other"', f"If-Modified-Since: {DATE}"],
        "our tag, and modified": ["If-None-Match: {etag}", f"If-Modified-Since: {EARLIER}"],
        "our tag, and modified too late": ["If-Match: {etag}", f"If-Unmodified-Since: {EARLIER}"],
        "another tag, and unmodified": ['If-Match: "other"', f"If-Unmodified-Since: {DATE}"],
        "both tags": ["If-Match: {etag}", "If-None-Match: {etag}"],
        "a range of what is known": ["Range: bytes=0-4", "If-None-Match: {etag}"],
        "a range of another": ["Range: bytes=0-4", 'If-None-Match: "other"'],
        "no such range of what is known": ["Range: bytes=99999-", "If-None-Match: {etag}"],
        "a range that must match": ["Range: bytes=0-4", 'If-Match: "other"'],
    }.items():
        cases[name] = ask("/text.txt", *lines)
        cases[f"{name}, HEAD"] = ask("/text.txt", *lines, method="HEAD")
    cases["If-None-Match of what is not there"] = ask("/none", "If-None-Match: *")
    cases["If-Match of what is not there"] = ask("/none", "If-Match: *")
    cases["If-Match of PUT"] = ask("/text.txt", 'If-Match: "other"', "Content-Length: 0", method="PUT")
    return cases


def _paths() -> dict[str, bytes]:
    targets = (
        "/",
        "/?a=b",
        "//",
        "///text.txt",
        "/.",
        "/./",
        "/./text.txt",
        "/..",
        "/../",
        "/../text.txt",
        "/sub/..",
        "/sub/../",
        "/sub/../text.txt",
        "/sub/../../text.txt",
        "/sub/.",
        "/sub/./",
        "/sub//a%20b.txt",
        "/sub",
        "/sub?a=b",
        "/sub?",
        "/sub/",
        "/sub//",
        "//sub",
        "/sub/index.html",
        "/text.txt/",
        "/text.txt/x",
        "/text.txt/..",
        "/none/..",
        "/none/../text.txt",
        "/text.txt/../text.txt",
        "/text%2etxt",
        "/%74ext.txt",
        "/te%78t.txt",
        "/TEXT.TXT",
        "/%2e",
        "/%2e/text.txt",
        "/%2e%2e",
        "/%2e%2e/text.txt",
        "/sub/%2e%2e/text.txt",
        "/sub/.%2e/text.txt",
        "/%2e%2e%2ftext.txt",
        "/sub%2f..%2ftext.txt",
        "/sub%2fa%20b.txt",
        "/sub%2F",
        "/%2f",
        "/%2ftext.txt",
        "/sub%5c..%5ctext.txt",
        "/..%5ctext.txt",
        "/%00",
        "/text.txt%00",
        "/text.txt%00.html",
        "/%0a",
        "/%0d%0aX:y",
        "/%7f",
        "/%zz",
        "/%4",
        "/%",
        "/text.txt%",
        "/%252e%252e/text.txt",
        "/%u0041",
        "/text.txt%20",
        "/ text.txt",
        "/text.txt.",
        "/text.txt..",
        "/...",
        "/.../text.txt",
        "/....//text.txt",
        "/sub/a+b.txt",
        "/sub/a b.txt",
        "/%c3%a9",
        "/\xc3\xa9",
        "/%ff",
        "/text.txt;x=y",
        "/;/text.txt",
        "/sub;x/../text.txt",
        "/~",
        "/text.txt?/../..",
        "/?/",
        "/empty",
        "/index.html",
        "/none",
        "/none/",
        "/none?x",
        "/sub/none",
        "/index.html.d",
        "/index.html.d/",
        "/.well-known/security.txt",
        "/" + "x" * 255,
        "/" + "x" * 256,
        "/" + "x/" * 400,
        "/" + "../" * 50,
        "/" + "./" * 500 + "text.txt",
        "/" + "sub/../" * 100 + "text.txt",
        "/out/secret.txt",
        "/out.txt",
        "/in.txt",
        "/out",
        "/out/",
    )
    return {f"path {t[:40]!r} ({len(t)})": line(f"GET {t} HTTP/1.1") for t in targets}


def _rows() -> dict[str, bytes]:
    """Several requests, and ends."""
    good, closes = ask(), ask("/text.txt", "Connection: close")
    return {
        "nothing": b"",
        "empty lines only": b"\r\n\r\n",
        "three": good * 3,
        "three, one is not there": good + ask("/none") + good,
        "many": good * 50,
        "one that closes": good + closes + good,
        "a bad line": good + b"garbage\r\n\r\n" + good,
        "a bad header": good + ask("/text.txt", "X : y") + good,
        "a bad length": good + ask("/take", "Content-Length: x", method="POST") + good,
        "a bad path": good + ask("/../x") + good,
        "a bad chunk": chunked("z\r\n") + good,
        "two ways to say how long": ask(
            "/take", "Content-Length: 6", "Transfer-Encoding: chunked", method="POST", body="0\r\n\r\n"
        )
        + good,
        "bodies": (ask("/take", "Content-Length: 3", method="POST", body="abc") + chunked("3\r\nabc\r\n0\r\n\r\n")) * 3,
        "bodies for nobody": ask("/none", "Content-Length: 3", method="POST", body="abc") + good,
        "an empty line between": good + b"\r\n" + good,
        "HEAD and GET": ask(method="HEAD") + good,
        "conditions": ask("/text.txt", "If-None-Match: {etag}")
        + ask("/text.txt", "Range: bytes=0-4")
        + ask("/text.txt", "Range: bytes=99999-"),
        "1.0 and then": ask(version="1.0") + good,
        "1.0 that stays, and then": ask("/text.txt", "Connection: keep-alive", version="1.0") + good,
        "OPTIONS and then": ask("*", method="OPTIONS") + good,
    }


FAMILIES = {
    "lines": _lines(),
    "heads": _heads(),
    "bodies": _bodies(),
    "ranges": _ranges(),
    "conditions": _conditions(),
    "paths": _paths(),
    "rows": _rows(),
}
CUT = {
    "in the first line": ask()[:10],
    "in the head": ask()[:-2],
    "in a body": ask("/take", "Content-Length: 10", method="POST", body="abc"),
    "in a chunk": chunked("a\r\nabc"),
    "in the trailers": chunked("0\r\nX: y\r\n"),
    "behind a whole one": ask() + ask()[:20],
    "behind 100 Continue": ask("/take", "Expect: 100-continue", "Content-Length: 10", method="POST"),
}
"""What a client sends that then sends nothing more, LAST neither."""
