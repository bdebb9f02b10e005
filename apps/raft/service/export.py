"""What a saved snapshot holds, in the words of the protocol that its store serves: for other servers, and for eyes.

raft-kv's items are memcached's `set` commands. raft-resp's values are Redis' commands, as units of its engine
(apps/resp/propagate.h), for `redis-cli --pipe`. A machine of a user's own exports its state itself.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

from ....runtime.errors import CorelaneError
from ..._native import ffi, lib
from .recover import Saved, state_of

_IMAGE = struct.Struct("<IIQQIIQ")  # of raft-resp: resp_machine.c
_FRAME = struct.Struct("<Q")
_WHAT = "export the store"
_ITEM_BYTES = 8192  # at most, in raft-kv
_ROOM = 1 << 20


def is_resp(saved: Saved) -> bool:
    """Whether it is of a raft-resp group."""
    state = state_of(saved.data)
    return len(state) >= _IMAGE.size and _IMAGE.unpack_from(state)[0] == lib.CL_RAFT_RESP_IMAGE_MAGIC


def memory_bytes(saved: Saved) -> int:
    """What the nodes of the group had for their store; 0: it has none, or a machine of a user's own."""
    return saved.settings.machine ^ (lib.CL_RAFT_RESP_SETTINGS if is_resp(saved) else 0)


def export_store(saved: Saved) -> Iterator[bytes]:
    """All that it holds, in pieces. Raises CorelaneError if it is neither of raft-kv nor of raft-resp."""
    return _values(state_of(saved.data)) if is_resp(saved) else _items(saved)


def _values(state: bytes) -> Iterator[bytes]:
    """Times of expiry are absolute: what has expired by now is deleted by whoever executes it."""
    _, version, *_, pieces = _IMAGE.unpack_from(state)
    if version != lib.CL_RAFT_RESP_IMAGE_VERSION:
        raise CorelaneError(_WHAT, f"its values are of version {version}", "use the corelane that saved it")
    at = _IMAGE.size + pieces  # of a unit that was not complete, and so not done
    while at < len(state):
        begin = at + _FRAME.size
        at = begin + (_FRAME.unpack_from(state, at)[0] if begin <= len(state) else 0)
        if not begin <= at <= len(state):
            raise CorelaneError(_WHAT, "its values end in the middle", "take another copy")
        yield state[begin:at]


def _items(saved: Saved) -> Iterator[bytes]:
    """Without those that have expired by now."""
    err, out = ffi.new("char[256]"), ffi.new("struct cl_kv **")
    memory = saved.settings.machine
    config = {"memory_bytes": memory, "item_max_bytes": _ITEM_BYTES, "index_bytes": memory // 6, "manual_clock": 1}
    config |= {"no_evict": 1, "seed": lib.CL_RAFT_KV_SEED}
    if lib.cl_kv_new(ffi.new("struct cl_kv_config *", config), out, err):
        raise CorelaneError(_WHAT, ffi.string(err).decode(), "it is not a snapshot of raft-kv, or memory is short")
    try:
        state = state_of(saved.data)
        if lib.cl_kv_image_load(out[0], 0, ffi.from_buffer(state), len(state)):
            why, hint = "it is no snapshot of raft-kv or raft-resp", "a machine of your own exports its state itself"
            raise CorelaneError(_WHAT, why, hint)
        at, buffer = ffi.new("uint64_t *"), ffi.new("uint8_t[]", _ROOM)
        while n := lib.cl_kv_export(out[0], at, int(time.time()), 0, buffer, _ROOM):
            yield bytes(ffi.buffer(buffer, n))
    finally:
        lib.cl_kv_delete(out[0])
