"""Why a node refuses what only a leader can do: take a command, change the members, hand leadership over."""

from __future__ import annotations

import errno
import os

from ....runtime.errors import Refused

REASONS = {
    errno.EINVAL: ("the leader refuses it", "look who belongs to the group: `corelane raft members`"),
    errno.EALREADY: ("it is so already", ""),
    errno.EBUSY: ("a change of members or of leadership is under way", "wait until it is done"),
    errno.EAGAIN: ("the leader has committed nothing in its term yet", "try again"),
    errno.ESTALE: ("somebody else changed the members", "look at them and try again"),
    errno.EHOSTDOWN: ("the leader has not heard from that node lately", "start it, or choose another"),
    errno.EHOSTUNREACH: (
        "too few of those who would vote are heard from, so the group might decide nothing any more",
        "start them, or take out those that are down",
    ),
    errno.ENOSPC: ("the leader's log is full", "try again when it has made a snapshot"),
    errno.EIO: ("the leader's disk failed", "look at its log"),
    errno.EMSGSIZE: ("it is longer than entry_bytes", "take a shorter one"),
}


def check_order(rc: int, what: str, leader: int) -> None:
    """Raise Refused, with errno, if rc is -errno. leader: whom the node that was asked takes for it, 0 if nobody."""
    if rc >= 0:
        return
    if -rc == errno.EPERM:
        why = "this node does not lead"
        hint = f"ask node {leader}, which does" if leader else "no leader is known: ask again, or the other nodes"
    else:
        why, hint = REASONS.get(-rc, (os.strerror(-rc).lower(), ""))
    raise Refused(what, why, hint, -rc)
