"""The client: connections, the channel for grant messages, and the shared state of its semaphores.

Its connections belong to one event loop of one process. For another loop, such as that of a second
asyncio.run(), and in a forked process, it has a twin with the same settings.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
import weakref
from types import TracebackType
from typing import Any, AsyncGenerator, Awaitable, Callable, Optional, Sequence

import redis

from . import addresses, checks, errors, ids, message, scripts
from .errors import Closed
from .link import Link
from .listener import Listener
from .permit import Held
from .semaphore import Semaphore
from .unique import Unique
from .worker import Worker

logger = logging.getLogger("redis_lease_semaphore")


class SemaphoreClient(Unique):
    """Connections to a Redis server, shared by any number of semaphores. Times are in seconds.

    `prefix` begins all keys and channels. The server skips the requests of a client that sends no heartbeat
    for `heartbeat_timeout`. `response_timeout` is the timeout of one attempt; while permits are held, it is at
    most a sixth of their lease. `outage_tolerance` is how long a wait is retried without a reply. All other
    options go to redis.asyncio.Redis.from_url.

    A connected client also works in other event loops and in forked processes. It connects there with the
    first acquire.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "sem",
        heartbeat_timeout: float = 15.0,
        response_timeout: float = 2.0,
        outage_tolerance: float = 30.0,
        **options: Any,
    ) -> None:
        checks.seconds("response_timeout", response_timeout)
        self._server = (url, response_timeout, options)
        self.prefix = checks.prefix(prefix)
        self.heartbeat_timeout = checks.seconds("heartbeat_timeout", heartbeat_timeout)
        self.ask_interval = heartbeat_timeout / 3
        self.outage_tolerance = checks.seconds("outage_tolerance", outage_tolerance, 0)
        self._patience = 2 * response_timeout  # the call timeout, for a release, a try_acquire and a close
        self._new_event: Callable[[], asyncio.Event] = asyncio.Event
        self._on_idle: Callable[[], None] = lambda: None
        self._original = self
        self._twins: dict[asyncio.AbstractEventLoop, SemaphoreClient] = {}  # of the original
        self._was_closed = False  # the original, and all its twins
        self._begin()

    def _begin(self) -> None:
        """Initializes the state that belongs to one event loop."""
        self._connections = addresses.connections(*self._server)
        self._link = Link(self._connections, self._server[1])
        self.is_connected = False
        self._is_closed = False
        self._changing = asyncio.Lock()  # for connecting and closing
        self._client = ""  # the client ID; the loop and process in which it connected follow
        self._home: Optional[asyncio.AbstractEventLoop] = None
        self._pid: Optional[int] = None
        self._until_end: Optional[AsyncGenerator[None, None]] = None
        self._listener: Optional[Listener] = None
        self._semaphores: weakref.WeakValueDictionary[str, Semaphore] = weakref.WeakValueDictionary()
        self._of_original: weakref.WeakKeyDictionary[Semaphore, Semaphore] = weakref.WeakKeyDictionary()
        # Semaphores of names that are not in use here. They release permits without a waiter. A message may contain
        # many such permits.
        self._givers: weakref.WeakValueDictionary[str, Semaphore] = weakref.WeakValueDictionary()
        self._active: set[Semaphore] = set()  # semaphores with work to do

    def semaphore(
        self,
        name: str,
        limit: int,
        lease: float = 30.0,
        max_hold: Optional[float] = None,
        group_share: int = 1,
        group_cap: Optional[int] = None,
    ) -> Semaphore:
        """Returns the semaphore of this name, with a total weight of at most `limit`.

        `max_hold` is the longest time for which a permit is held, however often its lease is refreshed. Then
        the permit is lost. It limits the harm of work that hangs. It is at least 10 ms.

        `group_share` and `group_cap` are the share and the cap of each group that has none of its own. Default: 1, and
        no cap.

        A client has one semaphore of each name, so that its requests keep their order. Keep the object: a new
        object for each acquire declares its limit each time.
        """
        made = Semaphore(self, name, limit, lease, max_hold, group_share, group_cap)
        semaphore = self._semaphores.setdefault(name, made)
        if made._settings() != semaphore._settings():
            raise ValueError(
                f"{name} has limit {semaphore.limit}, lease {semaphore.lease} (at most max_hold), "
                f"max_hold {semaphore.max_hold}, group_share {semaphore.group_share} "
                f"and group_cap {semaphore.group_cap} already"
            )
        return semaphore

    async def connect(self) -> None:
        """Connects, and checks the server and the rights of the user."""
        client = self._find() or self._new_twin()
        async with client._changing:
            if self._original._was_closed:
                raise Closed("the client was closed")
            if not client.is_connected:
                await client._connect()

    async def _connect(self) -> None:
        self._settle()
        try:
            await self._look_at_server()
            self._listener = self._new_listener()
            await self._listener.start()
            # The user needs the rights to EVALSHA, and to EVAL, which is sent if the server has lost the scripts.
            for call in (scripts.load, scripts.call):
                keys = scripts.Keys(self.prefix, f"probe-{secrets.token_hex(16)}")
                refused = await self._call("probe", keys, ["P", self._client], call=call)
            if refused:
                command, why = (addresses.shown(addresses.text(part)) for part in refused[:2])
                refusal = redis.ResponseError(why.strip())
                raise errors.from_redis(refusal, addresses.of(self._connections), f"probe, {command}") from refusal
        except BaseException as error:
            await self._disconnect()
            self._home = self._pid = None
            self._original._twins.pop(asyncio.get_running_loop(), None)
            if isinstance(error, (redis.RedisError, OSError)):
                raise errors.from_redis(error, addresses.of(self._connections), "connecting") from error
            raise
        self._is_ready()

    def _connect_in_background(self) -> None:
        """Connects a twin. The original was connected, so the server and the rights are already checked."""
        self._settle()
        self._listener = self._new_listener()
        self._listener.start_in_background()
        self._is_ready()

    def _settle(self) -> None:
        # The ID is not created earlier, because processes that were forked before this call are separate clients.
        self._client, self._pid = ids.new_client(), os.getpid()
        self._home = asyncio.get_running_loop()

    def _new_listener(self) -> Listener:
        channel = scripts.channel(self.prefix, self._client)
        return Listener(
            self._connections, self._link, channel, self.ask_interval, self._received, self._subscribed
        )

    def _is_ready(self) -> None:
        self.is_connected = True
        # asyncio.run() closes asynchronous generators after it has canceled all tasks.
        self._until_end = self._ends_with_loop()
        try:
            self._until_end.__anext__().send(None)
        except StopIteration:
            pass

    async def _ends_with_loop(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self._loop_ends()

    async def _look_at_server(self) -> None:
        # Only pings of the listener need this right, so the probe does not find out that it is missing.
        calls = (self._link.call("HELLO"), self._link.call("PING"))
        told: Any
        pong: Any
        told, pong = await asyncio.gather(*calls, return_exceptions=True)
        if isinstance(pong, Exception) and errors.lacks_permission(pong):
            raise pong
        if isinstance(told, redis.ResponseError):
            return  # HELLO is renamed, or unknown to a proxy: the probe finds out more
        if isinstance(told, BaseException):
            raise told
        if not isinstance(told, (dict, list)):
            raise addresses.not_redis("it has no list for HELLO")
        pairs = list(told.items()) if isinstance(told, dict) else list(zip(told[::2], told[1::2]))
        mode = {addresses.text(key): addresses.text(value) for key, value in pairs}.get("mode")
        if mode in ("cluster", "sentinel"):
            raise errors.wrong_server(mode, addresses.of(self._connections))

    async def close(self) -> None:
        """Ends all waits, and disconnects when Redis has confirmed their releases, or after two response timeouts.

        Permits that are still held are no longer refreshed. Each is lost when its lease expires, or when the
        event loop or the program ends, unless it is released before.
        """
        original = self._original
        if original._home is None and not original._twins:
            return
        try:
            here = self._find()
        except Closed:  # in a forked process, which has no connection
            return
        elsewhere = []
        for client in [original, *original._twins.values()]:
            home = client._home
            if client is not here and home is not None and not client._is_forked() and home.is_running():
                original._was_closed = True
                elsewhere.append(asyncio.run_coroutine_threadsafe(client._close_here(), home))
        if here is None:
            original._was_closed = True
        else:
            await here._close_here()
        if elsewhere:
            await asyncio.wait(map(asyncio.wrap_future, elsewhere), timeout=2 * self._patience)

    async def _close_here(self) -> None:
        async with self._changing:
            if self.is_connected or self._active:
                self._original._was_closed = True
                await self._close()
                if self._until_end is not None and not self._is_in_use:
                    await self._until_end.aclose()

    async def _close(self) -> None:
        self.is_connected, self._is_closed = False, True
        workers = {semaphore._close(): semaphore for semaphore in list(self._active)}
        try:
            if workers:
                _, late = await asyncio.wait(workers, timeout=self._patience)
                is_unconfirmed = [workers[worker]._forget_releases() for worker in late]
                for worker in late:
                    worker.cancel()
                if late:
                    await asyncio.wait(late)
                if any(is_unconfirmed):
                    logger.warning(
                        "closed before Redis confirmed all releases: the remaining permits are free when their leases "
                        "expire"
                    )
        finally:  # if it is canceled, the releases continue in the background, until the loop ends at the latest
            await self._disconnect()

    async def _loop_ends(
        self,
        why: str = "is released, because the event loop ends",
        stays: Callable[[Held], bool] = lambda _: False,
    ) -> None:
        """Releases all permits, because no task runs that could release them."""
        if self._is_forked():
            return
        for semaphore in {*self._all_semaphores(), *self._active}:
            for held in list(semaphore._permits.values()):
                if not stays(held):
                    held.lose(why)
            if semaphore._releases:
                semaphore._poke()
        if self.is_connected or self._active:
            await self._close()

    async def __aenter__(self) -> SemaphoreClient:
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
        """Returns whether the connections, with their loop and thread, belong to the parent process."""
        return self._pid not in (None, os.getpid())

    def _is_here(self) -> bool:
        return self._home is asyncio.get_running_loop()

    def _find(self) -> Optional[SemaphoreClient]:
        """Returns the client of this event loop, or None if the loop has none yet."""
        original = self._original
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # for example, the loop was running when the process was forked
            raise Closed("no event loop of asyncio is running here: call asyncio.run()") from None
        client = original if original._home is None else self._of_loop(loop)
        if client is not None and client._is_forked():
            raise Closed("this event loop belongs to the parent process: call asyncio.run()")
        return client

    def _of_loop(self, loop: asyncio.AbstractEventLoop) -> Optional[SemaphoreClient]:
        original = self._original
        return original if original._home is loop else original._twins.get(loop)

    def _here(self) -> SemaphoreClient:
        """Returns the connected client of this event loop."""
        original = self._original
        client = self._find()
        if original._was_closed or (client is not None and client._is_closed):
            raise Closed("the client was closed")
        if client is None:
            client = self._new_twin()
            client._connect_in_background()
        if not client.is_connected:
            raise Closed(errors.NOT_CONNECTED)
        return client

    def _new_twin(self) -> SemaphoreClient:
        original = self._original
        for loop, client in list(original._twins.items()):
            if loop.is_closed() and not client._is_forked():
                original._twins.pop(loop, None)
        twin = SemaphoreClient.__new__(SemaphoreClient)
        vars(twin).update(vars(original))
        twin._begin()
        original._twins[asyncio.get_running_loop()] = twin
        return twin

    def _twin(self, semaphore: Semaphore) -> Semaphore:
        """Returns this client's twin of a semaphore of another loop."""
        if semaphore._client is self:
            return semaphore
        twin = self._of_original.get(semaphore)
        if twin is None:
            made = Semaphore(self, semaphore.name, *semaphore._settings())
            twin = self._of_original[semaphore] = self._semaphores.setdefault(semaphore.name, made)
        return twin

    @property
    def _is_in_use(self) -> bool:
        return bool(self._active) or any(semaphore._permits for semaphore in self._all_semaphores())

    def _all_semaphores(self) -> list[Semaphore]:
        # Not values(), because another thread may create a semaphore of the blocking client during the iteration.
        return [semaphore for reference in self._semaphores.valuerefs() if (semaphore := reference()) is not None]

    async def _disconnect(self) -> None:
        if self._listener is not None:
            await self._listener.stop()
        if not self._active:
            await self._link.close()
        await self._connections.connection_pool.disconnect()

    def _start_worker(self, semaphore: Semaphore) -> asyncio.Task[None]:
        self._active.add(semaphore)
        return asyncio.create_task(Worker(semaphore).work())

    async def _has_tried(self) -> None:
        if self._listener is not None:
            await self._listener.has_tried()

    async def _has_ended(self, semaphore: Semaphore) -> None:
        """Called when a semaphore has no more work. After a close, the connection may have been opened again."""
        if not semaphore._releases:
            self._active.discard(semaphore)
        if self._is_closed and not self._active:
            await self._link.close()
            if not self._is_in_use:
                self._on_idle()

    async def _call(
        self,
        script: str,
        keys: scripts.Keys,
        arguments: Sequence[scripts.Argument],
        timeout: Optional[float] = None,
        call: Callable[..., Awaitable[Any]] = scripts.call,
    ) -> Any:
        async def execute(*command: Any) -> Any:
            return await self._link.call(*command, timeout=timeout)

        try:
            try:
                reply = await call(execute, script, keys.named, arguments)
            except redis.ResponseError as error:
                if not str(error).startswith("SEM_GROUPS"):
                    raise
                keys.has_groups = True
                reply = await call(execute, script, keys.named, arguments)
            if not scripts.is_reply(script, arguments, reply):
                raise addresses.not_redis(f"its reply to {script} is no list with the right number of results")
            return reply
        except (redis.RedisError, OSError) as error:
            if errors.is_of_replica(error):
                # The primary has become a replica. Its address may lead to another server now.
                self._link.replace()
            raise errors.from_redis(error, addresses.of(self._connections), script) from error

    @property
    def _deaf_because(self) -> Optional[Exception]:
        return self._listener.error if self._listener is not None else None

    def _received(self, data: bytes) -> None:
        told = message.parse(data)
        if told is None:
            logger.warning("ignored a message that no script sent: check which users may publish on the channel")
            return
        name, grants = told
        semaphore = self._semaphores.get(name)
        for request_id, token, end in grants:
            if semaphore is not None and semaphore._knows(request_id):
                semaphore._handed_off(request_id, token, end)
            elif token:
                self._give_back(name, request_id)

    def _give_back(self, name: str, request_id: str) -> None:
        """Releases a permit without a waiter: the release of its request has overtaken the request."""
        lease = ids.lease_of(self._client, request_id)
        if lease is None:
            return
        semaphore = self._semaphores.get(name) or self._givers.get(name)
        if semaphore is None:
            try:
                # The semaphore of this name is gone. Its settings do not matter for a release.
                semaphore = self._givers[name] = Semaphore(self, name, 0, lease)
            except ValueError:
                return  # no script sent this name
        semaphore._give_back(request_id, time.monotonic() + lease)

    def _subscribed(self) -> None:
        for semaphore in list(self._active):
            semaphore._ask_now()
