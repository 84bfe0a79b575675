"""The semaphore: its public calls, and the worker that talks to the server for them.

One worker for each semaphore makes all its calls, one after the other. So requests are sent in the
order in which they were made, what gathers during a call goes out with the next one, and a release
never overtakes an acquire. It lives while there is something to do.
"""

from __future__ import annotations

import asyncio
import collections.abc
import logging
import math
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generator, Iterator, Optional, Sequence, TypeVar

import redis

from . import checks, scripts, words
from .claims import Claim
from .errors import AcquireTimeout, Closed, SemaphoreError, TooHeavy, Unavailable
from .pauses import Pauses
from .permit import Permit
from .release import Release

if TYPE_CHECKING:
    from .semaphores import Semaphores

logger = logging.getLogger("redis_lease_semaphore")

_BATCH = 1000  # requests in a call, at most
_FIRST_WORD = 4  # which argument of `acquire` that is
_MOST_LATE_GRANTS = 5  # for one acquire: a few may come of a process that was busy for once
_WAKE_DELAY = 0.020  # for each request ahead: only the first few of many should call `wake`
_QUEUED, _GRANTED, _ALL_GRANTED, _ALL_HELD = 2, 1, 3, 3
_T = TypeVar("_T")


class Acquire(collections.abc.Coroutine[Any, Any, Permit]):
    """What acquire() returns: to be awaited, or to be used with `async with` as it is."""

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


