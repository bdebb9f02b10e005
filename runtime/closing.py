"""What has a `close` is a context manager: leaving it closes it."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closing:
    """Base of objects that are closed once, by `close` or by leaving a `with`; a second close does nothing."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
