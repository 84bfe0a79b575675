"""The worker of a semaphore: it makes all calls of the semaphore, one after another.

So requests and releases are sent in the order of the program's calls. Those that come during a call share the next
call, until a release follows a request, or a request follows a release.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import Any, Iterator, Optional, Sequence, TypeVar

import redis

from . import errors, scripts
from .claims import Claim
from .errors import SemaphoreError, TooHeavy, Unavailable
from .pauses import Pauses
from .semaphore import Semaphore

logger = logging.getLogger("redis_lease_semaphore")

_BATCH = 1000  # the most requests in a call
_FIRST_WORD = 4  # the index of the first ID in the arguments of `acquire`
_MOST_LATE_GRANTS = 5  # per acquire; a busy process may cause a few
_QUEUED, _GRANTED, _ALL_GRANTED, _ALL_HELD = 2, 1, 3, 3
_T = TypeVar("_T")


class Worker:
    """The worker. It lives while its semaphore has work."""

    def __init__(self, semaphore: Semaphore) -> None:
        self._semaphore, self._client = semaphore, semaphore._client
        self._waits, self._permits, self._releases = semaphore._waits, semaphore._permits, semaphore._releases

    async def work(self) -> None:
        pauses = Pauses()
        try:
            await self._client._has_tried()
            while True:
                await self._pass()
                if self._semaphore._error is not None:
                    await asyncio.sleep(pauses.next())
                    continue
                pauses.reset()
                pause = self._next_due() - time.monotonic()
                if pause == math.inf:
                    return
                if pause > 0:
                    await self._rest_for(pause)
        except asyncio.CancelledError:
            # A loop that ends cancels all tasks. Their releases are still sent if Redis is available. The connection
            # is a task, too, so let it end first. If a call fails nevertheless, the client's last step sends it again.
            await asyncio.sleep(0)
            while self._releases:
                await self._pass()
                if self._semaphore._error is not None:
                    break
            raise
        except Exception as error:  # a defect: no request may wait forever for a worker that has ended
            for claim in list(self._waits.values()):
                self._semaphore._refuse(claim, error)
            raise
        finally:
            self._semaphore._worker = None
            await self._client._has_ended(self._semaphore)

    async def _rest_for(self, pause: float) -> None:
        """Rests for this time, or until it is poked."""
        loop = asyncio.get_running_loop()
        self._semaphore._rest = loop.create_future()
        timer = loop.call_later(pause, self._semaphore._poke)
        try:
            await self._semaphore._rest
        finally:
            timer.cancel()
            self._semaphore._rest = None

    def _next_due(self) -> float:
        if self._releases or self._due():
            return 0
        semaphore = self._semaphore
        # An immediate wake also serves waiters of other clients.
        wake_at = semaphore._wake_at if self._waits or semaphore._wake_at <= time.monotonic() else math.inf
        ask_at = semaphore._ask_at if self._waits else math.inf
        refresh_at = semaphore._refresh_at if self._permits and self._client.is_connected else math.inf
        return min(wake_at, ask_at, refresh_at)

    async def _pass(self) -> None:
        """Makes all calls that are due."""
        failed: Optional[SemaphoreError] = None
        for step in (self._refresh, self._send_releases, self._ask, self._wake):
            try:
                await step()
            except SemaphoreError as error:
                if self._semaphore._error is None and failed is None:
                    logger.warning("semaphore %s: a call failed: %s", self._semaphore.name, error)
                    self._semaphore._failing_since = time.monotonic()
                failed = error
                if isinstance(error, Unavailable):
                    break
        self._semaphore._error = failed
        if failed is not None:
            self._give_up_after_outage()

    def _give_up_after_outage(self) -> None:
        semaphore = self._semaphore
        for claim in list(self._waits.values()):
            # This process may have been stopped, so a long silence alone is no outage.
            outage = time.monotonic() - max(claim.answered_at, semaphore._failing_since)
            if claim.is_due and outage > self._client.outage_tolerance:
                semaphore._refuse(claim, semaphore._unavailable(f"all calls have failed for {outage:.1f} s"))
        if not self._waits and time.monotonic() - semaphore._failing_since > self._client.outage_tolerance:
            semaphore._wake_at = math.inf  # the heartbeats of other clients serve their requests

    async def _call(self, script: str, *arguments: scripts.Argument) -> Any:
        # A call without a reply must not use up the time in which permits can be refreshed.
        timeout = self._semaphore.lease / 6 if self._permits else None
        return await self._client._call(script, self._semaphore._keys, arguments, timeout)

    async def _refresh(self) -> None:
        if time.monotonic() < self._semaphore._refresh_at or not self._client.is_connected:
            return
        sent = time.monotonic()
        for permits in _batches([permit for permit in self._permits.values() if permit.can_last_longer]):
            arguments: list[scripts.Argument] = []
            leases = [permit.next_lease_ms(sent, self._semaphore._lease_ms) for permit in permits]
            for permit, lease_ms in zip(permits, leases):
                arguments += (permit.id, lease_ms)
            _, wake_in, *ends = await self._call("refresh", *arguments)
            self._plan_wake(wake_in)
            for permit, lease_ms, end in zip(permits, leases, ends):
                if permit.id not in self._permits:
                    continue  # released or lost in the meantime
                if end == 0:
                    permit.lose()
                else:
                    permit.refreshed(sent + lease_ms / 1000 - 0.001)
        # A permit that a message has granted in the meantime may be due before the others.
        ends_of_leases = [permit.deadline for permit in self._permits.values() if permit.can_last_longer]
        self._semaphore._refresh_at = min(ends_of_leases, default=math.inf) - self._semaphore.lease * 2 / 3

    async def _send_releases(self) -> None:
        now = time.monotonic()
        for request_id in [request_id for request_id, release in self._releases.items() if now >= release.until]:
            self._releases.pop(request_id).outcome.set_result(None)
        self._semaphore._collect()
        first_request = min((claim.order for claim in self._sendable() if claim.is_new), default=math.inf)
        earlier = [(request_id, release) for request_id, release in self._releases.items()
                   if release.order < first_request]
        for batch in _batches(sorted(earlier, key=lambda item: item[1].order)):
            for _, release in batch:
                release.is_new = release.is_late = False
            try:
                _, wake_in, *statuses = await self._call("release", "return", *(request_id for request_id, _ in batch))
            except BaseException as error:
                was_refused = isinstance(error.__cause__, redis.ResponseError)  # the call had no effect
                for _, release in batch:
                    release.is_repeated |= not was_refused
                raise
            self._plan_wake(wake_in)
            if statuses == [_ALL_HELD]:
                statuses = [1] * len(batch)
            for (request_id, release), status in zip(batch, statuses):
                if release.is_late and status == 0:
                    release.is_new = True
                    continue  # the release is sent again
                del self._releases[request_id]
                release.outcome.set_result(status != 0 or release.is_repeated)

    def _due(self) -> list[Claim]:
        return [claim for claim in self._waits.values() if claim.is_due and not claim.outcome.done()]

    def _sendable(self) -> list[Claim]:
        # The client subscribes before its requests are queued, so that it receives each grant message.
        return [claim for claim in self._due() if claim.wait_mode == "try" or not self._client._deaf_because]

    async def _ask(self) -> None:
        now = time.monotonic()
        if now >= self._semaphore._ask_at:
            self._semaphore._ask_at = now + self._client.ask_interval
            for claim in self._waits.values():
                claim.is_due = True
        self._semaphore._collect()
        first_release = min((release.order for release in self._releases.values() if release.is_new), default=math.inf)
        earlier = [claim for claim in self._sendable() if not claim.is_new or claim.order < first_release]
        for batch in _batches(sorted(earlier, key=lambda claim: claim.ticket)):
            await self._ask_for(batch)
        why = self._client._deaf_because
        if why and any(claim.wait_mode != "try" for claim in self._due()):
            raise Unavailable(f"not subscribed: {why}") from why

    async def _ask_for(self, claims: Sequence[Claim]) -> None:
        claims = [claim for claim in claims if not claim.outcome.done()]
        if not claims:
            return
        semaphore, sent = self._semaphore, time.monotonic()
        limit_mode = "declare_if_unset" if semaphore._is_declared else "declare"
        arguments: list[scripts.Argument] = [limit_mode, semaphore.limit, round(self._client.heartbeat_timeout * 1000)]
        for claim in claims:
            claim.is_due = False
            claim.asked_at = claim.asked_at or sent
            arguments += (claim.id, claim.wait_mode)
        try:
            server_time, wake_in, limit, *answers = await self._call("acquire", *arguments)
        except TooHeavy as error:
            # The server rejected the whole call, so the other requests are sent again without the heavy request.
            semaphore._refuse(claims[(error.argument - _FIRST_WORD) // 2], errors.of_semaphore(semaphore.name, error))
            for claim in claims:
                claim.is_due = True
            return
        except SemaphoreError as error:
            self._not_answered(claims, error)
            raise
        if not semaphore._is_declared and limit not in (-1, semaphore.limit):
            logger.warning(
                "semaphore %s: the declared limit was %s, and is %s now", semaphore.name, limit, semaphore.limit
            )
        semaphore._is_declared = True
        if answers[0] == _ALL_GRANTED:
            _, token, end = answers
            answers = [number for i in range(len(claims)) for number in (_GRANTED, token + i, end)]
        for i, claim in enumerate(claims):
            claim.is_new = False
            if wake_in == 0 and answers[3 * i] == 0:
                claim.is_due = True  # the script has more work: it is sent again after `wake`
            else:
                self._answered(claim, sent, server_time, *answers[3 * i : 3 * i + 2])
        self._plan_wake(wake_in, is_asked=_QUEUED in answers[::3])

    def _answered(self, claim: Claim, sent: float, server_time: int, status: int, number: int) -> None:
        if claim.outcome.done():
            return  # canceled: its release comes next; or a grant message was faster
        claim.answered_at = time.monotonic()
        if status == _GRANTED:
            if claim.answered_at < sent + self._semaphore.lease / 2:
                self._semaphore._grant(claim, number, sent)
            else:
                self._granted_late(claim)
        elif status == _QUEUED:
            claim.wait_mode = number
            claim.asked_at, claim.queued_at = sent, server_time
            self._semaphore._ask_at = min(self._semaphore._ask_at, sent + self._client.ask_interval)
        else:
            del self._waits[claim.id]
            claim.outcome.set_result(None)

    def _granted_late(self, claim: Claim) -> None:
        """Sends the request again, which restarts the lease. If all replies are late, this ends after a few times."""
        claim.late_grants += 1
        if claim.late_grants < _MOST_LATE_GRANTS:
            claim.is_due = True
            return
        semaphore = self._semaphore
        what = f"half of the lease of {semaphore.lease} s was over each time before the reply arrived"
        semaphore._refuse(claim, SemaphoreError(f"semaphore {semaphore.name}: {what}: use a longer lease"))

    def _not_answered(self, claims: Sequence[Claim], error: SemaphoreError) -> None:
        for claim in claims:
            claim.is_due = True
            claim.may_be_known |= claim.late_grants > 0 or not errors.has_changed_nothing(error)
            # A queued request survives temporary rejections, for example while the server's memory is full.
            if claim.ticket == math.inf and not isinstance(error, Unavailable):
                if not claim.may_be_known:
                    claim.asked_at = None  # there is nothing to release
                self._semaphore._refuse(claim, errors.of_semaphore(self._semaphore.name, error))

    def _plan_wake(self, wake_in: int, is_asked: bool = False) -> None:
        """Plans `wake` by the `wake_in` of a reply: ms; 0: immediately; -1: not by this client.

        The server chooses the client that calls `wake`. A reply to a waiting client (`is_asked`) replaces the
        earlier plan. In other replies, only 0 counts.
        """
        now = time.monotonic()
        if wake_in == 0:
            self._semaphore._wake_at = now
        elif is_asked and self._semaphore._wake_at > now:  # a due call is still made
            self._semaphore._wake_at = now + wake_in / 1000 if wake_in > 0 else math.inf

    async def _wake(self) -> None:
        """Serves the queue when a lease may have expired."""
        if time.monotonic() >= self._semaphore._wake_at:
            _, wake_in, _ = await self._call("wake")
            self._semaphore._wake_at = math.inf  # after a failure, it stays due
            self._plan_wake(wake_in, is_asked=bool(self._waits))


def _batches(requests: Sequence[_T]) -> Iterator[Sequence[_T]]:
    return (requests[i : i + _BATCH] for i in range(0, len(requests), _BATCH))
