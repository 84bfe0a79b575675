"""The connection for calls."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import inspect
import time
from typing import Any, Iterable, Optional

import redis
import redis.asyncio

from . import addresses


class Link:
    """Sends all calls over one connection. No call waits for the reply to an earlier call.

    If a call gets no reply within its own timeout, the connection is replaced. The replies to the other
    calls are still read.
    """

    def __init__(self, connections: redis.asyncio.Redis, timeout: float) -> None:
        self._connections, self._timeout = connections, timeout
        self._line: Optional[_Line] = None
        self._lines: set[_Line] = set()  # including replaced connections

    async def call(self, *command: Any, timeout: Optional[float] = None) -> Any:
        """Returns the reply to the command. `timeout` counts only if it is shorter than the link's own."""
        line = self._line
        if line is None or line.has_ended:
            line = self._line = _Line(self._connections, self._timeout, self._lines)
        reply = line.send(command)
        timer = timeout and asyncio.get_running_loop().call_later(timeout, self._late, line, reply, timeout)
        try:
            return await reply
        finally:
            if timer:
                timer.cancel()
            if not reply.cancelled():
                reply.exception()  # it counts as seen, even if the caller was just canceled

    def _late(self, line: _Line, reply: asyncio.Future[Any], timeout: float) -> None:
        if not reply.done():
            self.replace(line)
            reply.set_exception(redis.TimeoutError(f"{line.address}: no reply within {timeout:.3g} s"))

    def replace(self, line: Optional[_Line] = None) -> None:
        """Makes later calls use a new connection."""
        if self._line is not None and line in (None, self._line):
            self._line.retire()
            self._line = None

    async def close(self) -> None:
        self._line = None
        await end(line.task for line in self._lines)


async def end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancels the tasks until they have ended, because redis-py may mistake a cancellation for its own timeout."""
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=0.1)


class _Line:
    """One connection. It ends when it fails, or when it was retired and all its replies have arrived."""

    def __init__(self, connections: redis.asyncio.Redis, timeout: float, lines: set[_Line]) -> None:
        pool: Any = connections.connection_pool
        # Outside the pool, because a pool has a limit, and tests the connections that it returns.
        self._connection: Any = pool.connection_class(**pool.connection_kwargs)
        self._connections, self.address = connections, addresses.of(connections)
        self._timeout = timeout
        self._unsent: list[Any] = []
        self._replies: collections.deque[asyncio.Future[Any]] = collections.deque()  # awaited, in order
        self._has_unsent = asyncio.Event()
        self._watch: Optional[asyncio.TimerHandle] = None
        self._silent_since = 0.0
        self._is_retired = False
        self._is_over = False
        self.task = asyncio.create_task(self._run())
        lines.add(self)
        self.task.add_done_callback(lambda _: self._forget(lines))

    @property
    def has_ended(self) -> bool:
        return self._is_over or self.task.done()

    def _forget(self, lines: set[_Line]) -> None:
        lines.discard(self)
        # A task that is canceled before its first step has not run its `finally`.
        self._end(self._closed())

    def _closed(self) -> Exception:
        return redis.ConnectionError(f"{self.address}: the connection was closed")

    def send(self, command: Any) -> asyncio.Future[Any]:
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._unsent.append((command, reply))
        self._has_unsent.set()
        return reply

    def retire(self) -> None:
        self._is_retired = True
        self._has_unsent.set()

    async def _run(self) -> None:
        error: Exception = self._closed()
        tasks: list[asyncio.Task[None]] = []
        try:
            try:
                await self._connection.connect()
            except Exception as reason:
                raise addresses.named(reason, self._connections, "connecting")
            # From here on, this class checks the time, because the connection may be idle.
            self._connection.socket_timeout = None
            tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._read())]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        except Exception as reason:
            error = reason
        finally:
            self._end(error)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(redis.RedisError, OSError):
                await _disconnect(self._connection)

    async def _write(self) -> None:
        """Returns when the connection was retired and all replies have arrived."""
        while not self._is_retired or self._unsent or self._replies:
            await self._has_unsent.wait()
            self._has_unsent.clear()
            unsent, self._unsent = self._unsent, []
            calls = [(command, reply) for command, reply in unsent if not reply.done()]
            if not calls:
                continue
            if not self._replies:
                self._start_watch()
            self._replies.extend(reply for _, reply in calls)
            packed = self._connection.pack_commands([command for command, _ in calls])
            try:
                await self._connection.send_packed_command(packed, check_health=False)
            except Exception as reason:
                raise addresses.named(reason, self._connections, "sending")

    async def _read(self) -> None:
        while True:
            value, error = None, None
            try:
                value = await self._connection.read_response()
            except redis.ResponseError as refusal:
                error = refusal
            except Exception as reason:
                raise addresses.named(reason, self._connections, "reading")
            if not self._replies:
                raise redis.ConnectionError(f"{self.address}: a reply that belongs to no call")
            self._silent_since = time.monotonic()
            reply = self._replies.popleft()
            if not reply.done():
                reply.set_exception(error) if error is not None else reply.set_result(value)
            if self._is_retired and not self._replies:
                self._has_unsent.set()

    def _start_watch(self) -> None:
        self._silent_since = time.monotonic()
        self._watch_until(self._silent_since + self._timeout)

    def _watch_until(self, end: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        delay = end - time.monotonic()
        self._watch = asyncio.get_running_loop().call_later(delay, self._look, end)

    def _look(self, planned: float) -> None:
        if not self._replies or self.has_ended:
            return
        now = time.monotonic()
        if now > planned + self._timeout / 4:
            # This process was stopped or busy, so replies that have arrived are read first.
            self._silent_since = now
        if now < self._silent_since + self._timeout:
            self._watch_until(self._silent_since + self._timeout)
        else:
            self._end(redis.TimeoutError(f"{self.address}: no reply within {self._timeout} s"))
            self.task.cancel()

    def _end(self, error: Exception) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._is_over = True
        replies = [*self._replies, *(reply for _, reply in self._unsent)]
        self._replies.clear()
        self._unsent.clear()
        for reply in replies:
            if not reply.done():
                reply.set_exception(error)


async def _disconnect(connection: Any) -> None:
    # redis-py before 4.5 does not have this argument.
    has_nowait = "nowait" in inspect.signature(connection.disconnect).parameters
    await (connection.disconnect(nowait=True) if has_nowait else connection.disconnect())
