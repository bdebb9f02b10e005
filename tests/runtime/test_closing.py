"""What owns something of C's cannot be copied: each copy would free it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from corelane import libos
from corelane.apps.kv import Store
from corelane.apps.resp.engine import Engine
from corelane.drivers.nic.memory import memory_link
from corelane.iokernel import Iokernel


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps], ids=lambda c: c.__name__)
def test_what_owns_something_is_not_copied(copied: Callable[[Any], Any]) -> None:
    nic, end = memory_link()
    with nic, end, libos.Runtime(nic=nic, address="10.0.0.1/24") as runtime, Store(1 << 20) as store, Engine() as resp:
        for owner in (
            nic,
            runtime,
            store,
            resp,
            Iokernel("/nowhere"),
            libos.ShardedCounter(),
            libos.TokenBucket(1, burst=1),
        ):
            with pytest.raises(TypeError, match=rf"^a {type(owner).__name__} cannot be copied or pickled"):
                copied(owner)