class Semaphore:
    """Made by Semaphores.semaphore()."""

    def __init__(self, client: Semaphores, name: str, limit: int, lease: float) -> None:
        self.name = checks.name(name)
        self.limit = checks.whole("a limit", limit, 0)
        self._lease_ms = round(checks.seconds("a lease", lease) * 1000)
        self.lease = self._lease_ms / 1000  # as the server counts it: in whole ms, and so
        self._lasts = self.lease - 0.001  # for that long at least
        self._client = client
        self._keys = scripts.keys(client.prefix, name)
        self._waits: dict[str, Claim] = {}  # all by their words
        self._permits: dict[str, Permit] = {}  # held
        self._releases: dict[str, Release] = {}  # not confirmed
        self._is_declared = False
        self._renew_at = self._ask_at = self._wake_at = math.inf
        self._error: Optional[Exception] = None  # why the last pass failed
        self._failing_since = math.inf
        self._worker: Optional[asyncio.Task[None]] = None
        self._rest: Optional[asyncio.Future[None]] = None  # while there is nothing to do

    def acquire(self, timeout: Optional[float] = None, weight: int = 1) -> Acquire:
        """Waits in the queue for a permit. Raises AcquireTimeout after `timeout` seconds; 0 is a try.

        Raises Unavailable where calls fail for `outage_tolerance`; for a try, for two response timeouts.
        """
        return Acquire(self._acquire(timeout, weight))

    async def _acquire(self, timeout: Optional[float], weight: int) -> Permit:
        permit = await self._claim(timeout, weight)
        if permit is None:
            raise AcquireTimeout(f"no permit of {self.name} was free")
        return permit

    async def try_acquire(self, weight: int = 1) -> Optional[Permit]:
        """A permit, or None when none is free or anybody waits. Else as acquire() with a timeout of 0."""
        return await self._claim(0, weight)

    async def _claim(self, timeout: Optional[float], weight: int) -> Optional[Permit]:
        checks.whole("a weight", weight, 1)
        if timeout is not None:
            checks.seconds("a timeout", timeout, 0, math.inf)
        if not self._client.is_connected or self._client._is_forked():
            raise Closed("the client is not connected in this process")
        place = "try" if timeout == 0 else "wait"
        claim = Claim(words.new(self._client._client, weight, self._lease_ms), weight, place)
        self._waits[claim.word] = claim
        self._poke()
        timer = None
        if timeout is not None and timeout != math.inf:
            patience = timeout or self._client._patience
            timer = asyncio.get_running_loop().call_later(patience, self._time_out, claim, timeout)
        try:
            return await claim.outcome
        except asyncio.CancelledError:
            self._give_up(claim)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _time_out(self, claim: Claim, timeout: float) -> None:
        error: SemaphoreError
        if timeout == 0:
            error = self._unavailable("a try was not answered")
        else:
            error = AcquireTimeout(f"no permit of {self.name} within {timeout} s")
            error.__cause__ = self._error
        self._refuse(claim, error)

    def _unavailable(self, what: str) -> Unavailable:
        error = Unavailable(f"semaphore {self.name}: {what}: {self._error or 'no answer yet'}")
        error.__cause__ = self._error
        return error

    # What the rest of the package tells the semaphore.

    def _is_forked(self) -> bool:
        return self._client._is_forked()

    def _released(self, permit: Permit) -> Release:
        del self._permits[permit.id]
        return self._give_back(permit.id, time.monotonic() + self.lease)  # for the reason below

    async def _confirmed(self, release: Release) -> bool:
        """Whether it was given back in time."""
        await asyncio.wait([release.outcome], timeout=self._client._patience)
        if release.was_held is None:
            raise self._unavailable("a release is not confirmed")
        return release.was_held

    def _lost(self, permit: Permit) -> None:
        """A renewal of unknown outcome may hold it for another lease, so it is given back."""
        if self._permits.pop(permit.id, None):
            self._give_back(permit.id, time.monotonic() + self.lease)

    def _knows(self, word: str) -> bool:
        return word in self._waits or word in self._permits or word in self._releases

    def _handed_off(self, word: str, token: int, end: int) -> None:
        """A message says that this request left the queue."""
        claim, release = self._waits.get(word), self._releases.get(word)
        if release is not None:
            release.is_late = token > 0  # the grant may be newer than the call that is under way
        if claim is None or claim.outcome.done() or (token and end - self._lease_ms < claim.queued_at):
            return  # held already, or given up; or about a permit of the past, older than the answer "queued"
        asked_at = claim.asked_at
        if token == 0 or asked_at is None or time.monotonic() - asked_at >= self.lease / 2:
            # Asking tells why it left the queue, or starts the lease anew, or queues it again.
            claim.is_due = True
            self._poke()
        else:
            self._grant(claim, token, asked_at)

    def _ask_now(self) -> None:
        """A message may have been missed."""
        for claim in self._waits.values():
            claim.is_due = True
        self._poke()

    def _close(self) -> Optional[asyncio.Task[None]]:
        for claim in list(self._waits.values()):
            self._refuse(claim, Closed("the client was closed"))
        self._poke()
        return self._worker

    # The worker.

    def _poke(self) -> None:
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
            self._client._active.add(self)
        elif self._rest is not None and not self._rest.done():
            self._rest.set_result(None)

    async def _work(self) -> None:
        pauses = Pauses()
        try:
            while True:
                await self._pass()
                if self._error is not None:
                    await asyncio.sleep(pauses.next())
                    continue
                pauses.reset()
                pause = self._next_due() - time.monotonic()
                if pause == math.inf:
                    return
                if pause > 0:
                    await self._rest_for(pause)
        except asyncio.CancelledError:
            # A loop that ends cancels all tasks: what they release is still sent, if Redis is there.
            while self._releases and not self._client._is_closed:
                await self._pass()
                if self._error is not None:
                    break
            raise
        except Exception as error:  # a defect: nobody may wait for ever for a worker that is gone
            for claim in list(self._waits.values()):
                self._refuse(claim, error)
            raise
        finally:
            for release in self._releases.values():  # the client or the loop closes while Redis is away
                release.outcome.set_result(None)
            self._releases.clear()
            self._worker = None
            await self._client._has_ended(self)

    async def _rest_for(self, pause: float) -> None:
        """Unless it is poked before."""
        loop = asyncio.get_running_loop()
        self._rest = loop.create_future()
        timer = loop.call_later(pause, self._poke)
        try:
            await self._rest
        finally:
            timer.cancel()
            self._rest = None

    def _next_due(self) -> float:
        if self._releases or self._due():
            return 0
        # "At once" is for whoever else waits, too.
        wake_at = self._wake_at if self._waits or self._wake_at <= time.monotonic() else math.inf
        ask_at = self._ask_at if self._waits else math.inf
        renew_at = self._renew_at if self._permits and self._client.is_connected else math.inf
        return min(wake_at, ask_at, renew_at)

    async def _pass(self) -> None:
        """Makes each call that is due."""
        failed: Optional[Exception] = None
        for step in (self._renew, self._send_releases, self._ask, self._wake):
            try:
                await step()
            except (redis.RedisError, SemaphoreError, OSError) as error:
                if self._error is None and failed is None:
                    logger.warning("semaphore %s: a call failed: %s", self.name, error)
                    self._failing_since = time.monotonic()
                failed = error
                await self._client._heed(error)
                if scripts.is_passing(error):
                    break
        self._error = failed
        if failed is not None:
            self._give_up_after_outage()

    async def _call(self, script: str, *arguments: scripts.Argument) -> Any:
        call = asyncio.ensure_future(self._client._call(script, self._keys, arguments))
        # One that has no answer must not use up the time in which permits can be renewed.
        timeout = self.lease / 6 if self._permits else None
        try:
            await asyncio.wait([call], timeout=timeout)
            if not call.done():
                raise redis.TimeoutError(f"no answer to {script} within {timeout} s")
            return call.result()
        finally:
            call.cancel()

    # Renewing

    async def _renew(self) -> None:
        if time.monotonic() < self._renew_at or not self._client.is_connected:
            return
        sent = time.monotonic()
        for permits in _batches(list(self._permits.values())):
            arguments: list[scripts.Argument] = []
            for permit in permits:
                arguments += (permit.id, self._lease_ms)
            _, wake_in, *ends = await self._call("refresh", *arguments)
            self._plan_wake(wake_in)
            for permit, end in zip(permits, ends):
                if permit.id not in self._permits:
                    continue  # released or lost meanwhile
                if end == 0:
                    permit._lose()
                else:
                    permit._renewed(sent + self._lasts)
        # One that a message granted meanwhile may be due before the others.
        first_end = min((permit._deadline for permit in self._permits.values()), default=math.inf)
        self._renew_at = first_end - self.lease * 2 / 3

    # Releasing

    def _give_back(self, word: str, until: float) -> Release:
        release = self._releases[word] = Release(until)
        self._poke()
        return release

    def _give_up(self, claim: Claim) -> None:
        """The caller wants no permit any more. The server may have queued it, or granted it."""
        outcome = claim.outcome
        if outcome.done() and not outcome.cancelled() and outcome.exception() is not None:
            return  # refused, and given back already
        self._waits.pop(claim.word, None)
        permit = self._permits.get(claim.word)
        if permit is not None:
            permit._release_in_background()
        elif claim.asked_at is not None:
            self._give_back(claim.word, time.monotonic() + self._client.liveness + self.lease)

    async def _send_releases(self) -> None:
        now = time.monotonic()
        for word in [word for word, release in self._releases.items() if now >= release.until]:
            self._releases.pop(word).outcome.set_result(None)
        for batch in _batches(list(self._releases.items())):
            for _, release in batch:
                release.is_late = False
            try:
                _, wake_in, *statuses = await self._call("release", "return", *(word for word, _ in batch))
            except BaseException as error:
                was_refused = isinstance(error, (redis.ResponseError, SemaphoreError))  # nothing was done
                for _, release in batch:
                    release.is_repeated |= not was_refused
                raise
            self._plan_wake(wake_in)
            if statuses == [_ALL_HELD]:
                statuses = [1] * len(batch)
            for (word, release), status in zip(batch, statuses):
                if release.is_late and status == 0:
                    continue  # once more
                del self._releases[word]
                release.outcome.set_result(status != 0 or release.is_repeated)

    # Asking for permits

    def _due(self) -> list[Claim]:
        return [claim for claim in self._waits.values() if claim.is_due and not claim.outcome.done()]

    async def _ask(self) -> None:
        now = time.monotonic()
        if now >= self._ask_at:
            self._ask_at = now + self._client.ask_interval
            for claim in self._waits.values():
                claim.is_due = True
        due = self._due()
        due.sort(key=lambda claim: claim.ticket)
        tries = [claim for claim in due if claim.place == "try"]
        for batch in _batches(tries if self._client._deaf_because else due):
            await self._ask_for(batch)
        if len(tries) < len(due) and self._client._deaf_because:
            # Subscribe first, then queue: nobody is granted a permit to whom no message would come.
            raise redis.ConnectionError(f"not subscribed: {self._client._deaf_because}")

    async def _ask_for(self, claims: Sequence[Claim]) -> None:
        claims = [claim for claim in claims if not claim.outcome.done()]
        if not claims:
            return
        sent = time.monotonic()
        kind = "declared" if self._is_declared else "declare"
        arguments: list[scripts.Argument] = [kind, self.limit, self._client._liveness_ms]
        for claim in claims:
            claim.is_due = False
            claim.asked_at = claim.asked_at or sent
            arguments += (claim.word, claim.place)
        try:
            server_time, wake_in, limit, *answers = await self._call("acquire", *arguments)
        except TooHeavy as error:
            # The whole call was refused: the others are asked for without it.
            self._refuse(claims[(error.argument - _FIRST_WORD) // 2], error)
            for claim in claims:
                claim.is_due = True
            return
        except (redis.RedisError, SemaphoreError, OSError) as error:
            self._not_answered(claims, error)
            raise
        if not self._is_declared and limit not in (-1, self.limit):
            logger.warning("semaphore %s had a limit of %s, now %s", self.name, limit, self.limit)
        self._is_declared = True
        if answers[0] == _ALL_GRANTED:
            _, token, end = answers
            answers = [number for i in range(len(claims)) for number in (_GRANTED, token + i, end)]
        for i, claim in enumerate(claims):
            if wake_in == 0 and answers[3 * i] == 0:
                claim.is_due = True  # refused, as the script stopped at a bound: again after `wake`
            else:
                self._answered(claim, sent, server_time, *answers[3 * i : 3 * i + 3])
        self._plan_wake(wake_in)

    def _answered(
        self, claim: Claim, sent: float, server_time: int, status: int, number: int, last: int
    ) -> None:
        if claim.outcome.done():
            return  # given up: its release comes next; or the message of a later grant was faster
        claim.answered_at = time.monotonic()
        if status == _GRANTED:
            if claim.answered_at < sent + self.lease / 2:
                self._grant(claim, number, sent)
            else:
                self._granted_late(claim)
        elif status == _QUEUED:
            claim.place, claim.ahead = number, last - 1
            claim.asked_at, claim.queued_at = sent, server_time
            self._ask_at = min(self._ask_at, sent + self._client.ask_interval)
        else:
            del self._waits[claim.word]
            claim.outcome.set_result(None)

    def _granted_late(self, claim: Claim) -> None:
        """Asking again starts the lease anew. Where all answers take that long, it would never end."""
        claim.late_grants += 1
        if claim.late_grants < _MOST_LATE_GRANTS:
            claim.is_due = True
            return
        what = f"half of the lease of {self.lease} s had passed each time before the answer came"
        self._refuse(claim, SemaphoreError(f"semaphore {self.name}: {what}: use a longer lease"))

    def _not_answered(self, claims: Sequence[Claim], error: Exception) -> None:
        for claim in claims:
            claim.is_due = True
            # One that is in the queue outlasts what the server refuses for a while, as when its
            # memory is full.
            if claim.ticket == math.inf and not scripts.is_passing(error):
                self._refuse(claim, error)

    def _grant(self, claim: Claim, token: int, since: float) -> None:
        del self._waits[claim.word]
        lost = self._client._new_event()
        permit = Permit(self, claim.word, claim.weight, token, since + self._lasts, lost)
        self._permits[claim.word] = permit
        renew_at = since + self.lease / 3
        if renew_at < self._renew_at:
            self._renew_at = renew_at
            self._poke()
        claim.outcome.set_result(permit)

    def _refuse(self, claim: Claim, error: Exception) -> None:
        if claim.outcome.done():
            return  # given up meanwhile
        del self._waits[claim.word]
        claim.outcome.set_exception(error)
        if claim.asked_at is not None:
            self._give_back(claim.word, time.monotonic() + self._client.liveness + self.lease)

    def _give_up_after_outage(self) -> None:
        for claim in list(self._waits.values()):
            # This process may have been stopped, so a long silence alone says nothing.
            outage = time.monotonic() - max(claim.answered_at, self._failing_since)
            if claim.is_due and outage > self._client.outage_tolerance:
                self._refuse(claim, self._unavailable(f"all calls have failed for {outage:.1f} s"))
        if not self._waits and time.monotonic() - self._failing_since > self._client.outage_tolerance:
            self._wake_at = math.inf  # who waits elsewhere asks again

    # Serving the queue when a lease ends

    def _plan_wake(self, wake_in: int) -> None:
        """Heeds the `wake_in` of a reply: ms, 0 for at once, -1 for no need."""
        if wake_in < 0:
            return
        waits = [claim.ahead for claim in self._waits.values() if claim.ticket != math.inf]
        delay = min(waits, default=0) * _WAKE_DELAY if wake_in else 0
        # Where that is long, asking again serves the queue before.
        if delay < self._client.ask_interval:
            self._wake_at = time.monotonic() + wake_in / 1000 + delay

    async def _wake(self) -> None:
        if time.monotonic() >= self._wake_at:
            _, wake_in, _ = await self._call("wake")
            self._wake_at = math.inf  # where it fails, it stays due
            self._plan_wake(wake_in)


def _batches(requests: Sequence[_T]) -> Iterator[Sequence[_T]]:
    return (requests[i : i + _BATCH] for i in range(0, len(requests), _BATCH))
