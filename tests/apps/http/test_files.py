"""What is served of a folder: paths, links, ranges, conditions, files that change."""

from __future__ import annotations

import email
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from httphost import LARGE, TEXT, Server

LARGE_BYTES = bytes(range(256)) * (LARGE // 256)


@pytest.fixture
def server(serve: Callable[..., Server]) -> Server:
    return serve()


@pytest.mark.parametrize(
    ("target", "status", "body"),
    [
        ("/", 200, b"<!doctype html><title>home</title>"),
        ("/?q=1", 200, b"<!doctype html><title>home</title>"),
        ("/sub/", 200, b"<p>sub"),
        ("/sub/a%20b.txt", 200, b"a space"),
        ("/sub/./../text.txt", 200, TEXT),
        ("//text.txt", 200, TEXT),
        ("/sub%2f..%2Ftext.txt", 200, TEXT),
        ("/empty", 200, b""),
        ("/.well-known/security.txt", 200, b"known"),
        ("/text.txt/", 404, None),
        ("/.hidden", 404, None),
        ("/sub/../.hidden", 404, None),
        ("/index.html.d/", 404, None),
        ("/../text.txt", 400, None),
        ("/sub/../../text.txt", 400, None),
        ("/%2e%2e/%2e%2e/etc/passwd", 400, None),
        ("/%2e%2e%2f%2e%2e%2fetc/passwd", 400, None),
        ("/..%5c..%5cetc/passwd", 404, None),
        ("/%00", 400, None),
        ("/%zz", 400, None),
        ("/%4", 400, None),
        ("/" + "x" * 1100, 404, None),
        ("/" + "x" * 300, 404, None),
        ("text.txt", 400, None),
        ("/out/secret.txt", 403, None),
        ("/out.txt", 403, None),
        ("/in.txt", 403, None),
        ("/pipe", 403, None),
    ],
)
def test_paths(server: Server, target: str, status: int, body: bytes | None) -> None:
    found = server.get(target)
    assert found.status == status
    assert body is None or found.body == body
    assert b"secret" not in found.body


def test_links_inside_are_followed_if_that_is_asked_for(serve: Callable[..., Server]) -> None:
    server = serve(symlinks=1)
    assert server.get("/in.txt").body == TEXT
    assert (server.get("/out.txt").status, server.get("/out/secret.txt").status) == (403, 403)


def test_hidden_files_are_served_if_that_is_asked_for(serve: Callable[..., Server]) -> None:
    assert serve(hidden=1).get("/.hidden").body == b"hidden"


def test_a_folder_without_its_slash_is_sent_elsewhere(serve: Callable[..., Server], tmp_path: Path) -> None:
    """To the path that was found: "//host" and "/\\host" would be other servers to a browser."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "a b?\u00e9").mkdir()
    server = serve(tmp_path)
    for target in ("/sub", "//sub", "/\\there/%2e%2e/sub", "/%2fthere/../sub", "http://here/sub"):
        assert server.get(f"{target}?a=/b").headers["location"] == "/sub/?a=/b", target
    assert server.get("/a%20b%3f%c3%a9").headers["location"] == "/a%20b%3F%C3%A9/"
    assert server.get("/sub?" + "x" * 2000).status == 414


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sub/style.css", "text/css; charset=utf-8"),
        ("empty", "application/octet-stream"),
        ("", "text/html; charset=utf-8"),
    ],
)
def test_types(server: Server, name: str, kind: str) -> None:
    assert server.get(f"/{name}").headers["content-type"] == kind


@pytest.mark.parametrize(
    ("ranges", "part"),
    [
        ("bytes=0-4", slice(0, 5)),
        ("bytes=5-", slice(5, None)),
        ("bytes=-7", slice(-7, None)),
        ("bytes=0-99999999", slice(0, None)),
        ("BYTES= 1-2 ", slice(1, 3)),
        ("bytes=-99999999", slice(0, None)),
        (f"bytes=5-{10**30}", slice(5, None)),
        (f"bytes=-{10**30}", slice(0, None)),
        ("bytes=99999-,3-3", slice(3, 4)),
    ],
)
def test_a_range(server: Server, ranges: str, part: slice) -> None:
    found = server.get("/text.txt", f"Range: {ranges}")
    first, last, _ = part.indices(len(TEXT))
    assert (found.status, found.body) == (206, TEXT[part])
    assert found.headers["content-range"] == f"bytes {first}-{last - 1}/{len(TEXT)}"


@pytest.mark.parametrize(
    "ranges", ["lines=1-2", "bytes=2-1", "bytes=a-b", "bytes=", "bytes=1", "bytes=0-0,1", "bytes=--1"]
)
def test_what_is_no_range_means_nothing(server: Server, ranges: str) -> None:
    found = server.get("/text.txt", f"Range: {ranges}")
    assert (found.status, found.body) == (200, TEXT)


def test_ranges_that_cost_more_than_the_file_mean_nothing(server: Server) -> None:
    many = ",".join(f"{i}-{i}" for i in range(17))
    for ranges in (many, "0-,0-", "0-500,0-500,0-500"):
        assert server.get("/text.txt", f"Range: bytes={ranges}").status == 200
    assert server.get("/text.txt", "Range: bytes=0-1", "Range: bytes=2-3").status == 200
    assert server.get("/text.txt", "Range: bytes=0-1", method="HEAD").status == 200


def test_no_such_range(server: Server) -> None:
    found = server.get("/text.txt", "Range: bytes=99999-")
    assert (found.status, found.headers["content-range"]) == (416, f"bytes */{len(TEXT)}")
    for ranges in (f"{10**30}-", f"{10**30}-{2 * 10**30}", f"{10**18}-{10**20}", "-0"):
        assert server.get("/text.txt", f"Range: bytes={ranges}").status == 416, ranges
    assert server.get("/empty", "Range: bytes=0-").status == 416
    assert server.get("/empty", "Range: bytes=-1").status == 200, "the end of nothing is all of it"


@pytest.mark.parametrize("name", ["text.txt", "large.bin"])
def test_many_ranges(server: Server, name: str) -> None:
    data = TEXT if name == "text.txt" else LARGE_BYTES
    found = server.get(f"/{name}", "Range: bytes=0-9,20-29,-5")
    assert found.status == 206
    head = f"Content-Type: {found.headers['content-type']}\r\n\r\n".encode()
    parts = email.message_from_bytes(head + found.body).get_payload()
    assert isinstance(parts, list)
    wanted = [(0, 10), (20, 30), (len(data) - 5, len(data))]
    assert [part["Content-Range"] for part in parts] == [f"bytes {a}-{b - 1}/{len(data)}" for a, b in wanted]
    for a, b in wanted:  # the parser of mail changes the ends of lines
        assert f"bytes {a}-{b - 1}/{len(data)}\r\n\r\n".encode() + data[a:b] + b"\r\n--" in found.body


def test_a_large_file_comes_in_pieces(server: Server) -> None:
    assert server.get("/large.bin").body == LARGE_BYTES
    found = server.get("/large.bin", f"Range: bytes=1000-{LARGE - 1000}")
    assert found.body == LARGE_BYTES[1000 : LARGE - 999]
    assert server.files().bytes < LARGE


def test_a_reader_takes_what_it_likes(serve: Callable[..., Server]) -> None:
    """The server holds what fits, and goes on when there is room."""
    server = serve(room=70_000)
    assert server.open()
    server.send(b"GET /large.bin HTTP/1.1\r\nHost: here\r\n\r\n")
    out = b""
    while part := server.read(50_000):
        out += part
    assert out.partition(b"\r\n\r\n")[2] == LARGE_BYTES


def test_conditions(server: Server) -> None:
    first = server.get("/text.txt")
    etag, date = first.headers["etag"], first.headers["last-modified"]
    earlier, later = "Sat, 05 Nov 1994 08:49:37 GMT", "Mon, 07 Nov 1994 08:49:37 GMT"
    cases = [
        ([f"If-None-Match: {etag}"], 304),
        ([f'If-None-Match: "other", W/{etag}'], 304),
        (["If-None-Match: *"], 304),
        (['If-None-Match: "other"', f"If-None-Match: {etag}"], 304),
        (['If-None-Match: "other"'], 200),
        (['If-None-Match: "other"', f"If-Modified-Since: {date}"], 200),  # the tag counts
        ([f"If-Modified-Since: {date}"], 304),
        ([f"If-Modified-Since: {later}"], 304),
        ([f"If-Modified-Since: {earlier}"], 200),
        (["If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT"], 304),
        (["If-Modified-Since: Sun Nov  6 08:49:37 1994"], 304),
        (["If-Modified-Since: yesterday"], 200),
        (["If-Modified-Since: Sun, 6 Nov 1994 08:49:37 GMT"], 200),  # no form of a date
        (["If-Modified-Since: Sun, 06 Nov 1994 08:49:37 UTC"], 200),
        (["If-Modified-Since: Thu, 31 Feb 2000 08:49:37 GMT"], 200),  # no day
        (["If-Modified-Since: Sun Nov 06 23:59:60 1994"], 304),
        (["If-None-Match: W/*"], 200),
        (['If-None-Match: *, "other"'], 200),
        (['If-Match: *, "other"'], 412),
        (["If-Unmodified-Since: Mon, 01 Jan 1900 00:00:00 GMT"], 412),
        ([f"If-Match: {etag}"], 200),
        (["If-Match: *"], 200),
        ([f"If-Match: W/{etag}"], 412),
        (['If-Match: "other"'], 412),
        ([f"If-Unmodified-Since: {date}"], 200),
        ([f"If-Unmodified-Since: {earlier}"], 412),
        (["Range: bytes=0-0", f"If-Range: {etag}"], 206),
        (["Range: bytes=0-0", f"If-Range: {date}"], 206),
        (["Range: bytes=0-0", f"If-Range: {later}"], 200),
        (["Range: bytes=0-0", f"If-Range: W/{etag}"], 200),
        (["Range: bytes=0-0", 'If-Range: "other"'], 200),
        (["Range: bytes=0-0", 'If-None-Match: "other"'], 206),
        (["Range: bytes=0-0", f"If-None-Match: {etag}"], 304),
    ]
    for headers, status in cases:
        found = server.get("/text.txt", *headers)
        assert found.status == status, headers
        assert found.body == {200: TEXT, 206: TEXT[:1], 304: b"", 412: b"412 Precondition Failed\n"}[status]
        if status == 304:
            assert (found.headers["etag"], found.headers["last-modified"]) == (etag, date)


def test_a_file_that_changes_is_seen_when_what_is_known_is_old(serve: Callable[..., Server], tmp_path: Path) -> None:
    path = tmp_path / "page.txt"
    path.write_text("one")
    server = serve(tmp_path, fresh_ms=1500, tick_ms=1000)
    first = server.get("/page.txt")
    assert (first.body, server.get("/later.txt").status) == (b"one", 404)
    path.write_text("two")
    os.utime(path, (1, 1))  # backwards in time: it is another one all the same
    (tmp_path / "later.txt").write_text("late")
    assert server.get("/page.txt").body == b"one", "it is not looked at again so soon"
    server.pass_ticks(2)
    second = server.get("/page.txt")
    assert (second.body, server.get("/later.txt").body) == (b"two", b"late")
    assert second.headers["etag"] != first.headers["etag"]
    path.unlink()
    server.pass_ticks(2)
    assert server.get("/page.txt").status == 404
    usage = server.files()
    assert (usage.loads, usage.hits) == (3, 1)


def test_one_that_is_being_sent_stays_as_it_was(serve: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a" * 300_000)
    server = serve(tmp_path, room=65536, fresh_ms=0)
    assert server.open()
    server.send(b"GET /a HTTP/1.1\r\nHost: here\r\n\r\n")
    (tmp_path / "a").write_bytes(b"b" * 300_000)
    server.pass_ticks()
    out = b""
    while part := server.read():
        out += part
    assert out.partition(b"\r\n\r\n")[2] == b"a" * 300_000


def test_one_that_becomes_shorter_while_it_is_sent_is_cut(serve: Callable[..., Server], tmp_path: Path) -> None:
    """A length was promised: only a reset can say that it is not kept."""
    (tmp_path / "a").write_bytes(b"a" * LARGE)
    server = serve(tmp_path, room=65536)
    assert server.open()
    server.send(b"GET /a HTTP/1.1\r\nHost: here\r\n\r\n")
    os.truncate(tmp_path / "a", 1000)
    while server.read():
        pass
    assert server.state == 3
    assert server.counts().cut == 1


def test_memory_of_files_is_bounded(serve: Callable[..., Server], tmp_path: Path) -> None:
    for i in range(200):
        (tmp_path / str(i)).write_bytes(b"%03d" % i * 10_000)
    server = serve(tmp_path, cache_bytes=4 << 20)
    for _ in range(2):
        for i in range(200):
            assert server.get(f"/{i}").body == b"%03d" % i * 10_000
        for i in range(2000):
            assert server.get(f"/none/{i}").status == 404
    usage = server.files()
    assert usage.evicted > 100
    assert usage.bytes <= 4 << 20


def test_a_root_that_is_no_folder(serve: Callable[..., Server], tmp_path: Path) -> None:
    with pytest.raises(Exception, match="cannot open the folder"):
        serve(tmp_path / "none")
