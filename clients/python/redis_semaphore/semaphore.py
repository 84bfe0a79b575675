"""The semaphore: its public calls, and the worker that talks to the server for them.

One worker for each semaphore makes all its calls, one after the other. So requests are sent in the
order in which they were made, what gathers during a call goes out with the next one, and a release
never overtakes an acquire. It lives while there is something to do.
"""

import asyncio
import logging
import math
import time

import redis

from . import checks, scripts
from .errors import AcquireTimeout, Closed, SemaphoreError, TooHeavy, Unavailable
from .listener import RETRY_PAUSE
from .permit import Permit
from .requests import Claim, Release

logger = logging.getLogger("redis_semaphore")

_BATCH = 1000  # requests in a call, at most
_FIRST_WEIGHT = 7  # which argument of a call that is
_WAKE_DELAY = 0.020  # for each request ahead: only the first few of many should call `wake`
_QUEUED, _GRANTED, _ALL_GRANTED, _ALL_HELD = 2, 1, 3, 3


class Semaphore:
    """Made by Client.semaphore()."""

    def __init__(self, client, name, limit, lease):
        self.name = checks.name(name)
        self.limit = checks.whole("a limit", limit, 0)
        self._lease_ms = round(checks.seconds("a lease", lease) * 1000)
        self.lease = self._lease_ms / 1000  # as the server counts it
        self._client = client
        self._keys = scripts.keys(client.prefix, name)
        self._waits = {}  # id: Claim
        self._permits = {}  # id: Permit that is held
        self._releases = {}  # id: Release that is not confirmed
        self._is_declared = False
        self._renew_at = self._ask_at = self._wake_at = math.inf
        self._error = None  # why the last pass failed
        self._failing_since = math.inf
        self._worker = None
        self._poked = None

    async def acquire(self, timeout=None, weight=1):
        """Waits in the queue for a permit. Raises AcquireTimeout after `timeout` seconds."""
        return await self._claim("wait", timeout, weight)

    async def try_acquire(self, weight=1):
        """A permit, or None when there is no room or anybody waits."""
        return await self._claim("try", None, weight)

    async def _claim(self, place, timeout, weight):
        checks.whole("a weight", weight, 1)
        if timeout is not None:
            checks.seconds("a timeout", timeout, 0, math.inf)
        if not self._client.is_connected:
            raise Closed("the client is not connected")
        claim = Claim(weight, place)
        self._waits[claim.id] = claim
        self._poke()
        try:
            await asyncio.wait([claim.outcome], timeout=timeout)
        except BaseException:
            self._give_up(claim)
            raise
        if not claim.outcome.done():
            self._give_up(claim)
            raise AcquireTimeout(f"no permit of {self.name} within {timeout} s") from self._error
        return claim.outcome.result()

    # What the rest of the package tells the semaphore.

    def _released(self, permit):
        """A future: whether it was given back in time."""
        del self._permits[permit.id]
        return self._give_back(permit.id, time.monotonic() + permit.expires_in)

    def _lost(self, permit):
        """A renewal of unknown outcome may still reach the server, so it is given back."""
        if self._permits.pop(permit.id, None):
            self._give_back(permit.id, time.monotonic() + self.lease)

    def _handed_off(self, id, token, end):
        """A message says that this request left the queue."""
        claim = self._waits.get(id)
        if claim is None or (token and end - self._lease_ms < claim.queued_at):
            return  # given up; or about a permit of the past, older than the answer "queued"
        if token == 0 or time.monotonic() - claim.asked_at >= self.lease / 2:
            # Asking tells why it left the queue, or starts the lease anew, or queues it again.
            claim.is_due = True
            self._poke()
        else:
            self._grant(claim, token, claim.asked_at)

    def _ask_now(self):
        """A message may have been missed."""
        for claim in self._waits.values():
            claim.is_due = True
        self._poke()

    def _close(self):
        for claim in list(self._waits.values()):
            self._refuse(claim, Closed("the client was closed"))
        for permit in list(self._permits.values()):
            permit._take_back()
        return self._worker

    # The worker.

    def _poke(self):
        if self._worker is None:
            self._poked = asyncio.Event()
            self._worker = asyncio.create_task(self._work())
            self._client._active.add(self)
        else:
            self._poked.set()

    async def _work(self):
        try:
            while True:
                self._poked.clear()
                await self._pass()
                if self._error is not None:
                    await asyncio.sleep(RETRY_PAUSE)
                    continue
                pause = self._next_due() - time.monotonic()
                if pause == math.inf:
                    return
                if pause > 0:
                    try:
                        await asyncio.wait_for(self._poked.wait(), pause)
                    except asyncio.TimeoutError:
                        pass  # something is due
        except Exception as error:  # a defect: nobody may wait for ever for a worker that is gone
            for claim in list(self._waits.values()):
                self._refuse(claim, error)
            raise
        finally:
            for release in self._releases.values():  # the client closes while Redis is away
                release.outcome.set_result(False)
            self._releases.clear()
            self._worker = None
            self._client._active.discard(self)

    def _next_due(self):
        if self._releases or any(claim.is_due for claim in self._waits.values()):
            return 0
        # "At once" is for whoever else waits, too.
        wake_at = self._wake_at if self._waits or self._wake_at <= time.monotonic() else math.inf
        ask_at = self._ask_at if self._waits else math.inf
        renew_at = self._renew_at if self._permits else math.inf
        return min(wake_at, ask_at, renew_at)

    async def _pass(self):
        """Makes each call that is due."""
        failed = None
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
            self._give_up_after_outage(failed)

    async def _call(self, script, *arguments):
        return await self._client._call(script, self._keys, arguments)

    # Renewing

    async def _renew(self):
        if time.monotonic() < self._renew_at:
            return
        sent = time.monotonic()
        for permits in _batches(list(self._permits.values())):
            arguments = (word for permit in permits for word in (permit.id, self._lease_ms))
            _, wake_in, *ends = await self._call("refresh", *arguments)
            self._plan_wake(wake_in)
            for permit, end in zip(permits, ends):
                if permit.id not in self._permits:
                    continue  # released or lost meanwhile
                if end == 0:
                    permit._lose()
                else:
                    permit._renewed(sent + self.lease)
        self._renew_at = sent + self.lease / 3 if self._permits else math.inf

    # Releasing

    def _give_back(self, id, until):
        release = self._releases[id] = Release(until)
        self._poke()
        return release.outcome

    def _give_up(self, claim):
        """The caller wants no permit any more. The server may have queued it, or granted it."""
        if claim.outcome.done() and claim.outcome.exception() is not None:
            return  # refused, and given back already
        self._waits.pop(claim.id, None)
        permit = self._permits.get(claim.id)
        if permit is not None:
            permit._give_back()
        elif claim.asked_at is not None:
            self._give_back(claim.id, time.monotonic() + self._client.liveness + self.lease)

    async def _send_releases(self):
        now = time.monotonic()
        for id in [id for id, release in self._releases.items() if now >= release.until]:
            self._releases.pop(id).outcome.set_result(False)
        for batch in _batches(list(self._releases.items())):
            for _, release in batch:
                release.tries += 1
            _, wake_in, *statuses = await self._call("release", "return", *(id for id, _ in batch))
            self._plan_wake(wake_in)
            if statuses == [_ALL_HELD]:
                statuses = [1] * len(batch)
            for (id, release), status in zip(batch, statuses):
                del self._releases[id]
                # Unknown to the server: an earlier try did it, if there was one.
                release.outcome.set_result(status != 0 or release.tries > 1)

    # Asking for permits

    async def _ask(self):
        now = time.monotonic()
        if now >= self._ask_at:
            self._ask_at = now + self._client.ask_interval
            for claim in self._waits.values():
                claim.is_due = True
        due = [claim for claim in self._waits.values() if claim.is_due]
        if due and not self._is_declared:
            await self._declare(due)
        due.sort(key=lambda claim: claim.ticket)
        tries = [claim for claim in due if claim.place == "try"]
        for batch in _batches(tries if self._client._deaf_because else due):
            await self._ask_for(batch)
        if len(tries) < len(due) and self._client._deaf_because:
            # Subscribe first, then queue: nobody is granted a permit to whom no message would come.
            raise redis.ConnectionError(f"not subscribed: {self._client._deaf_because}")

    async def _declare(self, claims):
        try:
            reply = await self._call("limit", "declare", self.limit)
        except (redis.RedisError, SemaphoreError, OSError) as error:
            self._not_answered(claims, error)
            raise
        before = reply[5]
        if before not in (-1, self.limit):
            logger.warning("semaphore %s had a limit of %s, now %s", self.name, before, self.limit)
        self._is_declared = True

    async def _ask_for(self, claims):
        claims = [claim for claim in claims if claim.id in self._waits]
        if not claims:
            return
        sent = time.monotonic()
        arguments = ["declared", self.limit, self._client._channel, "publish", self._client._liveness_ms]
        for claim in claims:
            claim.is_due = False
            claim.asked_at = claim.asked_at or sent
            arguments += (claim.id, claim.weight, self._lease_ms, claim.place)
        try:
            server_time, wake_in, *answers = await self._call("acquire", *arguments)
        except TooHeavy as error:
            # The whole call was refused: the others are asked for without it.
            self._refuse(claims[(error.argument - _FIRST_WEIGHT) // 4], error)
            for claim in claims:
                claim.is_due = True
            return
        except (redis.RedisError, SemaphoreError, OSError) as error:
            self._not_answered(claims, error)
            raise
        if answers[0] == _ALL_GRANTED:
            _, token, end = answers
            answers = [word for i in range(len(claims)) for word in (_GRANTED, token + i, end)]
        for i, claim in enumerate(claims):
            self._answered(claim, sent, server_time, *answers[3 * i : 3 * i + 3])
        self._plan_wake(wake_in)

    def _answered(self, claim, sent, server_time, status, number, last):
        if claim.id not in self._waits:
            return  # given up: its release comes next; or the message of a later grant was faster
        claim.answered_at = time.monotonic()
        if status == _GRANTED:
            if claim.answered_at < sent + self.lease:
                self._grant(claim, number, sent)
            else:
                claim.is_due = True
        elif status == _QUEUED:
            claim.place, claim.ahead = number, last - 1
            claim.asked_at, claim.queued_at = sent, server_time
            self._ask_at = min(self._ask_at, sent + self._client.ask_interval)
        else:
            del self._waits[claim.id]
            claim.outcome.set_result(None)

    def _not_answered(self, claims, error):
        for claim in claims:
            claim.is_due = True
            # One that is in the queue outlasts what the server refuses for a while, as when its
            # memory is full.
            if claim.ticket == math.inf and not scripts.is_passing(error):
                self._refuse(claim, error)

    def _grant(self, claim, token, since):
        del self._waits[claim.id]
        deadline = since + self.lease
        permit = Permit(self, claim, token, deadline, self._client._new_event())
        self._permits[claim.id] = permit
        self._renew_at = min(self._renew_at, time.monotonic() + self.lease / 3)
        self._poke()
        claim.outcome.set_result(permit)

    def _refuse(self, claim, error):
        if self._waits.pop(claim.id, None) is None:
            return  # given up meanwhile
        claim.outcome.set_exception(error)
        if claim.asked_at is not None:
            self._give_back(claim.id, time.monotonic() + self._client.liveness + self.lease)

    def _give_up_after_outage(self, error):
        for claim in list(self._waits.values()):
            # This process may have been stopped, so a long silence alone says nothing.
            outage = time.monotonic() - max(claim.answered_at, self._failing_since)
            if claim.is_due and outage > self._client.patience:
                self._refuse(claim, Unavailable(f"all calls have failed for {outage:.1f} s: {error}"))

    # Serving the queue when a lease ends

    def _plan_wake(self, wake_in):
        """Heeds the `wake_in` of a reply: ms, 0 for at once, -1 for no need."""
        if wake_in < 0:
            return
        waits = [claim.ahead for claim in self._waits.values() if claim.ticket != math.inf]
        delay = min(waits, default=0) * _WAKE_DELAY
        # Where that is long, asking again serves the queue before.
        if delay < self._client.ask_interval:
            self._wake_at = time.monotonic() + wake_in / 1000 + delay

    async def _wake(self):
        if time.monotonic() >= self._wake_at:
            self._wake_at = math.inf
            _, wake_in, _ = await self._call("wake")
            self._plan_wake(wake_in)


def _batches(requests):
    return (requests[i : i + _BATCH] for i in range(0, len(requests), _BATCH))
