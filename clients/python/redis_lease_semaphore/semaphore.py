"""A semaphore: its public calls, and their requests, permits and releases.

Its worker, which the client starts, makes the calls to the server.
"""

from __future__ import annotations

import asyncio
import collections
import math
import time
from typing import Any, Callable, Optional, Protocol, Sequence, Union

from . import checks, ids, order, scripts
from .acquire import Acquire
from .claims import Claim
from .errors import AcquireTimeout, Closed, SemaphoreError, Unavailable
from .group import Group
from .permit import Held, Permit
from .release import Release
from .unique import Unique


class Client(Protocol):
    """The part of a client that its semaphores and their workers use."""

    prefix: str
    heartbeat_timeout: float
    ask_interval: float
    outage_tolerance: float
    is_connected: bool
    _is_closed: bool
    _home: Optional[asyncio.AbstractEventLoop]
    _patience: float
    _client: str
    _new_event: Callable[[], asyncio.Event]

    @property
    def _deaf_because(self) -> Optional[Exception]: ...
    def _is_forked(self) -> bool: ...
    def _is_here(self) -> bool: ...
    def _here(self) -> Client: ...
    def _twin(self, semaphore: Semaphore) -> Semaphore: ...
    async def _has_tried(self) -> None: ...
    def _start_worker(self, semaphore: Semaphore) -> asyncio.Task[None]: ...
    async def _has_ended(self, semaphore: Semaphore) -> None: ...
    async def _call(
        self, script: str, keys: scripts.Keys, arguments: Sequence[scripts.Argument], timeout: Optional[float] = None
    ) -> Any: ...


