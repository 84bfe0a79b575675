"""The connection on which wake-up messages come."""

import asyncio
import logging

import redis

logger = logging.getLogger("redis_semaphore")

RETRY_PAUSE = 0.2


class Listener:
    """Keeps one channel subscribed, whatever happens to the connection."""

    def __init__(self, connections, channel, ping_interval, on_message, on_subscribed):
        self._connections = connections
        self._channel = channel
        self._ping_interval = ping_interval
        self._on_message = on_message
        self._on_subscribed = on_subscribed
        self._task = None
        self.error = None  # why it is not subscribed

    async def start(self):
        """Returns when the subscription is confirmed."""
        self._task = asyncio.create_task(self._run(await self._subscribe()))

    async def stop(self):
        # While it subscribes, redis-py may take a cancellation for a timeout of its own.
        while self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task], timeout=0.1)

    async def _run(self, pubsub):
        try:
            while True:
                try:
                    if pubsub is None:
                        pubsub = await self._subscribe()
                        self.error = None
                        self._on_subscribed()
                    await self._read(pubsub)
                except (redis.RedisError, OSError) as error:
                    logger.info("the connection for wake-ups is gone, connecting anew: %s", error)
                    self.error = error
                    if pubsub is not None:
                        await _close(pubsub)
                        pubsub = None
                    await asyncio.sleep(RETRY_PAUSE)
        finally:
            if pubsub is not None:
                await _close(pubsub)

    async def _subscribe(self):
        pubsub = self._connections.pubsub()
        try:
            await pubsub.subscribe(self._channel)
            message = await pubsub.get_message(timeout=self._ping_interval)
            if message is None or message["type"] != "subscribe":
                raise redis.ConnectionError(f"SUBSCRIBE was not confirmed: {message}")
        except BaseException:
            await _close(pubsub)
            raise
        return pubsub

    async def _read(self, pubsub):
        pinged = False
        while True:
            message = await pubsub.get_message(timeout=self._ping_interval)
            if message is not None:
                pinged = False
                if message["type"] == "message":
                    self._on_message(message["data"])
                elif message["type"] == "subscribe":  # redis-py connected anew by itself
                    self._on_subscribed()
            elif pinged:  # one that went silent looks like a quiet one
                raise redis.ConnectionError("no answer to PING")
            else:
                await pubsub.ping("alive")
                pinged = True


async def _close(pubsub):
    # redis-py renamed it in 5.0.1, and warns of the old name.
    await (pubsub.aclose() if hasattr(pubsub, "aclose") else pubsub.close())
