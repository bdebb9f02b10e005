"""The link of raft_loss, go-back-N, and that both protocols meet the same losses."""

from __future__ import annotations

import numpy as np
import pytest

from corelane.bench._native import lib
from corelane.bench.raft_loss.raft_loss import LINKS, PROTOCOLS, RACK, THEIRS, ZONES, Case, of_bound, requests, stream

STREAM_NS = 10_000_000
BOTH = pytest.mark.parametrize("protocol", PROTOCOLS)


def fates(result: object) -> np.ndarray:
    """Of the first datagrams that were sent: 1 lost, 0 not."""
    found = np.array(list(result.fates))  # type: ignore[attr-defined]
    return found[found != lib.CL_BENCH_LOSS_NOT_SENT]


@BOTH
@pytest.mark.parametrize("loss", [0.001, 0.1])
def test_the_link_loses_as_many_as_it_is_told(protocol: str, loss: float) -> None:
    result = stream(Case(protocol, LINKS[RACK], loss), 4 * STREAM_NS)
    sigma = (loss * (1 - loss) / result.datagrams) ** 0.5
    assert result.datagrams > 30_000
    assert abs(result.lost / result.datagrams - loss) < 4 * sigma


@BOTH
def test_the_same_settings_give_the_same_run_and_another_seed_another(protocol: str) -> None:
    def run(seed: int) -> tuple[int, ...]:
        result = stream(Case(protocol, LINKS[ZONES], 0.01, seed), STREAM_NS)
        return result.delivered, result.datagrams, result.lost, result.sent_again, result.disordered, result.probes

    assert run(3) == run(3)
    assert run(3) != run(4)


def test_both_protocols_meet_the_same_losses() -> None:
    ours, theirs = (fates(stream(Case(protocol, LINKS[RACK], 0.1), STREAM_NS)) for protocol in PROTOCOLS)
    both = min(len(ours), len(theirs))
    assert both == lib.CL_BENCH_LOSS_FATES
    assert (ours == theirs).all()
    assert 300 < ours.sum() < 520


@BOTH
def test_without_a_loss_the_link_is_full_and_a_request_takes_a_round_trip(protocol: str) -> None:
    result = stream(Case(protocol, LINKS[ZONES], 0.0), STREAM_NS)
    assert of_bound(result, 0.0) == pytest.approx(1, abs=0.001)
    assert (result.lost, result.sent_again, result.timeouts, result.probes, result.disordered) == (0, 0, 0, 0, 0)
    took, result = requests(Case(protocol, LINKS[ZONES], 0.0), 1000, 200)
    assert took.min() > 2 * LINKS[ZONES]
    assert took.max() < 2 * LINKS[ZONES] + 3
    assert result.sent_again == 0


@BOTH
@pytest.mark.parametrize("link", LINKS)
def test_all_requests_are_answered_once_under_loss(protocol: str, link: str) -> None:
    took, result = requests(Case(protocol, LINKS[link], 0.1), 2000, 2000)
    assert np.isfinite(took).all()
    assert (result.delivered, result.twice, result.given_up) == (2000, 0, 0)
    assert result.lost > 0
    assert result.sent_again > 0


def test_go_back_n_delivers_once_and_in_order_and_sends_again_all_behind_a_lost_one() -> None:
    result = stream(Case(THEIRS, LINKS[RACK], 0.03), STREAM_NS)
    assert result.delivered > 1000
    assert (result.twice, result.disordered) == (0, 0)
    assert result.sent_again > 5 * result.lost


def test_go_back_n_goes_back_once_for_each_loss() -> None:
    """One loss costs what was sent in a round trip, and the queue before the link: no more."""
    result = stream(Case(THEIRS, LINKS[RACK], 0.001), 10 * STREAM_NS)
    under_way = 2 * LINKS[RACK] * 1e3 / (lib.CL_BENCH_LOSS_DATAGRAM_BYTES * 0.8) + 33
    assert result.timeouts == 0
    assert 0.5 * under_way < result.sent_again / result.lost < 1.3 * under_way


def test_the_channel_sends_again_what_was_lost_and_little_else() -> None:
    result = stream(Case("channel", LINKS[RACK], 0.1), STREAM_NS)
    assert result.sent_again < 1.2 * result.lost
    assert result.timeouts == 0
    assert of_bound(result, 0.1) > 0.9
