"""Elements that C copies: of which numpy dtypes they may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import CorelaneError

if TYPE_CHECKING:
    import numpy as np


def copied(what: str, kind: Any) -> np.dtype[Any]:
    """The dtype that numpy makes of `kind`. Raises CorelaneError, that `what` cannot be done, for none, and for Python
    objects, of which C would copy the address and keep none alive."""
    import numpy as np

    try:
        dtype: np.dtype[Any] = np.dtype(kind)
    except (TypeError, ValueError) as error:
        hint = "give one as np.uint64, 'S16', or [('id', 'u4'), ('at', 'f8')]"
        raise CorelaneError(what, f"{kind!r} is no dtype of numpy", hint) from error
    if dtype.hasobject:
        why = f"{getattr(kind, '__name__', kind)} is kept as a Python object, which C cannot copy"
        raise CorelaneError(what, why, "take a dtype of numbers or bytes, or a queue or dict of Python's")
    return dtype
