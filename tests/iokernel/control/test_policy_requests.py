"""Another policy at a client's request: who may ask, and who waits for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from cltest import wait_until
from cltest.control import HEADER, answer, attached, connect, kind_of, policy, refusal
from cltest.registry import GrantingRegistry, serving

from corelane.cli.policy import choose
from corelane.iokernel import Access, Iokernel
from corelane.iokernel._native import lib
from corelane.iokernel.control.server import ControlServer
from corelane.runtime.errors import CorelaneError


def test_a_policy_is_set_and_its_trials_sentence_comes_back(serve, socket_path):
    server, _ = serve()
    with connect(socket_path) as sock:
        sock.sendall(policy(b"fair", b"slice_us=10"))
        got = answer(sock)
        assert kind_of(got) == lib.CL_CONTROL_POLICY_OK
        assert got[HEADER.size :].rstrip(b"\0") == b"fair decides with slice_us=10"
    refused = {b"refused": "its trial found nonsense", b"broken": "ZeroDivisionError: by a policy's module"}
    for spec, said in refused.items():
        with connect(socket_path) as sock:
            sock.sendall(policy(spec))
            assert said in refusal(sock)
    assert (server.counts["policies"], server.counts["policy_refused"]) == (1, 2)


def test_a_path_is_passed_on_byte_for_byte(serve, socket_path):
    serve()
    spec = b"/tmp/p\xff\xc3\xa9.so:mine"
    with connect(socket_path) as sock:
        sock.sendall(policy(spec))
        assert answer(sock)[HEADER.size :].rstrip(b"\0") == spec + b" decides with "


def test_a_policy_from_a_path_that_is_no_text(socket_path, tmp_path, bad_policies):
    """And what is said of one that is refused names the path."""
    path = os.fsencode(tmp_path) + b"/p\xff.so"
    shutil.copy(bad_policies, path)
    with Iokernel(socket_path, worker_cpus=[max(os.sched_getaffinity(0))], policy="delay"):
        assert os.fsencode(choose(socket_path, f"{os.fsdecode(path)}:headroom", [])).startswith(path + b":headroom")
        with pytest.raises(CorelaneError) as refused:
            choose(socket_path, f"{os.fsdecode(path)}x:headroom", [])
        assert os.fsdecode(path) in str(refused.value)


def test_others_are_served_while_a_policy_is_loaded(serve, socket_path):
    server, registry = serve()
    with connect(socket_path) as slow, connect(socket_path) as other:
        slow.sendall(policy(b"slow"))
        assert registry.loading.wait(60)
        attached(socket_path).close()
        other.sendall(policy(b"fair"))
        assert "another policy is being loaded" in refusal(other)
        registry.loaded.set()
        assert kind_of(answer(slow)) == lib.CL_CONTROL_POLICY_OK
    assert server.counts["busy"] == 1


def test_who_does_not_wait_for_the_answer_disturbs_nobody(serve, socket_path):
    server, registry = serve()
    with connect(socket_path) as slow:
        slow.sendall(policy(b"slow"))
        assert registry.loading.wait(60)
    registry.loaded.set()
    with connect(socket_path) as sock:
        wait_until(lambda: not server._policies.busy)
        sock.sendall(policy(b"delay"))
        assert kind_of(answer(sock)) == lib.CL_CONTROL_POLICY_OK


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="changes its user: run as root")
def test_only_root_and_the_iokernels_user_choose_the_policy(socket_path):
    os.chmod(os.path.dirname(socket_path), 0o755)
    code = (
        "import os, sys; from cltest.control import connect, policy, refusal; os.setgid(65534); os.setuid(65534);"
        "sock = connect(sys.argv[1]); sock.sendall(policy(b'delay')); print(refusal(sock))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    args = [sys.executable, "-c", code, socket_path]
    with serving(ControlServer(socket_path, GrantingRegistry(), Access(mode=0o666, uids=(65534,)))):
        said = subprocess.run(args, capture_output=True, text=True, check=True, env=environment).stdout
    assert said.strip() == "user 65534 may not choose the policy, only root may"