class Semaphore(Unique):
    """A semaphore. SemaphoreClient.semaphore() creates it."""

    def __init__(
        self,
        client: Client,
        name: str,
        limit: int,
        lease: float,
        max_hold: Optional[float] = None,
        group_share: int = 1,
        group_cap: Optional[int] = None,
    ) -> None:
        self.name = checks.name(name)
        self.limit = checks.whole("a limit", limit, 0)
        self.max_hold = None if max_hold is None else checks.seconds("max_hold", max_hold, 0.01)
        self.group_share = checks.share("group_share", group_share)
        self.group_cap = checks.cap("group_cap", group_cap)
        self._lease_ms = round(min(checks.seconds("a lease", lease), self.max_hold or math.inf) * 1000)
        self.lease = self._lease_ms / 1000
        self._lasts = self.lease - 0.001  # a lease may be this short, because the server counts in whole ms
        self._client = client
        self._keys = scripts.Keys(client.prefix, self.name)
        self._waits: dict[str, Claim] = {}  # all requests by ID
        self._permits: dict[str, Held] = {}
        self._releases: dict[str, Release] = {}  # unconfirmed releases
        self._drops: collections.deque[Held] = collections.deque()  # permits that the program has just dropped
        # The state of its workers. Each worker lives only while there is work.
        self._is_declared = False
        self._refresh_at = self._ask_at = self._wake_at = math.inf
        self._error: Optional[SemaphoreError] = None  # why the last pass failed
        self._failing_since = math.inf
        self._worker: Optional[asyncio.Task[None]] = None
        self._rest: Optional[asyncio.Future[None]] = None  # while there is no work

    def _settings(self) -> tuple[int, float, Optional[float], int, Optional[int]]:
        return self.limit, self.lease, self.max_hold, self.group_share, self.group_cap

    def acquire(
        self, timeout: Optional[float] = None, weight: int = 1, group: Union[None, str, Group] = None
    ) -> Acquire:
        """Waits in the queue for a permit. Raises AcquireTimeout after `timeout` seconds.

        `group` is the name of a group, or a Group with its own share and cap. Default: no group.

        With a timeout of 0 or less, the request does not wait. So the timeout may be the remaining time until a
        deadline. Raises Unavailable if calls fail for `outage_tolerance`, or, if the request does not wait, for two
        response timeouts.
        """
        return Acquire(self._acquire(timeout, weight, group))

    async def _acquire(
        self, timeout: Optional[float], weight: int, group: Union[None, str, Group] = None
    ) -> Permit:
        permit = await self._claim(timeout, weight, group)
        if permit is None:
            raise AcquireTimeout(f"semaphore {self.name}: no permit is free")
        return permit

    async def try_acquire(self, weight: int = 1, group: Union[None, str, Group] = None) -> Optional[Permit]:
        """Returns a permit, or None if none is free or other requests wait. Raises Unavailable like acquire(0)."""
        return await self._claim(0, weight, group)

    async def _claim(
        self, timeout: Optional[float], weight: int, group: Union[None, str, Group]
    ) -> Optional[Permit]:
        weight = checks.whole("a weight", weight, 1)
        timeout = checks.timeout(timeout)
        if group is not None:
            group = checks.group(group, weight, self.group_share, self.group_cap)
        here = self._client._here()
        if here is not self._client:
            return await here._twin(self)._claim(timeout, weight, group)
        if group is not None:
            self._keys.has_groups = True
        wait_mode = "try" if timeout == 0 else "wait"
        claim = Claim(ids.new(self._client._client, weight, self._lease_ms, group), wait_mode)
        timer = None
        if timeout != math.inf:
            patience = timeout or self._client._patience
            timer = asyncio.get_running_loop().call_later(patience, self._time_out, claim, timeout)
        self._waits[claim.id] = claim
        self._poke()
        try:
            held = await claim.outcome
            # Created here, because the loop keeps the outcome for longer than the caller may keep the permit.
            return None if held is None else Permit(held, weight)
        except asyncio.CancelledError:
            self._give_up(claim)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _time_out(self, claim: Claim, timeout: float) -> None:
        error: SemaphoreError
        if timeout == 0:
            error = self._unavailable(f"try_acquire got no result within {self._client._patience:g} s")
        else:
            why = f", and the last call failed: {self._error}" if self._error else ""
            error = AcquireTimeout(f"semaphore {self.name}: no permit within {timeout:g} s{why}")
            error.__cause__ = self._error and self._error.__cause__
        self._refuse(claim, error)

    def _unavailable(self, what: str) -> Unavailable:
        error = Unavailable(f"semaphore {self.name}: {what}: {self._error or 'no reply'}")
        error.__cause__ = self._error and self._error.__cause__
        return error

    # The other modules of the package call the methods below.

    def _is_forked(self) -> bool:
        return self._client._is_forked()

    def _is_here(self) -> bool:
        return self._client._is_here()

    def _ended(self, held: Held) -> Release:
        """Releases a permit, even a lost one, because a refresh without a reply may hold it for another lease."""
        del self._permits[held.id]
        return self._give_back(held.id, time.monotonic() + self.lease, held.dropped_at)

    def _drop(self, held: Held) -> None:
        """Called in any thread. The loop does the rest, before it sends any later call of the program."""
        held.dropped_at = order.next()
        self._drops.append(held)
        held.loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        """Releases what was dropped or canceled just now."""
        while self._drops:
            self._drops.popleft().dropped()
        # The tasks of these requests may not have run yet.
        for claim in [claim for claim in self._waits.values() if claim.outcome.cancelled()]:
            self._give_up(claim)

    async def _released_elsewhere(self, held: Held) -> bool:
        """Releases a permit from another event loop than that of its acquire."""
        home = self._client._home
        if home is not None and home.is_running():
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(held.give_back(), home))
        if held.release is not None and held.release.was_held is not None:
            return held.release.was_held
        if held.is_lost:
            return False
        try:
            twin = self._client._here()._twin(self)
        except Closed as reason:
            return held.outcome_when_closed(reason)
        self._permits.pop(held.id, None)
        held.release = twin._give_back(held.id, time.monotonic() + self.lease)
        return await twin._confirmed(held.release)

    async def _confirmed(self, release: Release) -> bool:
        """Waits for the confirmation. Returns whether the permit was held until then."""
        await asyncio.wait([release.outcome], timeout=self._client._patience)
        if release.was_held is None:
            raise self._unavailable("a release is not confirmed")
        return release.was_held

    def _knows(self, request_id: str) -> bool:
        return request_id in self._waits or request_id in self._permits or request_id in self._releases

    def _handed_off(self, request_id: str, token: int, end: int) -> None:
        """Handles a grant message for a request."""
        claim, release = self._waits.get(request_id), self._releases.get(request_id)
        if release is not None:
            release.is_late = token > 0  # the grant may be newer than the current call
        if claim is None or claim.outcome.done() or (token and end - self._lease_ms < claim.queued_at):
            return  # held already, or canceled; or the message is older than the reply "queued", and stale
        asked_at = claim.asked_at
        if token == 0 or asked_at is None or time.monotonic() - asked_at >= self.lease / 2:
            # Another acquire returns why the request was removed, restarts the lease, or queues the request again.
            claim.is_due = True
            self._poke()
        else:
            self._grant(claim, token, asked_at)

    def _ask_now(self) -> None:
        """Sends all requests again, because a message may have been missed."""
        for claim in self._waits.values():
            claim.is_due = True
        self._poke()

    def _close(self) -> asyncio.Task[None]:
        for claim in list(self._waits.values()):
            self._refuse(claim, Closed("the client was closed"))
        self._poke()
        assert self._worker is not None
        return self._worker

    def _forget_releases(self) -> bool:
        """Ends the waits for confirmations. Returns whether there were any unconfirmed releases."""
        releases = list(self._releases.values())
        self._releases.clear()
        for release in releases:
            release.outcome.set_result(None)
        return bool(releases)

    def _poke(self) -> None:
        if self._worker is None or self._worker.done():  # a task that is canceled before it begins cleans up nothing
            self._worker = self._client._start_worker(self)
        elif self._rest is not None and not self._rest.done():
            self._rest.set_result(None)

    def _give_back(self, request_id: str, until: float, place: Optional[int] = None) -> Release:
        """Releases an ID, by default after all earlier calls of the program."""
        release = self._releases[request_id] = Release(until, order.next() if place is None else place)
        self._poke()
        return release

    def _give_up(self, claim: Claim) -> None:
        """Cancels a request. The server may have queued it, or granted it a permit."""
        permit = self._permits.get(claim.id)
        if permit is not None:
            permit.release_in_background()
        elif self._waits.pop(claim.id, None) is not None:
            self._withdraw(claim)

    def _withdraw(self, claim: Claim) -> None:
        """Releases the ID of a request that has ended. It has the place of the request, so it blocks no later call."""
        if claim.asked_at is not None:
            self._give_back(claim.id, time.monotonic() + self._client.heartbeat_timeout + self.lease, claim.order)

    def _grant(self, claim: Claim, token: int, since: float) -> None:
        del self._waits[claim.id]
        lost, latest_end = self._client._new_event(), since + (self.max_hold or math.inf)
        held = Held(self, claim.id, token, since + self._lasts, latest_end, lost)
        self._permits[claim.id] = held
        refresh_at = since + self.lease / 3
        if refresh_at < self._refresh_at and held.can_last_longer:
            self._refresh_at = refresh_at
            self._poke()
        claim.outcome.set_result(held)

    def _refuse(self, claim: Claim, error: Exception) -> None:
        if claim.outcome.done():
            return  # canceled in the meantime
        del self._waits[claim.id]
        claim.outcome.set_exception(error)
        self._withdraw(claim)
