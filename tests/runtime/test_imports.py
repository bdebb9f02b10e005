"""A user's module is that of the current folder, and whatever it raises is one error (tests/cli/test_targets.py: what
else lies beside it)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from corelane.runtime.errors import CorelaneError
from corelane.runtime.imports import user_module


@pytest.fixture(autouse=True)
def _unimported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test imports is forgotten after it, and how."""
    for name in ("path", "path_hooks", "meta_path"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.chdir(tmp_path)


def test_it_is_that_of_the_folder_and_no_shared_object(tmp_path: Path) -> None:
    (tmp_path / "shop_here.so").write_bytes(b"\x7fELF, a handler in C")
    (tmp_path / "shop_here.py").write_text("n = 5\n")
    assert user_module("serve shop", "shop_here").n == 5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def f(:", r"importing shop_here failed: SyntaxError: "),
        ("1 / 0", r"importing shop_here failed: ZeroDivisionError: division by zero"),
        ("import no_such_module", r"No module named 'no_such_module' \(shop_here needs it\)"),
        (None, r"No module named 'shop_here' \(start it in the module's folder, or install it\)"),
    ],
)
def test_whatever_it_raises_is_one_error(tmp_path: Path, text: str | None, says: str) -> None:
    if text is not None:
        (tmp_path / "shop_here.py").write_text(text)
    with pytest.raises(CorelaneError, match=f"^serve shop: {says}"):
        user_module("serve shop", "shop_here")


@pytest.mark.parametrize("name", ["", ".", "..", ".shop", "shop.", "shop..cart"])
def test_a_name_with_nothing_in_it_is_none(name: str) -> None:
    with pytest.raises(CorelaneError, match=r"^serve shop: '\.*(shop)?\.*(cart)?' is no module's name \(name it"):
        user_module("serve shop", name)


def test_a_folder_that_was_removed_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(CorelaneError, match=r"^serve shop: the current folder was removed \(start it in one"):
        user_module("serve shop", "shop_here")
