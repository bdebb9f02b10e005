"""Records of requests as trace events: a row a kthread of what it ran, and each message with its stages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...libos.trace.stages import WINDOWS
from ...runtime.trace import WAITS, Records

_KTHREADS, _MESSAGES = 3, 4  # as processes; 1 and 2 are the cores' (recording.py)


def events(records: Records, names: list[str], hz: int, begin_tsc: int) -> Iterator[dict[str, Any]]:
    """Trace Event Format. begin_tsc: where its time begins."""

    def us(tsc: int) -> float:
        return round(1e6 * (tsc - begin_tsc) / hz, 3)

    def event(phase: str, name: str, pid: int, tid: int, at: int, **more: Any) -> dict[str, Any]:
        return {"ph": phase, "name": name, "cat": "request", "pid": pid, "tid": tid, "ts": us(at), **more}

    def between(name: str, tid: int, begin: int, end: int, **args: Any) -> dict[str, Any]:
        return event("X", name, _KTHREADS, tid, begin, dur=round(us(end) - us(begin), 3), args=args)

    for pid, title in ((_KTHREADS, "kthreads: what they ran"), (_MESSAGES, "requests: their stages")):
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": title}}
    for kthread in sorted({int(k) for k in (*records.messages["kthread"], *records.cores["kthread"])}):
        title = f"kthread {kthread}"
        yield {"ph": "M", "name": "thread_name", "pid": _KTHREADS, "tid": kthread, "args": {"name": title}}
    for m in records.messages:
        service, kthread, begin, mark = int(m["service"]), int(m["kthread"]), int(m["begin"]), f"{int(m['id']):#x}"
        name = names[service] if service < len(names) else f"service {service}"
        # As long as it runs without a wait, its kthread is its own; else others run there meanwhile.
        if not m["blocked"] and not m["ready"]:
            yield between(name, kthread, begin + int(m["start"]), begin + int(m["end"]), id=mark)
        yield event("b", name, _MESSAGES, kthread, begin, id=mark)
        for stage, first, last in WINDOWS:
            since, until = begin + (int(m[first]) if first else 0), begin + int(m[last])
            if until > since:
                yield event("b", stage, _MESSAGES, kthread, since, id=mark)
                yield event("e", stage, _MESSAGES, kthread, until, id=mark)
        yield event("e", name, _MESSAGES, kthread, begin + int(m["sent"]), id=mark)
    for w in records.waits:
        name, mark, begin = f"wait: {WAITS.get(int(w['what']), 'other')}", f"{int(w['id']):#x}", int(w["begin"])
        args = {"object": f"{int(w['object']):#x}", "holder": f"{int(w['holder']):#x}"}
        yield event("b", name, _MESSAGES, int(w["kthread"]), begin, id=mark, args=args)
        yield event("e", name, _MESSAGES, int(w["kthread"]), begin + int(w["blocked"]) + int(w["ready"]), id=mark)
    for c in records.cores:
        yield between("core away", int(c["kthread"]), int(c["begin"]), int(c["end"]))
