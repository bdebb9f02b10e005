"""`corelane packetdrill` from outside: its last line counts the scripts."""

from pathlib import Path

import pytest

from corelane.cli.main import main


def test_a_stack_that_is_not_to_be_had_is_of_its_script_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The scripts behind it are run."""
    for i, mtu in enumerate((68, 1500)):
        (tmp_path / f"{i}.pkt").write_text(f"--mtu={mtu}\n0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n")
    assert main(["packetdrill", str(tmp_path)]) == 3
    said = capsys.readouterr().out
    assert "0.pkt: not supported here: an MTU of 68" in said
    assert said.splitlines()[-1] == "2 scripts on corelane: 1 passed, 1 unsupported"


@pytest.mark.parametrize(("n", "said"), [(1, "1 script on corelane: 1 passed"), (2, "2 scripts on corelane: 2 passed")])
def test_the_last_line_counts_the_scripts(
    n: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / f"{i}.pkt" for i in range(n)]
    for path in paths:
        path.write_text("0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n")
    assert main(["packetdrill", *map(str, paths)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == said
