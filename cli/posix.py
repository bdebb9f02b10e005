"""corelane run --posix PROGRAM: a stock, dynamically linked Linux program with its sockets on the dataplane.

The program replaces this process. A library is preloaded into it (libos/posix), and told by CORELANE_POSIX what its
runtime stands on.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import stat
from pathlib import Path
from typing import NoReturn

from ..runtime import elf
from ..runtime.errors import CorelaneError
from ..runtime.paths import default_socket
from ..runtime.tracing import TRACE_MODES
from . import posix_check, values
from .binfmt import image_of
from .config import library
from .usage import WrongUsage

ENDS_AT_ONCE = True
LIBRARY = "libcorelane-posix.so"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--nic",
        metavar="NIC",
        help="embedded: tap:NAME[,host=ADDRESS/N], an interface on which Linux has ADDRESS; or af_xdp:NAME, one that "
        "exists, with a receive queue for each kthread; needs --address",
    )
    place.add_argument("--socket", type=values.socket, metavar="PATH", help="attach to the iokernel there (default)")
    parser.add_argument(
        "--name", type=values.app_name, help="attached: the application's name (default: the program's)"
    )
    parser.add_argument(
        "--address", type=values.interface, metavar="A.B.C.D/N", help="embedded: the program's IPv4 address"
    )
    parser.add_argument("--gateway", type=values.interface, metavar="A.B.C.D", help="embedded: next hop beyond that")
    parser.add_argument(
        "--kthreads",
        type=values.kthreads,
        default=1,
        metavar="N",
        help="as many as threads of it wait for connections (default 1)",
    )
    parser.add_argument(
        "--poll", choices=("adaptive", "block"), default="adaptive", help="what a kthread without work does"
    )
    parser.add_argument(
        "--listen",
        type=_patterns,
        metavar="WHERE,...",
        help="listeners that are on the dataplane: PORT, ADDRESS or ADDRESS:PORT, with * for any part (default: all)",
    )
    parser.add_argument(
        "--loopback",
        action="store_true",
        help="127.0.0.1 is the program's own: its listeners there, and its connections to them, are on the dataplane",
    )
    parser.add_argument(
        "--trace-calls", action="store_true", help="say where each socket goes, and at the end what was called"
    )
    parser.add_argument(
        "--trace",
        choices=TRACE_MODES,
        default="off",
        help="what is written down of requests, for corelane trace (default off)",
    )
    parser.add_argument("--check", action="store_true", help="say what will not work, and do not start it")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM ...", help="it and its arguments")


def run(options: argparse.Namespace) -> int:
    """Become the program, or with --check print what is known of it: 0, or 1 if it cannot run."""
    words = options.program[1:] if options.program[:1] == ["--"] else options.program
    if not words:
        raise WrongUsage("corelane run --posix", "no program is given", "corelane run --posix [OPTIONS] PROGRAM ...")
    found = shutil.which(words[0])
    if found is None:
        raise CorelaneError(f"run {words[0]}", *_missing(words[0]))
    path = Path(found)
    if options.check:
        return _check(path)
    return _become(path, words, options)


def _become(path: Path, command: list[str], options: argparse.Namespace) -> NoReturn:
    """Replace this process by the program. CorelaneError with the reason if it cannot be run."""
    reason = _why_not(path, image_of(path))
    if reason is not None:
        raise CorelaneError(f"run {path}", reason)
    environment = dict(os.environ)
    words = configuration(options, path.name)
    environment["CORELANE_POSIX"] = _joined(words | _handed_over(words))
    environment["LD_PRELOAD"] = ":".join(filter(None, [str(_library()), os.environ.get("LD_PRELOAD")]))
    os.execve(path, command, environment)


_PATTERNS_MOST = 32  # CL_POSIX_PATTERNS
_ADDRESS = re.compile(r"\*|(?:(?:\d{1,3}|\*)\.){3}(?:\d{1,3}|\*)")


def _patterns(text: str) -> str:
    """As libos/posix/config.h has them. A number alone is a port."""
    words = text.split(",")
    if len(words) > _PATTERNS_MOST:
        raise argparse.ArgumentTypeError(f"these are {len(words)}: give {_PATTERNS_MOST} or fewer")
    return ";".join(map(_pattern, words))


def _pattern(word: str) -> str:
    address, _, port = word.partition(":")
    if word.isdecimal():
        address, port = "*", word
    right = _ADDRESS.fullmatch(address) and all(part == "*" or int(part) < 256 for part in address.split("."))
    if not right or word.endswith(":"):
        raise argparse.ArgumentTypeError(f"{word!r} is not PORT, ADDRESS or ADDRESS:PORT, as in 10.0.0.*:80")
    if port not in ("", "*"):
        values.port(port)
    return word


def _library() -> Path:
    path = library().with_name(LIBRARY)
    if not path.exists():
        raise CorelaneError("find what is preloaded", f"{path} does not exist", "build it: pip install .")
    return path


def configuration(options: argparse.Namespace, name: str) -> dict[str, str]:
    """What the preloaded library reads (libos/posix/config.h), but descriptors."""
    words = {"kthreads": str(options.kthreads), "poll": options.poll}
    if options.listen:
        words["listen"] = options.listen
    if options.loopback:
        words["loopback"] = "1"
    if options.trace != "off":
        words["record"] = options.trace
    if options.trace_calls:
        words["trace"] = "1"
    if options.nic is None:
        if options.address or options.gateway:
            raise WrongUsage("--address", "the iokernel gives an attached program its address", "leave it out")
        return {"socket": options.socket or default_socket(), "name": options.name or name[:31], **words}
    device, *more = options.nic.split(",")
    kind, _, interface = device.partition(":")
    known = (kind == "af_xdp" and not more) or (kind == "tap" and all(word.startswith("host=") for word in more))
    if not known or not interface or len(more) > 1:
        form = "--nic tap:NAME[,host=A.B.C.D/N] or --nic af_xdp:NAME"
        raise WrongUsage(f"--nic {options.nic}", "it is not of this form", form)
    if not options.address or "/" not in options.address:
        raise WrongUsage("--nic", "the program needs an address of its own", "--address A.B.C.D/N")
    if more:
        words["host"] = more[0].removeprefix("host=")
    if options.gateway:
        words["gateway"] = options.gateway
    return {"nic": device, "address": options.address, **words}


def _handed_over(words: dict[str, str]) -> dict[str, str]:
    """Descriptors that the program needs, and that only this process can make: those of an XDP program."""
    kind, _, interface = words.get("nic", "").partition(":")
    if kind != "af_xdp":
        return {}
    from ..drivers.nic.af_xdp.af_xdp import hand_over

    given = hand_over(interface, int(words["kthreads"]), words["address"].partition("/")[0])
    return {"xskmap": str(given.xskmap_fd), "link": str(given.link_fd)}


def _joined(words: dict[str, str]) -> str:
    wrong = next((value for value in words.values() if "," in value), None)
    if wrong is not None:
        raise WrongUsage("corelane run --posix", f"{wrong!r} has a comma", "choose another name")
    return ",".join(f"{key}={value}" for key, value in words.items())


def _missing(name: str) -> tuple[str, str]:
    """Why no program is found by that name, and what to do."""
    if "/" in name and Path(name).is_dir():
        return "it is a folder", "give the path of a program"
    if "/" in name and Path(name).exists():
        return "it is not executable", "give the path of a program, or make it one: chmod +x"
    return "there is no such program", "install it, or give its path"


def _why_not(path: Path, image: Path) -> str | None:
    """Why nothing can be preloaded into a program, if so; image: the file that runs."""
    what = "it" if image == path else f"{image}, which runs it,"
    if _changes_user(image):
        return f"{what} is set-user-ID, and the dynamic linker preloads nothing then; run it as its owner"
    if os.getuid() != 0 and _has_capabilities(image):
        mend = "run a copy without, or as root"
        return f"{what} has a file with capabilities, and the dynamic linker preloads nothing then; {mend}"
    if not elf.is_one(image):
        return f"{what} is neither an ELF file nor a script with #! in its first line"
    with elf.parsed(image) as found:
        if found.elfclass != 64:
            return f"{what} is a 32-bit program; install the 64-bit one"
        if other := elf.other_machine(found):
            return f"{what} cannot be run here: {other}; install the one for this machine"
        if not any(segment["p_type"] == "PT_INTERP" for segment in found.iter_segments()):
            return f"{what} is statically linked, so that nothing can be put before its calls; use a dynamic one"
    return None


def _changes_user(path: Path) -> bool:
    """Whether the program would run as another user or group than who starts it: root, too, is another one."""
    of = path.stat()
    other_user = of.st_mode & stat.S_ISUID and of.st_uid != os.getuid()
    other_group = of.st_mode & stat.S_ISGID and of.st_mode & stat.S_IXGRP and of.st_gid != os.getgid()
    return bool(other_user or other_group)


def _has_capabilities(path: Path) -> bool:
    try:
        return bool(os.getxattr(path, "security.capability"))
    except OSError:  # it has none, or its file system knows of none
        return False


def _check(path: Path) -> int:
    image = image_of(path)
    reason = _why_not(path, image)
    if reason is not None:
        print(f"{path}: cannot run: {reason}")
        return 1
    print(f"{path}: can run")
    if image != path:
        print(f"it is a script: {image} runs it")
    for line in posix_check.notes(image):
        print(line)
    return 0
