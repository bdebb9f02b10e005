"""A port of a C server that was not written for corelane: microsocks, a SOCKS5 proxy with a thread for each client.

python examples/microsocks_port.py FOLDER [microsocks_1.0.3.orig.tar.gz]

Fetches its source as Debian has it, puts libos' stream sockets and uthreads in the place of Linux' sockets and threads,
compiles it, and prints how many lines that took. What is left of the source is its own; nothing of it is kept here.
"""

import contextlib
import difflib
import hashlib
import re
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

VERSION = "1.0.3"
ARCHIVE = f"microsocks_{VERSION}.orig.tar.gz"
SHA256 = "6801559b6f8e17240ed8eef17a36eea8643412b5a7476980fd4e24b02a021b82"
STREAM = "struct cl_stream *"


class Edit(NamedTuple):
    """In a function of a file ("": in all of it), as sed has it. times: how often it must be found there."""

    file: str
    function: str
    pattern: str
    text: str
    times: int = 1


TAKE_CLIENT = r"""{
	struct cl_tcp_addr peer;
	if(cl_stream_accept(server->fd, -1, &client->fd)) return -1;
	cl_stream_ends(client->fd, 0, &peer);
	client->addr.v4.sin_family = AF_INET;
	client->addr.v4.sin_port = htons(peer.port);
	client->addr.v4.sin_addr.s_addr = htonl(peer.ipv4);
	return 0;
}"""
LISTEN = r"""{
	errno = -cl_stream_listen(runtime, port, SOMAXCONN, &server->fd);
	return errno ? -1 : 0;
}"""
CONNECT = r"""struct sockaddr_in *ip = (void *)raddr->ai_addr;
	int own = SOCKADDR_UNION_AF(&bind_addr) == AF_INET;
	struct cl_tcp_addr from = {.ipv4 = own ? ntohl(bind_addr.v4.sin_addr.s_addr) : 0};
	struct cl_tcp_addr to = {.ipv4 = ntohl(ip->sin_addr.s_addr), .port = port};
	struct cl_stream *fd = 0;
	int error = raddr->ai_family != AF_INET ? -EAFNOSUPPORT : cl_stream_connect(runtime, &from, &to, -1, &fd);"""
WATCH_BOTH = r"""if(cl_poll_new(runtime, &set) ||
					cl_poll_add_stream(set, t->client.fd, CL_POLL_IN, CL_POLL_LEVEL, 0) ||
					cl_poll_add_stream(set, remotefd, CL_POLL_IN, CL_POLL_LEVEL, 1))
					goto breakloop;"""
