"""The client: connections, the channel for wake-ups, and what its semaphores share."""

import asyncio
import logging
import secrets
import weakref

import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from . import checks, message, scripts
from .errors import MissingPermission
from .listener import Listener
from .semaphore import Semaphore

logger = logging.getLogger("redis_semaphore")


class Client:
    """Connections to a Redis server, shared by any number of semaphores. Times are in seconds.

    `prefix` begins all keys and channels. `liveness` is for how long the server keeps the place of
    a process that it does not hear of. `response_timeout` is how long to wait for an answer before
    the call is repeated; keep it below a third of the leases. `patience` is for how long calls are
    repeated before an acquire fails. All others go to redis.asyncio.Redis.from_url.
    """

    def __init__(self, url, *, prefix="sem", liveness=15.0, response_timeout=2.0, patience=30.0, **options):
        checks.seconds("response_timeout", response_timeout)
        # Calls are repeated here: renewals until the deadline, waits until they are given up.
        options = {"retry": Retry(NoBackoff(), 0), "socket_connect_timeout": response_timeout, **options}
        options["decode_responses"] = False  # messages of strangers need not be text
        self._connections = redis.asyncio.Redis.from_url(url, socket_timeout=response_timeout, **options)
        self.prefix = checks.prefix(prefix)
        self.liveness = checks.seconds("liveness", liveness)
        self.ask_interval = liveness / 3
        self.patience = checks.seconds("patience", patience, 0)
        self.is_connected = False
        self._liveness_ms = round(liveness * 1000)
        self._response_timeout = response_timeout
        self._channel = f"{prefix}:wake:{secrets.token_hex(16)}"
        self._listener = None
        self._semaphores = weakref.WeakValueDictionary()  # by name
        self._active = set()  # those with something to do
        self._new_event = asyncio.Event

    def semaphore(self, name, limit, lease=30.0):
        """The semaphore of that name, with at most `limit` held at once.

        A client has one of each name, so that its requests keep their order.
        """
        semaphore = self._semaphores.get(name)
        if semaphore is None:
            semaphore = self._semaphores[name] = Semaphore(self, name, limit, lease)
        elif (limit, round(lease * 1000)) != (semaphore.limit, semaphore._lease_ms):
            raise ValueError(f"{name} has limit {semaphore.limit} and lease {semaphore.lease} already")
        return semaphore

    async def connect(self):
        """Finds out whether the server is there and permits what is needed."""
        if self.is_connected:
            return
        self._listener = Listener(
            self._connections, self._channel, self.ask_interval, self._received, self._subscribed
        )
        try:
            await self._listener.start()
            keys = scripts.keys(self.prefix, f"probe-{secrets.token_hex(16)}")
            refused = await self._call("probe", keys, [self._channel, "publish"])
            if refused:
                raise MissingPermission(" ".join(_text(word) for word in refused))
        except BaseException:
            await self._disconnect()
            raise
        self.is_connected = True

    async def close(self):
        """Ends all waits, gives back all permits, and disconnects."""
        if not self.is_connected:
            return
        self.is_connected = False
        workers = [semaphore._close() for semaphore in list(self._active)]
        try:
            if workers:
                await asyncio.wait(workers, timeout=2 * self._response_timeout)
        finally:  # also when it is cancelled
            late = [worker for worker in workers if not worker.done()]
            for worker in late:
                worker.cancel()
            if late:
                await asyncio.wait(late)
                logger.warning("closed, though Redis did not take everything back: leases end by themselves")
            await self._disconnect()

    async def __aenter__(self):
        await self.connect()
        return self

    async def __aexit__(self, kind, error, traceback):
        await self.close()

    async def _disconnect(self):
        await self._listener.stop()
        await self._connections.connection_pool.disconnect()

    async def _call(self, script, keys, arguments):
        return await scripts.call(self._connections, script, keys, arguments)

    async def _heed(self, error):
        if "READONLY" in str(error) or isinstance(error, redis.exceptions.ReadOnlyError):
            # The primary has become a replica; its address may lead to another server by now.
            await self._connections.connection_pool.disconnect()

    @property
    def _deaf_because(self):
        return self._listener.error

    def _received(self, data):
        told = message.parse(data)
        if told is None:
            logger.warning("ignored a message that no script sends")
            return
        name, grants = told
        semaphore = self._semaphores.get(name)
        if semaphore is not None:
            for id, token, end in grants:
                semaphore._handed_off(id, token, end)

    def _subscribed(self):
        for semaphore in list(self._active):
            semaphore._ask_now()


def _text(word):
    return word.decode("utf-8", "replace") if isinstance(word, bytes) else word
