"""A node's log file: made whole or not at all, so that a node killed while it makes it starts again."""

from __future__ import annotations

from pathlib import Path

import pytest

from corelane.apps.raft.logs import LogFile
from corelane.drivers.blk import Blk
from corelane.drivers.blk_file import FileBlk, create
from corelane.runtime.errors import CorelaneError

SIZE = 1 << 20


class _Killed(Exception):
    """Stands for the end of the process."""


def _killed(_: Blk) -> Blk:
    raise _Killed


@pytest.mark.parametrize("left", [0, SIZE // 2, SIZE])
def test_killed_before_it_is_formatted_it_is_made_again(tmp_path: Path, left: int) -> None:
    path = tmp_path / "1.log"
    half = tmp_path / "1.log.new"  # as a process leaves it that is killed between making and formatting
    if left:
        create(str(half), left)
    else:
        half.touch()
    log = LogFile(str(path), SIZE)
    log.close()
    assert path.stat().st_size == SIZE
    assert [p.name for p in tmp_path.iterdir()] == ["1.log"]
    LogFile(str(path), SIZE).close()  # a log from then on


def test_a_half_made_one_has_no_name(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    with pytest.raises(_Killed):
        LogFile(str(path), SIZE, _killed)
    assert not path.exists()


def test_a_file_of_that_name_that_is_no_log_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    create(str(path), SIZE)
    before = path.read_bytes()
    with pytest.raises(CorelaneError, match="open the log"):
        LogFile(str(path), SIZE)
    assert path.read_bytes() == before


def test_its_device_may_have_a_polling_thread(tmp_path: Path) -> None:
    log = LogFile(str(tmp_path / "1.log"), SIZE, sqpoll=True)
    assert isinstance(log.blk, FileBlk)
    info = log.blk.info()
    log.close()
    assert info.sqpoll or info.why
