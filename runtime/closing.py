"""What has a `close` is a context manager: leaving it closes it."""

from __future__ import annotations

from types import TracebackType
from typing import NoReturn, Self, SupportsIndex


class Single:
    """Base of objects that free something of C's or the kernel's: a copy would free it a second time."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """What copy, deepcopy and pickle ask."""
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled: there is one of what it owns")


class Closing(Single):
    """Base of objects that are closed once, by `close` or by leaving a `with`; a second close does nothing."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
