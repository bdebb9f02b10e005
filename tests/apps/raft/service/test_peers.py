"""What `peers` may be: one clear error for anything else."""

from __future__ import annotations

import pytest

from corelane.apps.raft.service.client import Client
from corelane.apps.raft.service.service import parse_peers
from corelane.cli.main import main
from corelane.runtime.errors import CorelaneError

WRONG = {
    "": "is not ID=ADDRESS:PORT",
    "1=10.0.0.1": "is not ID=ADDRESS:PORT",
    "one=10.0.0.1:7400": "is not ID=ADDRESS:PORT",
    "1=10.0.0.256:7400": "is not ID=ADDRESS:PORT",
    "1=10.0.0.1:7400,": "is not ID=ADDRESS:PORT",
    "0=10.0.0.1:7400": "0 is no id",
    "-3=10.0.0.1:7400": "-3 is no id",
    f"{1 << 32}=10.0.0.1:7400": "is no id",
    "1=10.0.0.1:0": "0 is no port",
    "1=10.0.0.1:-5": "-5 is no port",
    "1=127.0.0.1:74000": "74000 is no port",
    "1=10.0.0.1:7400,1=10.0.0.2:7400": "node 1 is there twice",
    "1=10.0.0.1:7400,2=10.0.0.1:7400": "two nodes are at 10.0.0.1:7400",
    ",".join(f"{i}=10.0.0.{i}:7400" for i in range(1, 18)): "they are 17",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_peers_are_one_clear_error(text, capsys):
    with pytest.raises(CorelaneError, match=WRONG[text]):
        parse_peers(text)
    with pytest.raises(CorelaneError, match=WRONG[text]):
        Client(text)
    assert main(["raft", "status", f"--peers={text}"]) != 0
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)


def test_a_mapping_is_looked_at_in_the_same_way():
    assert parse_peers({1: ("10.0.0.1", 7400)}) == {1: ("10.0.0.1", 7400)} == parse_peers("1=10.0.0.1:7400")
    with pytest.raises(CorelaneError, match="70000 is no port"):
        parse_peers({1: ("10.0.0.1", 70000)})