EDITS = (
    Edit("server.h", "", r"(#include <netdb.h>)", r"\1\n#include <corelane/libos/libos.h>"),
    Edit("server.h", "", r"\bint fd;", f"{STREAM}fd;", 2),
    Edit("server.h", "", r"int bindtoip\(.*\);", "extern struct cl_runtime *runtime;"),
    Edit("server.c", "", r"#include <unistd.h>", "#include <errno.h>"),
    Edit("server.c", "bindtoip", r"(?s).*", ""),
    Edit("server.c", "server_waitclient", r"(?s)\{.*\}", TAKE_CLIENT),
    Edit("server.c", "server_setup", r"(?s)\{.*\}", LISTEN),
    Edit("sockssrv.c", "", r"pthread_t pt;", "cl_uthread_id pt;"),
    Edit("sockssrv.c", "connect_socks_target", r"\*client\)", rf"*client, {STREAM}*out)"),
    Edit("sockssrv.c", "connect_socks_target", r"int fd = .*;", CONNECT),
    Edit("sockssrv.c", "connect_socks_target", r"(?s)if\(fd ==.*?close\(fd\);", "if(error) {"),
    Edit("sockssrv.c", "connect_socks_target", r"switch\(errno\)", "switch(-error)"),
    Edit("sockssrv.c", "connect_socks_target", r"perror\(.*\);", r'dolog("connect: %s\\n", strerror(-error));'),
    Edit("sockssrv.c", "connect_socks_target", r"(?s)\tif\(SOCKADDR_UNION_AF.*goto eval_errno;\n", ""),
    Edit("sockssrv.c", "connect_socks_target", r"\[%d\](.*) client->fd", r"[%p]\1 (void *)client->fd"),
    Edit("sockssrv.c", "connect_socks_target", r"return fd;", r"*out = fd;\n\treturn 0;"),
    Edit("sockssrv.c", "send_auth_response", r"int fd", f"{STREAM}fd"),
    Edit("sockssrv.c", "send_auth_response", r"write\((.*)\)", r"cl_stream_write(\1, -1)"),
    Edit("sockssrv.c", "send_error", r"int fd", f"{STREAM}fd"),
    Edit("sockssrv.c", "send_error", r"write\((.*)\)", r"cl_stream_write(\1, -1)"),
    Edit("sockssrv.c", "copyloop", r"int fd1, int fd2", f"{STREAM}fd1, {STREAM}fd2, struct cl_poll *set"),
    Edit("sockssrv.c", "copyloop", r"(?s)struct pollfd.*?\};", "struct cl_poll_event ready;"),
    Edit("sockssrv.c", "copyloop", r"poll\(fds, 2, (.*?)\)", r"cl_poll_wait(set, &ready, 1, \1*1000000LL)"),
    Edit("sockssrv.c", "copyloop", r"(?s)case -1:.*?(\n\s*return;)", r"case 1:\n\t\t\t\tbreak;\n\t\t\tdefault:\1"),
    Edit("sockssrv.c", "copyloop", r"int infd = \(.*\) \?", f"{STREAM}infd = ready.data == 0 ?"),
    Edit("sockssrv.c", "copyloop", r"int outfd", f"{STREAM}outfd"),
    Edit("sockssrv.c", "copyloop", r"\b(read|write)\((.*)\);", r"cl_stream_\1(\2, -1);", 2),
    Edit("sockssrv.c", "clientthread", r"void\* clientthread", "void clientthread"),
    Edit("sockssrv.c", "clientthread", r"int remotefd = -1;", rf"{STREAM}remotefd = 0;\n\tstruct cl_poll *set = 0;"),
    Edit("sockssrv.c", "clientthread", r"recv\((.*), 0\)", r"cl_stream_read(\1, -1)"),
    Edit("sockssrv.c", "clientthread", r"(connect_socks_target\(.*)\);", r"\1, &remotefd);"),
    Edit("sockssrv.c", "clientthread", r"remotefd = ret;", WATCH_BOTH),
    Edit("sockssrv.c", "clientthread", r"copyloop\((.*)\)", r"copyloop(\1, set)"),
    Edit("sockssrv.c", "clientthread", r"if\(remotefd != -1\)", "if(remotefd)"),
    Edit("sockssrv.c", "clientthread", r"\bclose\((.*)\);", r"cl_stream_close(\1, 0);", 2),
    Edit("sockssrv.c", "clientthread", r"\n\n\treturn 0;", r"\n\tcl_poll_delete(set);"),
    Edit("sockssrv.c", "collect", r"pthread_join\((.*), 0\)", r"cl_uthread_join(\1)"),
    Edit("sockssrv.c", "main", r"usleep\((.*)\);", r"if(cl_uthread_sleep_ns(\1 * 1000)) return 0;", 2),
    Edit("sockssrv.c", "main", r"\bclose\((.*)\);", r"cl_stream_close(\1, 0);"),
    Edit("sockssrv.c", "main", r"(?s)\t\tpthread_attr_t.*?\n\t\t\}\n", ""),
    Edit("sockssrv.c", "main", r"pthread_create\((.*), a, (.*), (.*?)\)", r"cl_uthread_spawn(\2, \3, \1)"),
    Edit("sockssrv.c", "main", r"\t\tif\(a\) .*\n", ""),
    Edit("sockssrv.c", "main", r"int main\(", "int microsocks("),
)


