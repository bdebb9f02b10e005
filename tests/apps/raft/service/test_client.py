"""What a client makes of a node's answers, whoever plays the node."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from corelane.apps.raft.node.machine import CommandRefused
from corelane.apps.raft.service import client as c
from corelane.apps.raft.service.client import Client, NotSent, ReplyTooLarge, Unknown
from corelane.apps.raft.service.operate import Operator
from corelane.apps.raft.service.service import cluster_of
from corelane.cli.main import main
from corelane.runtime.errors import CorelaneError

Answer = Callable[[int, int], tuple[int, bytes] | None]


class Fake:
    """Answers the n-th request of each kind by what `answer(kind, n)` says: (status, reply), or nothing."""

    def __init__(self, answer: Answer, group: str = "") -> None:
        self.answer, self.cluster = answer, cluster_of(group)
        self.seen: dict[int, int] = {}
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.place: tuple[str, int] = self.socket.getsockname()
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            datagram, source = self.socket.recvfrom(65536)
            if not datagram:
                return
            frame = datagram[c._LINK.size :]
            kind, ticket = frame[5], c._FRAME.unpack_from(frame)[9]
            self.seen[kind] = self.seen.get(kind, 0) + 1
            if said := self.answer(kind, self.seen[kind]):
                status, reply = said
                size = c._FRAME.size + len(reply)
                fields = (self.cluster, 1, 0, ticket, 1, 0)
                crc = c._crc(c._FRAME.pack(b"CLRA", 1, status, 0, 0, size, *fields) + reply)
                whole = c._FRAME.pack(b"CLRA", 1, status, 0, crc, size, *fields) + reply
                self.socket.sendto(c._LINK.pack(b"CLRL", ticket & 0xFFFFFFFF, len(whole), 0, 1400) + whole, source)

    def close(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self.place)
        self.thread.join(60)
        self.socket.close()


@pytest.fixture
def fake() -> Iterator[Callable[..., Fake]]:
    made: list[Fake] = []

    def make(answer: Answer, group: str = "") -> Fake:
        made.append(Fake(answer, group))
        return made[-1]

    yield make
    for one in made:
        one.close()


def _opened(kind: int) -> tuple[int, bytes] | None:
    return (c._OK, (7).to_bytes(8, "little")) if kind == c._OPEN else None


@pytest.mark.parametrize("status", [c._EXPIRED, c._OUT_OF_ORDER])
def test_a_session_that_ended_after_a_command_was_sent_again_tells_nothing_of_the_command(fake, status: int) -> None:
    node = fake(lambda kind, n: _opened(kind) or ((status, b"") if n > 1 else None))
    with Client({1: node.place}, timeout_s=60, resend_s=0.05) as client, pytest.raises(Unknown, match="session ended"):
        client.command(b"deposit 5")


def test_one_that_ended_tells_nothing_of_a_command_sent_once_which_the_network_may_have_doubled(fake) -> None:
    statuses = {1: (c._EXPIRED, b""), 2: (c._OK, b"done")}
    node = fake(lambda kind, n: _opened(kind) or statuses.get(n))
    with Client({1: node.place}, timeout_s=60, resend_s=60) as client:
        with pytest.raises(Unknown, match="session ended"):
            client.command(b"deposit 5")
        assert client.command(b"deposit 5") == b"done"
    assert node.seen[c._OPEN] == 2


def test_opening_a_session_and_its_first_command_share_one_timeout(fake, monkeypatch) -> None:
    node = fake(lambda kind, n: _opened(kind) or (c._OK, b"done"))
    with Client({1: node.place}, timeout_s=60) as client:
        ask, deadlines = client._ask, []

        def noted(*words):
            deadlines.append(words[-1])
            return ask(*words)

        monkeypatch.setattr(client, "_ask", noted)
        assert client.command(b"deposit 5") == b"done"
    assert len(deadlines) == 2
    assert len(set(deadlines)) == 1


def test_without_an_answer_to_the_opening_no_command_is_sent(fake) -> None:
    answers = False
    node = fake(lambda kind, n: (_opened(kind) or (c._OK, b"done")) if answers else None)
    with Client({1: node.place}, timeout_s=0.2, resend_s=0.01) as client:
        with pytest.raises(NotSent, match=r"no session could be opened for it: no answer in .*not sent"):
            client.command(b"deposit 5")
        assert c._APPLY not in node.seen
        answers = True
        client._timeout_s = client._resend_s = 60  # a second would be one that was late
        assert client.command(b"deposit 5") == b"done"
    assert node.seen[c._APPLY] == 1


def test_an_opening_that_takes_all_the_time_leaves_the_command_unsent(fake, monkeypatch) -> None:
    node = fake(lambda kind, n: _opened(kind) or (c._OK, b"done"))
    with Client({1: node.place}, timeout_s=60, resend_s=60) as client:
        monkeypatch.setattr(client, "_open", lambda deadline: 7)
        ask = client._ask
        monkeypatch.setattr(client, "_ask", lambda *words: ask(*words[:-1], 0.0))  # the deadline has passed
        with pytest.raises(NotSent, match="no time was left to send it"):
            client.command(b"deposit 5")
    assert c._APPLY not in node.seen


def test_a_group_of_another_name_is_not_listened_to(fake) -> None:
    node = fake(lambda kind, n: _opened(kind) or (c._OK, b"done"), group="books")
    with Client({1: node.place}, group="books", timeout_s=60) as client:
        assert client.command(b"deposit 5") == b"done"
    with Client({1: node.place}, timeout_s=0.2) as client, pytest.raises(NotSent, match="no answer"):
        client.command(b"deposit 5")


@pytest.mark.parametrize(
    ("status", "reply", "error", "text"),
    [
        (c._REFUSED, b"too little there", CommandRefused, "too little there"),
        (c._REPLY_TOO_LARGE, b"", ReplyTooLarge, "it was done"),
        (c._TOO_LARGE, b"", CorelaneError, "9 bytes are more than the nodes take"),
        (c._TOO_LARGE, (8).to_bytes(4, "little"), CorelaneError, "9 bytes are more than the nodes take: 8 at most"),
        (c._QUERY_FAILED, b"KeyError: 'ann'", CorelaneError, "KeyError: 'ann'"),
    ],
)
def test_what_was_not_answered_raises_and_the_next_one_is_asked_as_ever(fake, status, reply, error, text) -> None:
    node = fake(lambda kind, n: _opened(kind) or ((status, reply) if n == 1 else (c._OK, b"done")))
    with Client({1: node.place}, timeout_s=60, resend_s=60) as client:
        for call in (client.command, client.query):
            with pytest.raises(error, match=text) as raised:
                call(b"deposit 5")
            assert not isinstance(raised.value, Unknown)
            assert getattr(raised.value, "reply", reply) == reply
            assert call(b"deposit 5") == b"done"


def test_what_no_node_could_take_is_not_sent(fake) -> None:
    node = fake(lambda kind, n: _opened(kind) or (c._OK, b"done"))
    with Client({1: node.place}, timeout_s=60, resend_s=60) as client:
        for call in (client.command, client.query):
            with pytest.raises(CorelaneError, match="100000000 bytes are more than the nodes take: 5734344 at most"):
                call(bytes(100_000_000))
        assert client.command(b"deposit 5") == b"done"
    assert node.seen[c._APPLY] == 1
    assert c._QUERY not in node.seen


def _no_way(*_: object) -> int:
    raise OSError(errno.ENETUNREACH, "Network is unreachable")


@pytest.mark.parametrize("sent", [0, 1])
def test_a_route_that_is_not_there_loses_datagrams(sent: int) -> None:
    """From the start, or after a copy was sent, which may have been applied."""
    sock = PlayedSocket(sent)
    with Client({1: ("10.0.0.1", 7400)}, timeout_s=0.1, resend_s=0.01, sock=sock) as client:
        for call, error, what in (
            (client.command, NotSent, "do a command: no session could be opened for it"),
            (client.query, Unknown, "do a query"),
        ):
            with pytest.raises(error, match=f"{what}: no answer .* could not be sent: Network is unreachable"):
                call(b"deposit 5")
        assert client.resent > 1
    with Operator({1: ("10.0.0.1", 7400)}, timeout_s=0.1, sock=PlayedSocket(0)) as group:
        assert group.all() == {1: None}
        with pytest.raises(CorelaneError, match="Network is unreachable"):
            group.leader_status()


def test_who_is_down_cannot_be_asked_for_an_address_and_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    knows = {"links": [{"id": 2}, {"id": 4}]}
    with Operator({i: (f"10.0.0.{i}", 7400) for i in (1, 2, 4)}) as group:
        monkeypatch.setattr(group, "all", lambda: {1: knows, 2: None, 4: None})
        group._check_addresses("add node 4", 4)
        texts = [r.getMessage() for r in caplog.records]
        assert texts == ["node 2 does not answer: when it comes back, start it with node 4 among its peers"]
        monkeypatch.setattr(group, "all", lambda: {1: {"links": [{"id": 2}]}, 2: None, 4: None})
        with pytest.raises(CorelaneError, match="node 1 does not know its address"):
            group._check_addresses("add node 4", 4)


def test_a_command_says_that_nothing_could_be_sent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(socket.socket, "sendto", _no_way)
    assert main(["raft", "status", "--peers", "1=10.0.0.1:7400"]) == 1
    said = capsys.readouterr().err
    assert "ask the nodes: none answers" in said
    assert "Network is unreachable" in said


class PlayedSocket(socket.socket):
    """Its first datagrams go nowhere, and are taken; then there is no route. Nothing comes."""

    def __init__(self, taken: int) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_DGRAM)
        self._taken = taken

    def sendto(self, data: bytes, *_: object) -> int:  # type: ignore[override]
        self._taken -= 1
        return len(data) if self._taken >= 0 else _no_way()
