"""A file is there as a whole or not at all, and what is none stays what it is."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from corelane.runtime.files import Whole, open_regular, why_unreadable, write_whole


def test_a_file_is_made_or_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_whole(path, b"first")
    path.chmod(0o640)
    write_whole(path, b"second")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"second", 0o640)

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as failed:
        write_whole(path, b"third")
    assert failed.value.filename == str(path)
    assert path.read_bytes() == b"second"
    assert os.listdir(tmp_path) == ["file"]


def test_what_is_no_file_stays_what_it_is(tmp_path: Path) -> None:
    """`--json /dev/null`, by root."""
    pipe, link, real = (tmp_path / name for name in ("pipe", "link", "real"))
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"data")
    reader.join()
    assert (got, stat.S_ISFIFO(pipe.lstat().st_mode)) == ([b"data"], True)
    link.symlink_to(real)
    write_whole(link, b"data")
    assert (link.is_symlink(), real.read_bytes()) == (True, b"data")
    write_whole("/dev/null", b"data")
    assert stat.S_ISCHR(os.lstat("/dev/null").st_mode)
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path, b"data")


def test_what_is_not_kept_was_never_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    for mode in (None, 0o755):
        made, other = Whole(path), Whole(path)  # two at once
        made.file.write(b"made")
        other.file.write(b"other")
        assert path.read_bytes() == (b"before" if mode is None else b"made")
        made.keep(mode)
        made.close()
        other.close()
        other.close()
        assert (path.read_bytes(), os.listdir(tmp_path)) == (b"made", ["file"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_a_pipe_that_another_program_names_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(OSError, match="it is no regular file"):
            open_regular(path)
    (tmp_path / "file").write_bytes(b"data")
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"data"


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a block device's node: run as root")
def test_a_disk_is_not_overwritten(tmp_path: Path) -> None:
    os.mknod(tmp_path / "disk", 0o600 | stat.S_IFBLK, os.makedev(7, 255))
    with pytest.raises(OSError, match="it is a block device"):
        write_whole(tmp_path / "disk", b"data")


@pytest.mark.parametrize(
    ("held", "why"),
    [(None, "No such file or directory"), (b"a\nb\nf\xfc\n", "line 3 is no UTF-8: it has the byte 0xfc")],
)
def test_why_a_text_cannot_be_read_is_said_in_words(tmp_path: Path, held: bytes | None, why: str) -> None:
    path = tmp_path / "text"
    if held is not None:
        path.write_bytes(held)
    with pytest.raises((OSError, UnicodeDecodeError)) as caught:
        path.read_text(encoding="utf-8")
    assert why_unreadable(caught.value) == why