def fetch(archive: Path) -> None:
    """The source by the mirror of Debian that apt uses here. Its hash says whether it is the right one."""
    words = ["apt-get", "indextargets", "--format", "$(SITE) $(COMPONENT)", "Created-By: Packages"]
    with contextlib.suppress(FileNotFoundError):
        said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        for site in dict.fromkeys(line.split()[0] for line in said.splitlines() if line.endswith(" main")):
            address = f"{site}/pool/main/m/microsocks/{ARCHIVE}"
            helper = ["/usr/lib/apt/apt-helper", "download-file", address, str(archive), f"SHA256:{SHA256}"]
            if subprocess.run(helper, capture_output=True, check=False).returncode == 0:
                return
    sys.exit(
        f"there is no {ARCHIVE}: no network, or no mirror of Debian among apt's sources (it lists them after `apt-get "
        f"update`). Have it fetched elsewhere, and name the file: microsocks_port.py FOLDER {ARCHIVE}"
    )


def is_right(archive: Path) -> bool:
    """Whether it is there, and the one that the edits are for."""
    return archive.exists() and hashlib.sha256(archive.read_bytes()).hexdigest() == SHA256


def unpack(archive: Path) -> dict[str, str]:
    """Its C files: name and text. Ends the program if it is another version."""
    if not is_right(archive):
        sys.exit(f"{archive} is not {ARCHIVE} of microsocks {VERSION}: it is not there, or its SHA-256 is another one")
    files = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile() and member.name.endswith((".c", ".h")):
                file = tar.extractfile(member)
                assert file is not None
                files[Path(member.name).name] = file.read().decode()
    return files


def part(text: str, function: str) -> tuple[int, int]:
    """Where a function stands."""
    if not function:
        return 0, len(text)
    found = re.search(rf"^\w[^\n;]*\b{function}\([^;{{]*\{{.*?^\}}", text, re.M | re.S)
    if not found:
        sys.exit(f"the source has no function {function}")
    return found.span()


def edited(text: str, edit: Edit) -> str:
    """The text with an edit made."""
    begin, end = part(text, edit.function)
    changed, times = re.subn(edit.pattern, edit.text, text[begin:end], count=edit.times)
    if times != edit.times:
        sys.exit(f"{edit.file}: {edit.function} has {edit.pattern} {times} times, and not {edit.times}")
    return text[:begin] + changed + text[end:]


def differences(before: str, after: str) -> Iterator[str]:
    """ "-" for each line that went, "+" for each that came."""
    for line in difflib.unified_diff(before.splitlines(), after.splitlines(), n=0):
        if line[0] in "+-" and line[:3] not in ("+++", "---"):
            yield line[0]


def port(folder: Path, archive: Path | None) -> tuple[int, int, int]:
    """Make FOLDER/microsocks. Returns how many lines the source has, how many of them went, and how many came."""
    folder.mkdir(parents=True, exist_ok=True)
    if archive is None:
        archive = folder / ARCHIVE
        if not is_right(archive):
            fetch(archive)
    files = unpack(archive)
    changes: list[str] = []
    for name, text in files.items():
        after = text
        for edit in EDITS:
            if edit.file == name:
                after = edited(after, edit)
        changes += differences(text, after)
        (folder / name).write_text(after)
    config = [sys.executable, "-m", "corelane.cli.main", "config", "--cflags", "--libs"]
    flags = shlex.split(subprocess.run(config, capture_output=True, text=True, check=True).stdout)
    sources = [Path(__file__).with_suffix(".c"), *(folder / name for name in files if name.endswith(".c"))]
    # -U: the source defines _GNU_SOURCE itself
    subprocess.run(["cc", "-O2", *sources, "-o", folder / "microsocks", *flags, "-U_GNU_SOURCE"], check=True)
    return sum(len(text.splitlines()) for text in files.values()), changes.count("-"), changes.count("+")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(str(__doc__))
    lines, went, came = port(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
    print(f"microsocks {VERSION}, {lines} lines: {went} went, {came} came in their place; {sys.argv[1]}/microsocks")
