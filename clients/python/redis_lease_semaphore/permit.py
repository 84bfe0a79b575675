"""A permit that is held."""

from __future__ import annotations

import asyncio
import logging
import time
from types import TracebackType
from typing import Optional, Protocol

from .errors import LeaseLost, Unavailable
from .release import Release

logger = logging.getLogger("redis_lease_semaphore")


class Keeper(Protocol):
    """What a permit needs of its semaphore."""

    def _is_forked(self) -> bool: ...
    def _ended(self, permit: Permit) -> Release: ...
    async def _confirmed(self, release: Release) -> bool: ...


class Permit:
    """Held until it is released or lost; its lease is renewed in the background.

    `lost` is an event that is set at the deadline of the lease at the latest, with Redis in reach
    or not. Use it as a context manager: at the end it is released, and LeaseLost is raised if it
    had been lost. Where Redis has not confirmed the release in time, that is logged.
    """

    def __init__(
        self, keeper: Keeper, word: str, weight: int, token: int, deadline: float, lost: asyncio.Event
    ) -> None:
        self._keeper = keeper
        self._release: Optional[Release] = None
        self._timer: Optional[asyncio.TimerHandle] = None
        self._deadline = deadline
        self.id = word
        self.weight = weight
        self.fencing_token = token
        self.lost = lost
        self._set_timer()

    @property
    def is_lost(self) -> bool:
        # Not only the event: its loop may be busy while the lease ends.
        return self.lost.is_set() or (self._release is None and self.expires_in <= 0)

    @property
    def expires_in(self) -> float:
        """Seconds until it is lost, unless the lease is renewed before."""
        return self._deadline - time.monotonic()

    @property
    def was_released(self) -> bool:
        """Whether it has been given back, and Redis has confirmed that."""
        return self._release is not None and self._release.was_held is True

    def check(self) -> None:
        """Raises LeaseLost if it was lost."""
        if self.is_lost:
            raise LeaseLost(self.id)

    async def release(self) -> bool:
        """Gives it back: True when that is confirmed, False when the lease had ended before.

        Raises Unavailable where Redis has not confirmed it within two response timeouts. Then, and
        when it is cancelled, it goes on in the background, until it is confirmed or the lease has
        ended. Another call waits once more.
        """
        if self._keeper._is_forked():
            return self.was_released  # it is the parent's
        self._release_in_background()
        if self._release is None:
            self._lose()
            return False
        return await self._keeper._confirmed(self._release)

    async def __aenter__(self) -> Permit:
        return self

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if not await self._end_block() and error is None:
            raise LeaseLost(self.id)

    async def _end_block(self) -> bool:
        """Releases it. Whether it was held: the block has not failed where giving back takes longer."""
        try:
            return await self.release()
        except Unavailable as error:
            logger.warning("%s", error)
            return True

    def _release_in_background(self) -> None:
        if self._release is None and not self.is_lost:
            self._stop_timer()
            self._release = self._keeper._ended(self)

    def _renewed(self, deadline: float) -> None:
        if not self.is_lost:
            self._deadline = deadline
            self._set_timer()

    def _set_timer(self) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(self.expires_in, self._lose)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _lose(self) -> None:
        if self._release is None and not self.lost.is_set():
            self._stop_timer()
            self.lost.set()
            logger.warning("%s is lost", self.id)
            self._keeper._ended(self)
