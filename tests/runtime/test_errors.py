"""The exception family."""

from __future__ import annotations

import errno

import pytest

from corelane.runtime import errors
from corelane.runtime._native import ffi


def test_says_what_why_and_what_to_do():
    error = errors.CorelaneError("open the NIC", "no such device", "ip link shows the names")
    assert str(error) == "open the NIC: no such device (ip link shows the names)"
    assert str(errors.CorelaneError("open the NIC")) == "open the NIC"


def test_colours_of_other_libraries_are_left_out():
    assert errors.plain_text(ValueError("\x1b[1mno\x1b[0m such \x1b[31;1mname\x1b[0m")) == "no such name"
    assert errors.plain_text(ValueError("plain [1m]")) == "plain [1m]"


def test_check_passes_good_results_on():
    assert errors.check(7, "x") == 7
    assert errors.check_pointer("p", "x") == "p"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EPERM, errors.SystemLimit),
        (errno.ECONNREFUSED, errors.Refused),
        (errno.EPIPE, errors.Gone),
        (errno.EPROTO, errors.ProtocolError),
        (errno.EINVAL, errors.CorelaneError),
    ],
)
def test_kinds_by_error_number(number, kind):
    with pytest.raises(kind) as caught:
        errors.check(-number, "do it")
    assert type(caught.value) is kind
    assert caught.value.errno == number
    assert str(caught.value).startswith("do it: ")


def test_reason_from_c():
    err = ffi.new("char[256]", b"ring size 3 is no power of two")
    with pytest.raises(errors.CorelaneError, match=r"^make a ring: ring size 3 is no power of two$"):
        errors.check(-errno.EINVAL, "make a ring", err)
    with pytest.raises(errors.CorelaneError, match=r"^make a ring: Invalid argument$"):
        errors.check(-errno.EINVAL, "make a ring")
    with pytest.raises(errors.CorelaneError, match=r"^flush: block 7 is lost \[Input/output error\]$"):
        errors.check(-errno.EIO, "flush", "block 7 is lost")
    with pytest.raises(errors.CorelaneError, match=r"^flush: cannot write: Input/output error$"):
        errors.check(-errno.EIO, "flush", "cannot write: Input/output error")
    with pytest.raises(errors.CorelaneError, match="make a ring: ring size 3"):
        errors.check_pointer(ffi.NULL, "make a ring", err)
    with pytest.raises(errors.SystemLimit, match="Cannot allocate memory"):
        errors.check_pointer(ffi.NULL, "make a ring")


@pytest.mark.parametrize("number", [errno.ENODEV, errno.EDQUOT, errno.EPERM])
def test_what_an_iokernel_refuses_is_said_by_its_own_words(number: int) -> None:
    text = "refused by the iokernel: this iokernel has no storage"
    with pytest.raises(errors.CorelaneError) as refused:
        errors.check(-number, "storage areas", text)
    assert str(refused.value) == f"storage areas: {text}"
    with pytest.raises(errors.CorelaneError, match=r"^storage area a: refused by the iokernel: it exists already$"):
        errors.check(-number, "storage area a", "refused by the iokernel: storage area a: it exists already")
