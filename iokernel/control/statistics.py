"""The statistics of an iokernel as one document; report.py reads each part of it."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Sequence
from typing import Any

from ...drivers.nic.nic import Nic
from ...runtime.clock import default_clock
from . import report
from .applications import Applications
from .apps import App
from .deadlines import Deadlines
from .elastic import Elastic
from .manager import CoreManager


def statistics(
    io: Any,
    loop_cpus: Sequence[int],
    apps: Applications,
    uplinks: Sequence[Nic],
    manager: CoreManager | None,
    deadlines: Deadlines,
    elastic: Elastic,
) -> dict[str, Any]:
    """ "loops", "apps", "deadlines", "memory", "uplinks", "cores", "departed" and "leaving" of `Iokernel.stats`.

    The caller serialises all calls that take io. Raises CorelaneError if the iokernel cannot say.
    """
    hz = int(default_clock().hz)
    return {
        "loops": [report.loop_stats(io, i, cpu, hz) for i, cpu in enumerate(loop_cpus)],
        "apps": [_app_stats(io, app, apps.state_of(app), manager, deadlines, elastic) for app in apps.attached],
        "deadlines": deadlines.stats(),
        "memory": elastic.stats(),
        "uplinks": [report.uplink_stats(nic) for nic in uplinks],
        "cores": None if manager is None else manager.stats(io, {app.id: app.name for app in apps.attached}),
        "departed": apps.departed,
        "leaving": apps.leaving,
    }


def _app_stats(
    io: Any, app: App, state: str | None, manager: CoreManager | None, deadlines: Deadlines, elastic: Elastic
) -> dict[str, Any]:
    age_s = time.monotonic() - app.since
    return {
        "id": app.id,
        "name": app.name,
        "pid": app.peer.pid,
        "uid": app.peer.uid,
        "mac": app.mac.hex(":"),
        "ipv4": str(ipaddress.IPv4Address(app.ipv4)),
        "loop": app.loop,
        "kthreads": app.layout["n_kthreads"],
        "slot": app.slot,
        "member": app.member,
        "state": state,
        "cpus": list(app.cpus),
        "may_spin": app.may_spin,
        "arena": app.layout,
        "age_s": age_s,
        **report.app_stats(io, app.id, app.name),
        "counters": report.app_counters(io, app.id, app.name),
        "deadline": deadlines.stats_of(app.id),
        "memory": elastic.stats_of(app.id),
        "services": report.app_services(io, app.id, app.name),
        "cores": manager.app_stats(io, app.id, app.name, app.loop, app.claim, age_s)
        if manager is not None and app.claim is not None
        else None,
    }
