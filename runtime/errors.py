"""The one exception family of corelane: every error says what failed, why, and what to do about it.

C functions return -errno (or a pointer, NULL for failure) and often a reason in a `char err[256]`; `check` and
`check_pointer` turn that into a CorelaneError.
"""

from __future__ import annotations

import errno as _errno
import os
import re
from typing import Any


class CorelaneError(Exception):
    """Base of all errors raised by corelane.

    what: what could not be done, for example "open the UMEM"; why: the reason; hint: what to do, "" if that is not
    known; errno: the positive error number from C or the system, 0 if there is none. str() gives it all in one line.
    """

    def __init__(self, what: str, why: str = "", hint: str = "", errno: int = 0) -> None:
        self.what = what
        self.why = why
        self.hint = hint
        self.errno = errno
        super().__init__(what, why, hint, errno)

    def __str__(self) -> str:
        text = f"{self.what}: {self.why}" if self.why else self.what
        return f"{text} ({self.hint})" if self.hint else text


class ConfigError(CorelaneError):
    """A configuration that cannot be used; the text names file, key, value and what was expected."""


class SystemLimit(CorelaneError):
    """The machine, its limits or its permissions do not allow it; the hint says how they would."""


class ProtocolError(CorelaneError):
    """A peer (iokernel, application, file) said something that its protocol does not allow."""


class Refused(CorelaneError):
    """The other side understood and said no; `why` is its reason."""


class Gone(CorelaneError):
    """The other side has vanished: an iokernel or an application that ended, a device that was removed."""


# What usually lies behind an error number here, when the caller knows nothing better.
_HINTS = {
    _errno.EPERM: "run as root, or see `corelane doctor` for the capability that is missing",
    _errno.EACCES: "run as root, or see `corelane doctor` for the capability that is missing",
    _errno.ENOMEM: "less memory asked for, or a higher `ulimit -l` (memlock), may help",
    _errno.EMFILE: "raise the limit of open files: `ulimit -n`",
}
_KINDS: dict[int, type[CorelaneError]] = {
    _errno.EPERM: SystemLimit,
    _errno.EACCES: SystemLimit,
    _errno.ENOMEM: SystemLimit,
    _errno.EMFILE: SystemLimit,
    _errno.ENFILE: SystemLimit,
    _errno.EPROTO: ProtocolError,
    _errno.ECONNREFUSED: Refused,
    _errno.ECONNRESET: Gone,
    _errno.EPIPE: Gone,
    _errno.ENODEV: Gone,
}


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # ECMA-48, select graphic rendition


def plain_text(error: BaseException) -> str:
    """What another library's error says, without the colours that it meant for a terminal (numba's has them always)."""
    return _COLOURS.sub("", str(error))


# Of these a sentence of C's says all that the number does, and more.
_SAID_BY_WORDS = {
    *(_errno.EINVAL, _errno.ERANGE, _errno.ENAMETOOLONG, _errno.EPROTO, _errno.EOPNOTSUPP, _errno.ENOMEM),
    *(_errno.ENOENT, _errno.EEXIST, _errno.EBUSY, _errno.ECONNREFUSED),
}
_REFUSED = "refused by the iokernel: "  # runtime/control.c; a whole sentence follows, whatever the number


def _reason(number: int, err: Any) -> str:
    text = ""
    if isinstance(err, str):
        text = err
    elif err is not None:  # a cffi char[]
        text = os.fsdecode(b"".join(err).split(b"\0", 1)[0])  # it may name a path
    system = os.strerror(number) if number else ""
    if text and (number in _SAID_BY_WORDS or system in text or text.startswith(_REFUSED)):
        return text
    return f"{text} [{system}]" if text and system else text or system


def from_errno(number: int, what: str, err: Any = None, hint: str = "") -> CorelaneError:
    """The CorelaneError for a positive error number; `err` is a text or a cffi `char[]` with the reason."""
    kind, why = _KINDS.get(number, CorelaneError), _reason(number, err)
    why = why.replace(f"{_REFUSED}{what}: ", _REFUSED, 1)  # the iokernel's sentence begins so, too
    return kind(what, why, hint or ("" if why.startswith(_REFUSED) else _HINTS.get(number, "")), number)


def check(rc: int, what: str, err: Any = None, hint: str = "") -> int:
    """Return `rc` if it is >= 0; else raise what -rc means.

    what: what was attempted ("bind queue 0 of veth0"); err: a text or a cffi `char[256]` that C filled with the reason.
    """
    if rc < 0:
        raise from_errno(-rc, what, err, hint)
    return rc


def check_pointer(pointer: Any, what: str, err: Any = None, hint: str = "") -> Any:
    """Return `pointer` unless it is NULL; else raise (ENOMEM if `err` gives no reason)."""
    if not pointer:
        reason = _reason(0, err)
        raise CorelaneError(what, reason, hint) if reason else from_errno(_errno.ENOMEM, what, None, hint)
    return pointer
