"""A held permit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
import warnings
from types import TracebackType
from typing import Optional, Protocol

from .errors import Closed, PermitLost, Unavailable
from .release import Release
from .unique import Unique

logger = logging.getLogger("redis_lease_semaphore")


class Keeper(Protocol):
    """The part of a semaphore that its permits use."""

    name: str

    def _is_forked(self) -> bool: ...
    def _is_here(self) -> bool: ...
    def _ended(self, held: Held) -> Release: ...
    def _drop(self, held: Held) -> None: ...
    async def _confirmed(self, release: Release) -> bool: ...
    async def _released_elsewhere(self, held: Held) -> bool: ...


class Held:
    """The state of a permit, for the semaphore and its worker. It does not keep the permit itself alive."""

    def __init__(
        self, keeper: Keeper, request_id: str, token: int, deadline: float, latest_end: float, lost: asyncio.Event
    ) -> None:
        self.keeper, self.id, self.token = keeper, request_id, token
        self.deadline = min(deadline, latest_end)
        self._latest_end = latest_end  # however often it is refreshed
        self.lost = lost
        self.loop = asyncio.get_running_loop()
        self.thread: Optional[threading.Thread] = None  # the thread that holds it, with the blocking client
        self.release: Optional[Release] = None
        self.dropped_at: Optional[int] = None  # among the program's calls
        self._timer: Optional[asyncio.TimerHandle] = None
        self._set_timer()

    @property
    def is_lost(self) -> bool:
        # Not only the event, because its loop may be busy when the lease expires.
        return self.lost.is_set() or (self.release is None and self.deadline <= time.monotonic())

    @property
    def is_over(self) -> bool:
        return self.release is not None or self.lost.is_set()

    @property
    def can_last_longer(self) -> bool:
        return self._latest_end - self.deadline > 0.005

    def next_lease_ms(self, sent: float, lease_ms: int) -> int:
        if self._latest_end == math.inf:
            return lease_ms
        return max(1, min(lease_ms, int((self._latest_end - sent) * 1000)))

    async def give_back(self) -> bool:
        self.release_in_background()
        if self.release is None:
            self.lose()
            return False
        return await self.keeper._confirmed(self.release)

    def outcome_when_closed(self, why: Closed) -> bool:
        """Returns what is known when release() sends nothing more. Raises an error if the permit may still be held."""
        if self.is_lost:
            return False
        if self.release is None:
            raise Closed(f"{why}, so {self.id} cannot be released: it is free when its lease expires")
        if self.release.was_held is None:
            late = f"{why} before Redis confirmed the release of {self.id}"
            raise Unavailable(f"{late}: it is free when its lease expires, at the latest")
        return self.release.was_held

    def release_in_background(self) -> None:
        if self.release is None and not self.is_lost:
            self._stop_timer()
            self.release = self.keeper._ended(self)

    def dropped(self) -> None:
        if not self.is_over:
            logger.warning("%s was dropped and never released: it is released now", self.id)
            self.release_in_background()

    def refreshed(self, deadline: float) -> None:
        if not self.is_lost:
            self.deadline = min(deadline, self._latest_end)
            self._set_timer()

    def lose(self, why: str = "is lost") -> None:
        if not self.is_over:
            self._stop_timer()
            self.lost.set()
            logger.warning("%s %s", self.id, why)
            self.keeper._ended(self)

    def _set_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(self.deadline - time.monotonic(), self.lose)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class Permit(Unique):
    """A permit. It is held until it is released or lost. Its lease is refreshed in the background.

    `lost` is an event that is set at the deadline of the lease at the latest, even if Redis is unreachable.
    As a context manager, the permit is released at the end, and PermitLost is raised if it was lost. If Redis
    does not confirm the release in time, or the client can no longer send it, a warning is logged.

    Keep the object while you hold the permit. If the object is collected before the permit was released, the client
    logs a warning, gives a ResourceWarning, and releases the permit in the background.
    """

    def __init__(self, held: Held, weight: int) -> None:
        self._held = held
        self.id = held.id
        self.weight = weight
        self.fencing_token = held.token
        self.lost = held.lost

    def __del__(self) -> None:
        held = self._held
        if held.is_over or held.keeper._is_forked():
            return
        with contextlib.suppress(RuntimeError):  # the loop has ended
            held.keeper._drop(held)
        text = f"{self.id} of semaphore {held.keeper.name} was dropped and never released"
        warnings.warn(text, ResourceWarning, source=self)

    @property
    def is_lost(self) -> bool:
        return self._held.is_lost

    @property
    def expires_in(self) -> float:
        """The seconds until the permit is lost unless its lease is refreshed. 0 if it was released or lost."""
        return 0.0 if self._held.is_over else max(0.0, self._held.deadline - time.monotonic())

    def check(self) -> None:
        """Raises PermitLost if the permit was lost."""
        if self.is_lost:
            raise PermitLost(self.id)

    async def release(self) -> bool:
        """Releases the permit. Returns True if Redis confirms it, or False if the permit was already lost.

        Raises Unavailable if Redis does not confirm it within two response timeouts. Then, or if the call is
        canceled, the release continues in the background until Redis confirms it or the lease has expired.
        Another call waits again.

        Raises Closed in a process that was forked from the holder, because the parent process still holds it. Raises
        Closed or Unavailable if nothing more is sent, because the client was closed or the program ends, and the
        permit may still be held. Then it is free when its lease expires.
        """
        self._check_process()
        if not self._held.keeper._is_here():
            return await self._held.keeper._released_elsewhere(self._held)
        return await self._held.give_back()

    async def __aenter__(self) -> Permit:
        return self

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if self._is_forked():
            return  # the parent process ends its own copy of the block
        try:
            was_held = await self.release()
        except (Closed, Unavailable) as reason:
            logger.warning("%s", reason)  # the work of the block is done
            return
        if not was_held and error is None:
            raise PermitLost(self.id)

    def _is_forked(self) -> bool:
        return self._held.keeper._is_forked()

    def _check_process(self) -> None:
        if self._is_forked():
            raise Closed(f"{self.id} is a permit of the parent process, which still holds it")

    def _release_in_background(self) -> None:
        self._held.release_in_background()
