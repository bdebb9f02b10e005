"""What users may have of an iokernel: which names, and how much all applications of one have together.

Root and the user that the iokernel runs as are trusted: names with a section of their own are theirs, and of what users
have together only a section of their own binds them. Their wishes count no more than those of others.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass

from ...runtime.config import EVERYBODY, AppConfig, UserConfig
from ...runtime.errors import Refused
from ...runtime.peers import Peer, group_ids, user_ids


@dataclass(frozen=True, slots=True)
class Held:
    """What the applications of a user have, or one of them wants."""

    apps: int
    kthreads: int
    arena_bytes: int


class Users:
    """apps, users: sections of the configuration by name; a user's may also be his number. defaults: for all other
    users; app_defaults: for all other names.

    Raises ConfigError for users and groups that this machine does not know.
    """

    def __init__(
        self,
        apps: Mapping[str, AppConfig] | None = None,
        users: Mapping[str, UserConfig] | None = None,
        defaults: UserConfig | None = None,
        app_defaults: AppConfig | None = None,
    ) -> None:
        self._apps, self._app_defaults = dict(apps or {}), app_defaults or AppConfig()
        self._defaults = defaults or UserConfig()
        self._sections = {user_ids([name], f"users.{name}")[0]: section for name, section in (users or {}).items()}
        self._for_all: set[str] = set()
        self._namers: dict[str, tuple[frozenset[int], frozenset[int]]] = {}  # users and groups who may use a name
        for name, app in (apps or {}).items():
            if EVERYBODY in app.users:
                self._for_all.add(name)
            uids = user_ids([user for user in app.users if user != EVERYBODY], f"apps.{name}.users")
            self._namers[name] = frozenset(uids), frozenset(group_ids(app.groups, f"apps.{name}.groups"))

    def of(self, uid: int) -> UserConfig:
        """The section of a user, or the defaults: what wishes of his applications may come to."""
        return self._sections.get(uid, self._defaults)

    def deadline_cores(self, name: str, uid: int) -> tuple[str, float, str]:
        """Cores that may be promised to applications with deadlines: whose together, how many, which options say so.
        Those of a name, if the configuration says so; else those of the user."""
        cores = self._apps.get(name, self._app_defaults).deadline_cores
        where = f"deadline_cores in [apps.{name}] or [users.{uid}]"
        if cores is not None:
            return f"app {name}", cores, where
        return str(uid), self.of(uid).deadline_cores, where

    def budget(self, peer: Peer) -> UserConfig | None:
        """What he may have together; None: as much as there is."""
        return None if peer.trusted and peer.uid not in self._sections else self.of(peer.uid)

    def check_name(self, name: str, peer: Peer) -> None:
        """Raises Refused for a name that has a section, and not for this user."""
        if name not in self._namers or name in self._for_all or peer.trusted or peer.among(*self._namers[name]):
            return
        hint = f"allow it in apps.{name}.users, or give another name: corelane run --name NAME, Runtime(..., name=NAME)"
        raise Refused(f"user {peer.uid} may not use the name {name}", hint=hint, errno=errno.EACCES)

    def check(self, peer: Peer, held: Held, more: Held) -> None:
        """Raises Refused if he would have more than his budget."""
        budget = self.budget(peer)
        if budget is None:
            return
        if held.apps + more.apps > budget.apps:
            raise _over(peer, "apps", f"{held.apps} applications attached, of {budget.apps}")
        if held.kthreads + more.kthreads > budget.kthreads:
            text = f"{held.kthreads} kthreads attached; {more.kthreads} more are over the limit of {budget.kthreads}"
            raise _over(peer, "kthreads", text)
        if held.arena_bytes + more.arena_bytes > budget.arena_mib << 20:
            text = f"arenas of {_mib(held.arena_bytes)} MiB; {_mib(more.arena_bytes)} more are over the limit of "
            raise _over(peer, "arena_mib", f"{text}{budget.arena_mib}")


def _mib(n_bytes: int) -> int:
    return -(-n_bytes >> 20)


def _over(peer: Peer, option: str, text: str) -> Refused:
    hint = f"end some, or raise users.{peer.uid}.{option}"
    return Refused(f"user {peer.uid} has {text}", hint=hint, errno=errno.EDQUOT)
