"""A permit that is held."""

from __future__ import annotations

import asyncio
import logging
import time
from types import TracebackType
from typing import TYPE_CHECKING, Optional

from .claims import Claim
from .errors import LeaseLost

if TYPE_CHECKING:
    from .semaphore import Semaphore

logger = logging.getLogger("redis_lease_semaphore")


class Permit:
    """Held until it is released or lost; its lease is renewed in the background.

    `lost` is an event that is set at the deadline of the lease at the latest, with Redis in reach
    or not. Use it as a context manager: at the end it is released, and LeaseLost is raised if it
    had been lost.
    """

    def __init__(
        self, semaphore: Semaphore, claim: Claim, token: int, deadline: float, lost: asyncio.Event
    ) -> None:
        self._semaphore = semaphore
        self._outcome: Optional[asyncio.Future[bool]] = None  # of the release
        self._timer: Optional[asyncio.TimerHandle] = None
        self._deadline = deadline
        self.id = claim.word
        self.weight = claim.weight
        self.fencing_token = token
        self.lost = lost
        self._set_timer()

    @property
    def is_lost(self) -> bool:
        # Not only the event: its loop may be busy while the lease ends.
        return self.lost.is_set() or (self._outcome is None and self.expires_in <= 0)

    @property
    def expires_in(self) -> float:
        """Seconds until it is lost, unless the lease is renewed before."""
        return self._deadline - time.monotonic()

    @property
    def was_released(self) -> bool:
        """Whether it has been given back, and Redis has confirmed that."""
        return self._outcome is not None and self._outcome.done() and self._outcome.result()

    def check(self) -> None:
        """Raises LeaseLost if it was lost."""
        if self.is_lost:
            raise LeaseLost(self.id)

    async def release(self) -> bool:
        """Gives it back: True when that is confirmed, False when the lease had ended before.

        Goes on in the background when it is cancelled. Further calls tell the same.
        """
        if self._semaphore._client._is_forked():
            return self.was_released  # it is the parent's
        self._release_in_background()
        if self._outcome is None:
            self._lose()
            return False
        return await asyncio.shield(self._outcome)

    async def __aenter__(self) -> Permit:
        return self

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if not await self.release() and error is None:
            raise LeaseLost(self.id)

    def _release_in_background(self) -> None:
        if self._outcome is None and not self.is_lost:
            self._stop_timer()
            self._outcome = self._semaphore._released(self)

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
        if self._outcome is None and not self.lost.is_set():
            self._stop_timer()
            self.lost.set()
            logger.warning("%s is lost", self.id)
            self._semaphore._lost(self)
