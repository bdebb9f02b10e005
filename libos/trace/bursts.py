"""What became of a message's answer behind its doorbell: it lay in the tx ring until the iokernel took it, which then
gave it to a NIC, or on to another application.

The iokernel tells that of each doorbell that the kthread asks about, and the kthread writes it down (`struct
cl_trace_burst`). A message belongs to the doorbell at whose stamp it was sent. Where none is known of it, there is no
such stage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...runtime._native import lib
from ...runtime.trace import Records

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

TX_RING = ("TX ring", "waits")
TO_THE_NIC = ("to the NIC", "until given")


def behind(records: Records) -> tuple[Array, Array]:
    """Ticks from each message's doorbell until the iokernel took it, and until it had given it on; 0, 0: unknown."""
    import numpy

    messages, bursts = records.messages, records.bursts
    taken, given = (numpy.zeros(len(messages), numpy.uint32) for _ in range(2))
    flags = messages["flags"]
    known = (flags & lib.CL_TRACE_ANSWERED != 0) & (flags & (lib.CL_TRACE_UNSENT | lib.CL_TRACE_STALLED) == 0)
    for kthread in numpy.unique(bursts["kthread"]):
        of = bursts[bursts["kthread"] == kthread]
        of = of[numpy.argsort(of["begin"], kind="stable")]
        rows = numpy.nonzero(known & (messages["kthread"] == kthread))[0]
        sent = messages["begin"][rows] + messages["sent"][rows]
        place = numpy.minimum(numpy.searchsorted(of["begin"], sent), len(of) - 1)
        mine = of["begin"][place] == sent
        taken[rows[mine]], given[rows[mine]] = of["taken"][place[mine]], of["given"][place[mine]]
    return taken, given
