"""The client: connections, the channel for wake-ups, and what its semaphores share."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
import weakref
from types import TracebackType
from typing import Any, Callable, Optional, Sequence

import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from . import checks, message, scripts, words
from .errors import Closed, MissingPermission
from .listener import Listener
from .semaphore import Semaphore
from .worker import Worker

logger = logging.getLogger("redis_lease_semaphore")


class Semaphores:
    """Connections to a Redis server, shared by any number of semaphores. Times are in seconds.

    `prefix` begins all keys and channels. `liveness` is for how long the server keeps the places of
    a process that it does not hear of. `response_timeout` is how long to wait for an answer before
    the call is repeated; while permits are held, a sixth of their lease if that is shorter.
    `outage_tolerance` is for how long calls are repeated before an acquire fails. All others go to
    redis.asyncio.Redis.from_url.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "sem",
        liveness: float = 15.0,
        response_timeout: float = 2.0,
        outage_tolerance: float = 30.0,
        **options: Any,
    ) -> None:
        if not isinstance(url, str):
            raise TypeError(f"a URL is needed, not {type(url).__name__}")
        checks.seconds("response_timeout", response_timeout)
        # Calls are repeated here: renewals until the deadline, waits until they are given up.
        options = {"retry": Retry(NoBackoff(), 0), "socket_connect_timeout": response_timeout, **options}
        self._connections: redis.asyncio.Redis = redis.asyncio.Redis.from_url(url, **options)
        self._connections.connection_pool.connection_kwargs.update(  # whatever the URL says
            decode_responses=False,  # messages of strangers need not be text
            socket_timeout=response_timeout,
        )
        self.prefix = checks.prefix(prefix)
        self.liveness = checks.seconds("liveness", liveness)
        self.ask_interval = liveness / 3
        self.outage_tolerance = checks.seconds("outage_tolerance", outage_tolerance, 0)
        self.is_connected = False
        self._is_closed = False
        self._patience = 2 * response_timeout  # of a release, a try and a close
        self._changing = asyncio.Lock()  # of whoever connects or closes
        self._client = ""  # its name, and the process that it was connected in
        self._pid: Optional[int] = None
        self._listener: Optional[Listener] = None
        self._semaphores: weakref.WeakValueDictionary[str, Semaphore] = weakref.WeakValueDictionary()
        # Of names not in use here, to give back what nobody here wants: a message may have a lot of it.
        self._givers: weakref.WeakValueDictionary[str, Semaphore] = weakref.WeakValueDictionary()
        self._active: set[Semaphore] = set()  # those with something to do
        self._new_event: Callable[[], asyncio.Event] = asyncio.Event
        self._on_idle: Callable[[], None] = lambda: None

    def semaphore(self, name: str, limit: int, lease: float = 30.0) -> Semaphore:
        """The semaphore of that name, with at most `limit` held at once.

        A client has one of each name, so that its requests keep their order. Keep the object: one
        that is made anew for each acquire declares its limit each time.
        """
        semaphore = self._semaphores.get(name)
        if semaphore is None:
            semaphore = self._semaphores[name] = Semaphore(self, name, limit, lease)
        elif (limit, round(lease * 1000)) != (semaphore.limit, semaphore._lease_ms):
            raise ValueError(f"{name} has limit {semaphore.limit} and lease {semaphore.lease} already")
        return semaphore

    async def connect(self) -> None:
        """Finds out whether the server is there and permits what is needed."""
        if self._is_forked():
            raise Closed("the client is that of the parent process")
        async with self._changing:
            if self._is_closed:
                raise Closed("the client was closed")
            if not self.is_connected:
                await self._connect()

    async def _connect(self) -> None:
        # Not before: processes that were forked meanwhile are clients of their own.
        self._client, self._pid = words.new_client(), os.getpid()
        channel = scripts.channel(self.prefix, self._client)
        self._listener = Listener(
            self._connections, channel, self.ask_interval, self._received, self._subscribed
        )
        try:
            await self._listener.start()
            refused = await self._call("probe", f"probe-{secrets.token_hex(16)}", ["P", self._client])
            if refused:
                raise MissingPermission(" ".join(_text(word) for word in refused))
        except BaseException:
            await self._disconnect()
            raise
        self.is_connected = True

    async def close(self) -> None:
        """Ends all waits, and disconnects when Redis has taken back what was given up.

        Permits that are still held are not taken away. They are renewed no more, and are lost at the
        end of their leases unless they are released before, which still works.
        """
        if self._is_forked():
            return
        async with self._changing:
            if self.is_connected:
                await self._close()

    async def _close(self) -> None:
        self.is_connected, self._is_closed = False, True
        workers = [worker for worker in (semaphore._close() for semaphore in list(self._active)) if worker]
        try:
            if workers:
                await asyncio.wait(workers, timeout=self._patience)
        finally:  # also when it is cancelled
            late = [worker for worker in workers if not worker.done()]
            for worker in late:
                worker.cancel()
            if late:
                await asyncio.wait(late)
                logger.warning("closed, though Redis did not take everything back: leases end by themselves")
            await self._disconnect()

    async def __aenter__(self) -> Semaphores:
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self.close()

    def _is_forked(self) -> bool:
        """The connections of its parent, and their loop and thread, are not a forked process's own."""
        return self._pid not in (None, os.getpid())

    @property
    def _is_in_use(self) -> bool:
        return bool(self._active) or any(semaphore._permits for semaphore in self._semaphores.values())

    async def _disconnect(self) -> None:
        if self._listener is not None:
            await self._listener.stop()
        await self._connections.connection_pool.disconnect()

    def _start_worker(self, semaphore: Semaphore) -> asyncio.Task[None]:
        self._active.add(semaphore)
        return asyncio.create_task(Worker(semaphore).work())

    async def _has_ended(self, semaphore: Semaphore) -> None:
        """The semaphore has nothing to do. After a close it may have connected once more."""
        self._active.discard(semaphore)
        if self._is_closed and not self._is_in_use:
            await self._connections.connection_pool.disconnect()
            self._on_idle()

    async def _call(self, script: str, name: str, arguments: Sequence[scripts.Argument]) -> Any:
        return await scripts.call(self._connections, script, scripts.keys(self.prefix, name), arguments)

    async def _heed(self, error: BaseException) -> None:
        if "READONLY" in str(error) or isinstance(error, redis.exceptions.ReadOnlyError):
            # The primary has become a replica; its address may lead to another server by now.
            await self._connections.connection_pool.disconnect()

    @property
    def _deaf_because(self) -> Optional[Exception]:
        return self._listener.error if self._listener is not None else None

    def _received(self, data: bytes) -> None:
        told = message.parse(data)
        if told is None:
            logger.warning("ignored a message that no script sends")
            return
        name, grants = told
        semaphore = self._semaphores.get(name)
        for word, token, end in grants:
            if semaphore is not None and semaphore._knows(word):
                semaphore._handed_off(word, token, end)
            elif token:
                self._give_back(name, word)

    def _give_back(self, name: str, word: str) -> None:
        """Nobody here wants that permit: a request has overtaken its release."""
        lease = words.lease_of(self._client, word)
        if lease is None:
            return
        semaphore = self._semaphores.get(name) or self._givers.get(name)
        if semaphore is None:
            try:
                # The one of that name is gone, and what it was like does not matter here.
                semaphore = self._givers[name] = Semaphore(self, name, 0, lease)
            except ValueError:
                return  # no script has sent that name
        semaphore._give_back(word, time.monotonic() + lease)

    def _subscribed(self) -> None:
        for semaphore in list(self._active):
            semaphore._ask_now()


def _text(word: Any) -> str:
    return word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word)
