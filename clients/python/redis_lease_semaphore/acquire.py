"""The return value of acquire()."""

from __future__ import annotations

import collections.abc
from types import TracebackType
from typing import Any, Generator, Optional

from .permit import Permit


class Acquire(collections.abc.Coroutine[Any, Any, Permit]):
    """The return value of acquire(). Await this value, or use it directly with `async with`."""

    def __init__(self, coroutine: collections.abc.Coroutine[Any, Any, Permit]) -> None:
        self._coroutine = coroutine
        self._permit: Optional[Permit] = None

    def __await__(self) -> Generator[Any, Any, Permit]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    async def __aenter__(self) -> Permit:
        self._permit = await self._coroutine
        return self._permit

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if self._permit is not None:
            await self._permit.__aexit__(kind, error, traceback)
