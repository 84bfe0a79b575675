"""A permit that is held."""

import asyncio
import logging
import time

from .errors import LeaseLost

logger = logging.getLogger("redis_semaphore")


class Permit:
    """Held until it is released or lost; its lease is renewed in the background.

    `lost` is an event that is set at the deadline of the lease at the latest, with Redis in reach
    or not. Use it as a context manager: at the end it is released, and LeaseLost is raised if it
    had been lost.
    """

    def __init__(self, semaphore, claim, token, deadline, lost):
        self._semaphore = semaphore
        self._outcome = None  # of the release
        self._timer = None
        self._deadline = deadline
        self.id = claim.id
        self.weight = claim.weight
        self.fencing_token = token
        self.lost = lost
        self._set_timer()

    @property
    def is_lost(self):
        # Not only the event: its loop may be busy while the lease ends.
        return self.lost.is_set() or (self._outcome is None and self.expires_in <= 0)

    @property
    def expires_in(self):
        """Seconds until it is lost, unless the lease is renewed before."""
        return self._deadline - time.monotonic()

    @property
    def was_released(self):
        """Whether it has been given back, and Redis has confirmed that."""
        return self._outcome is not None and self._outcome.done() and self._outcome.result()

    def check(self):
        """Raises LeaseLost if it was lost."""
        if self.is_lost:
            raise LeaseLost(self.id)

    async def release(self):
        """Gives it back: True when that is confirmed, False when the lease had ended before.

        Goes on in the background when it is cancelled. Further calls tell the same.
        """
        if self._outcome is None:
            if self.is_lost:
                self._lose()
                return False
            self._give_back()
        return await asyncio.shield(self._outcome)

    async def __aenter__(self):
        return self

    async def __aexit__(self, kind, error, traceback):
        if not await self.release() and error is None:
            raise LeaseLost(self.id)

    def _release_in_background(self):
        if self._outcome is None and not self.is_lost:
            self._give_back()

    def _give_back(self):
        self._stop_timer()
        self._outcome = self._semaphore._released(self)

    def _take_back(self):
        """The client is closed: whoever holds it finds it lost."""
        self._stop_timer()
        self.lost.set()
        self._semaphore._released(self)

    def _renewed(self, deadline):
        if not self.is_lost:
            self._deadline = deadline
            self._set_timer()

    def _set_timer(self):
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(self.expires_in, self._lose)

    def _stop_timer(self):
        if self._timer is not None:
            self._timer.cancel()

    def _lose(self):
        if self._outcome is None and not self.lost.is_set():
            self._stop_timer()
            self.lost.set()
            logger.warning("%s is lost", self.id)
            self._semaphore._lost(self)
