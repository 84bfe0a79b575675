"""The connection for grant messages."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Callable, Optional

import redis
import redis.asyncio

from . import addresses
from .link import Link, end
from .pauses import Pauses

logger = logging.getLogger("redis_lease_semaphore")


class Listener:
    """Keeps one channel subscribed, and subscribes again after each failure."""

    def __init__(
        self,
        connections: redis.asyncio.Redis,
        link: Link,
        channel: str,
        ping_interval: float,
        on_message: Callable[[bytes], None],
        on_subscribed: Callable[[], None],
    ) -> None:
        self._connections, self._link = connections, link
        self._channel = channel
        self._ping_interval = ping_interval
        self._on_message = on_message
        self._on_subscribed = on_subscribed
        self._task: Optional[asyncio.Task[None]] = None
        self._pauses = Pauses()
        self._has_tried = asyncio.Event()
        self.error: Optional[Exception] = None  # why it is not subscribed

    async def start(self) -> None:
        """Returns when the subscription is confirmed."""
        self._task = asyncio.create_task(self._run(await self._subscribe()))
        self._has_tried.set()

    def start_in_background(self) -> None:
        self.error = redis.ConnectionError("the first attempt to subscribe has not ended yet")
        self._task = asyncio.create_task(self._run(None))

    async def has_tried(self) -> None:
        """Returns when the first attempt to subscribe has succeeded or failed."""
        await self._has_tried.wait()

    async def stop(self) -> None:
        if self._task is not None:
            await end([self._task])

    async def _run(self, pubsub: Any) -> None:
        while True:
            try:
                if pubsub is not None:
                    try:
                        await self._read(pubsub)
                    except (Exception, asyncio.CancelledError):  # not after GeneratorExit, because the loop is closed
                        await _close(pubsub)
                        raise
            except Exception as error:  # after a defect, too, it must subscribe again
                is_cut = isinstance(error, (redis.RedisError, OSError))
                error = addresses.named(error, self._connections, "reading") if is_cut else error
                level = logging.INFO if is_cut else logging.ERROR
                text = "the subscription has failed, connecting again: %s"
                logger.log(level, text, error, exc_info=not is_cut)
                self.error = error
            pubsub = await self._subscribe_again()
            self.error = None
            self._on_subscribed()

    async def _subscribe_again(self) -> Any:
        """Retries until it is subscribed.

        The first pause is very short, because a grant may be missed during the pause.
        """
        while True:
            await asyncio.sleep(self._pauses.next())
            try:
                return await self._subscribe()
            except Exception as error:
                self.error = error
            finally:
                self._has_tried.set()

    async def _subscribe(self) -> Any:
        pubsub: Any = self._connections.pubsub()
        try:
            await pubsub.subscribe(self._channel)
            message = await pubsub.get_message(timeout=self._ping_interval)
            if message is None:
                raise redis.TimeoutError("no reply to SUBSCRIBE: the server is silent, or closed the connection")
            if message["type"] != "subscribe":
                raise addresses.not_redis("it does not confirm SUBSCRIBE")
        except BaseException as error:
            await _close(pubsub)
            if isinstance(error, Exception):
                raise addresses.named(error, self._connections, "connecting")
            raise
        return pubsub

    async def _read(self, pubsub: Any) -> None:
        pinged = False
        while True:
            try:
                message = await pubsub.get_message(timeout=self._ping_interval)
            except redis.ResponseError:
                if not pinged:
                    raise
                pinged = False  # a server that cannot save rejects even a ping, but still sends messages
                continue
            if message is not None:
                pinged = False
                self._pauses.reset()  # a subscription alone resets nothing: each connection may soon fail
                if message["type"] == "message":
                    self._on_message(message["data"])
                elif message["type"] == "subscribe":  # redis-py has reconnected itself
                    self._on_subscribed()
            elif pinged:  # a dead connection looks like a quiet connection
                raise redis.ConnectionError("no reply to PING")
            else:
                await pubsub.ping("alive")
                pinged = True
                # After a failover, calls may use the new primary, and this connection may use the old primary.
                _, listeners = await self._link.call("PUBSUB", "NUMSUB", self._channel)
                if listeners == 0:
                    raise redis.ConnectionError("the server of the calls has no subscription of this client")


async def _close(pubsub: Any) -> None:
    # redis-py renamed it in 5.0.1, and warns about the old name.
    await (pubsub.aclose() if hasattr(pubsub, "aclose") else pubsub.close())
