"""Where the control socket is by default, for listeners and for clients."""

from __future__ import annotations

import os

import pytest

from corelane.runtime import paths
from corelane.runtime.errors import SystemLimit


@pytest.fixture
def somebody(monkeypatch, tmp_path):
    """As a user without root: id 4242, whose folder in /tmp is then not there."""
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    monkeypatch.setattr(paths, "SYSTEM_SOCKET", str(tmp_path / "system.sock"))
    monkeypatch.setattr(paths, "TEMPORARY", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return tmp_path


def test_root_uses_run(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert paths.default_socket() == paths.default_socket(listen=True) == "/run/corelane.sock"


def test_the_users_own_runtime_folder(somebody, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(somebody))
    own = str(somebody / "corelane.sock")
    assert paths.default_socket(listen=True) == paths.default_socket() == own
    (somebody / "system.sock").touch()
    assert paths.default_socket() == str(somebody / "system.sock"), "root's is found where the user runs none"
    assert paths.default_socket(listen=True) == own
    (somebody / "corelane.sock").touch()
    assert paths.default_socket() == own


def test_without_a_runtime_folder_one_in_tmp(somebody, monkeypatch):
    own = somebody / "corelane-4242"
    assert paths.default_socket() == str(own / "corelane.sock"), "where the user's own will come"
    assert not own.exists()
    own.mkdir(mode=0o700)
    if os.getuid() == 0:
        os.chown(own, 4242, -1)
    else:
        monkeypatch.setattr(os, "geteuid", os.getuid)
        own = own.rename(somebody / f"corelane-{os.getuid()}")
    assert paths.default_socket(listen=True) == str(own / "corelane.sock")
    own.chmod(0o777)
    with pytest.raises(SystemLimit, match="others can write there"):
        paths.default_socket()
