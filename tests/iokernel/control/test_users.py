"""What users may have: names, and budgets that hold for all applications of one together."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable

import pytest
from cltest import wait_until
from cltest.control import answer, connect, hello, kind_of, refusal

from corelane.iokernel import Allowance, AppConfig, Iokernel, UserConfig
from corelane.iokernel._native import lib
from corelane.iokernel.control.users import Held, Users
from corelane.runtime import config
from corelane.runtime.errors import ConfigError, Refused
from corelane.runtime.peers import Peer

MIB = 1 << 20
ROOT, OWN = Peer(1, 0, 0, frozenset()), Peer(1, os.geteuid(), 0, frozenset())
ANNA = Peer(2, 12001, 77, frozenset({88}))
NOTHING = Held(0, 0, 0)


def test_a_name_with_a_section_is_for_those_whom_it_names() -> None:
    me = pwd.getpwuid(os.geteuid()).pw_name
    apps = {
        "kv": AppConfig(ip="10.77.0.9"),
        "annas": AppConfig(users=(me, 12001)),
        "primary": AppConfig(groups=(77,)),
        "supplementary": AppConfig(groups=(88,)),
        "all": AppConfig(users=("*",)),
    }
    users = Users(apps)
    for name in ("annas", "primary", "supplementary", "all", "anything"):
        users.check_name(name, ANNA)
    for name in apps:
        users.check_name(name, ROOT)
        users.check_name(name, OWN)
    with pytest.raises(Refused, match=r"user 12001 may not use the name kv \(allow it in apps\.kv\.users, or"):
        users.check_name("kv", ANNA)
    with pytest.raises(Refused):
        users.check_name("annas", Peer(3, 12002, 78, frozenset()))


@pytest.mark.parametrize(
    ("apps", "users", "said"),
    [
        ({"a": AppConfig(users=("nobody-of-that-name",))}, {}, r"apps\.a\.users: 'nobody-of-that-name' does not exist"),
        ({"a": AppConfig(groups=("no-such-group",))}, {}, r"apps\.a\.groups: 'no-such-group' does not exist"),
        ({}, {"nobody-of-that-name": UserConfig()}, r"users\.nobody-of-that-name: .* does not exist"),
    ],
)
def test_who_does_not_exist_is_an_error(apps: dict[str, AppConfig], users: dict[str, UserConfig], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Users(apps, users)


@pytest.mark.parametrize(
    ("held", "more", "said"),
    [
        (Held(2, 0, 0), Held(1, 1, 1), r"has 2 applications attached, of 2 \(end some, or raise users\.12001\.apps"),
        (Held(1, 3, 0), Held(1, 2, 1), r"has 3 kthreads attached; 2 more are over the limit of 4 .*12001\.kthreads"),
        (NOTHING, Held(1, 64, 1), "has 0 kthreads attached; 64 more are over the limit of 4"),
        (Held(1, 1, 5 * MIB), Held(1, 1, 4 * MIB), r"arenas of 5 MiB; 4 more are over the limit of 8 .*\.arena_mib"),
    ],
)
def test_what_a_user_has_together_is_bounded(held: Held, more: Held, said: str) -> None:
    users = Users(defaults=UserConfig(apps=2, kthreads=4, arena_mib=8))
    users.check(ANNA, NOTHING, Held(1, 4, 8 * MIB))
    users.check(ROOT, held, more)
    with pytest.raises(Refused, match=said):
        users.check(ANNA, held, more)


def test_a_section_of_his_own_binds_a_user_whoever_he_is() -> None:
    users = Users(users={"0": UserConfig(apps=1), "12001": UserConfig(apps=9)}, defaults=UserConfig(apps=2))
    users.check(ANNA, Held(8, 0, 0), Held(1, 1, 1))
    with pytest.raises(Refused, match="user 0 has 1 applications attached, of 1"):
        users.check(ROOT, Held(1, 0, 0), Held(1, 1, 1))


def test_wishes_of_root_count_no_more_than_those_of_others() -> None:
    assert (Users().of(0).weight, Users().of(0).guaranteed_cores) == (1, 0)


def test_a_budget_is_given_back_with_the_application(start: Callable[..., Iokernel], socket_path: str) -> None:
    me = str(os.geteuid())
    io = start(allowance=Allowance(users={me: UserConfig(kthreads=3)}))
    with connect(socket_path) as first:
        first.sendall(hello(b"a", n_kthreads=2))
        assert kind_of(answer(first)) == lib.CL_CONTROL_ACCEPT
        with connect(socket_path) as second:
            second.sendall(hello(b"b", n_kthreads=2))
            assert f"user {me} has 2 kthreads attached; 2 more are over the limit of 3" in refusal(second)
    wait_until(lambda: not io.apps)
    with connect(socket_path) as third:
        third.sendall(hello(b"b", n_kthreads=3))
        assert kind_of(answer(third)) == lib.CL_CONTROL_ACCEPT


def test_the_configuration_file_says_it() -> None:
    text = '[apps.kv]\nusers = ["*"]\ngroups = [4]\n[user_defaults]\nkthreads = 8\n[users.1000]\nweight = 9'
    said = config.loads(text, overrides=["users.root.guaranteed_cores=2"])
    assert (said.app("kv").users, said.app("kv").groups) == (("*",), (4,))
    assert said.user_defaults.kthreads == 8
    assert (said.users["1000"].weight, said.users["root"].guaranteed_cores) == (9, 2)
