"""memcached's own options: those that mean something here become ours, others are refused and not ignored."""

from __future__ import annotations

import pytest

from corelane.apps.kv.app import Options
from corelane.apps.kv.flags import options_of
from corelane.runtime.errors import CorelaneError


def test_what_means_something_here() -> None:
    line = "-p 11311 -U 0 -m 100 -I 5m -c 2048 -b 99 -R 7 -C -M -s '/tmp/a b.sock' -a 770 -vv"
    made = options_of(f"{line} -o idle_timeout=60,maxconns_fast")
    assert made == {
        "tcp_port": 11311,
        "udp_port": 0,
        "memory_bytes": 100 << 20,
        "item_max_bytes": 5 << 20,
        "connections": 2048,
        "backlog": 99,
        "requests_per_event": 7,
        "no_cas": True,
        "no_evict": True,
        "unix": "/tmp/a b.sock",
        "unix_mode": "770",
        "idle_timeout_s": 60,
    }
    Options(**made)
    assert options_of("-o read_buf_mem_limit=3") == {"held_bytes": 3 << 20}
    assert options_of("") == {}


def test_what_the_runtime_was_given_may_be_named() -> None:
    assert options_of("-l 10.0.0.1 -t 4", address="10.0.0.1", kthreads=4) == {}
    assert options_of("-l 0.0.0.0", address="10.0.0.1", kthreads=4) == {}
    with pytest.raises(CorelaneError, match=r"which has 4"):
        options_of("-t 3", address="10.0.0.1", kthreads=4)
    with pytest.raises(CorelaneError, match=r"the runtime's, 10\.0\.0\.1"):
        options_of("-l 10.0.0.2", address="10.0.0.1", kthreads=4)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("-t 4", "--kthreads"),
        ("-l 10.0.0.1", "--address"),
        ("-R 0", "one command at least"),
        ("-c 0", "one client at least"),
        ("-c -1", "one client at least"),
        ("-d", "in the foreground"),
        ("-R some", "no number"),
        ("-S", "no authentication"),
        ("-o ext_path=/x", "ext_path"),
        ("-o idle_timeout=soon", "no number"),
        ("-m lots", "no number"),
        ("-y", "-y not recognized"),
        ("-m 64 more", "'more' is none"),
        ("-s 'open", "No closing quotation"),
    ],
)
def test_what_does_not_is_refused(line: str, says: str) -> None:
    with pytest.raises(CorelaneError, match=says):
        options_of(line)
