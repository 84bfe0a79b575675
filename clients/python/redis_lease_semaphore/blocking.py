"""The blocking client, for threads: the asyncio client on a loop in a separate thread.

That thread refreshes the leases while the other threads run Python code or wait. C code that keeps the GIL stops it.
All threads share its connections.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import sys
import threading
import warnings
from types import TracebackType
from typing import Any, Callable, Coroutine, Generic, Optional, TypeVar, Union, cast

from . import addresses, exits
from . import permit as core_permit
from . import semaphore as core_semaphore
from . import client as core
from .errors import NOT_CONNECTED, Closed, PermitLost, Unavailable
from .group import Group
from .unique import Unique

logger = logging.getLogger("redis_lease_semaphore")
_T = TypeVar("_T")
_THE_END = "the program ends"  # while Python finalizes, the threads of clients do not run, so nothing waits for them
_RETRY_INTERVAL = 0.01  # in seconds


class SemaphoreClient(Unique):
    """A client like redis_lease_semaphore.asyncio.SemaphoreClient. Threads may share the client.

    A forked process may use a connected client. The process connects separately, with its first acquire. When the
    program ends, the client releases permits that are still held, and gives up after two response timeouts. Permits
    of a daemon thread are not released while the thread is alive, because the thread may still work.

    Close the client, or use it in a `with` block. If the object is collected before, the client gives a
    ResourceWarning and closes in the background.
    """

    _loop: Optional[asyncio.AbstractEventLoop] = None  # also if __init__ fails

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
        self._core = core.SemaphoreClient(
            url,
            prefix=prefix,
            heartbeat_timeout=heartbeat_timeout,
            response_timeout=response_timeout,
            outage_tolerance=outage_tolerance,
            **options,
        )
        self._core._new_event = cast(Callable[[], asyncio.Event], threading.Event)
        self._has_connected = False
        self._inherited: Any = None
        self._begin()

    def __del__(self) -> None:
        loop = self._loop
        if loop is None or self._is_exiting or sys.is_finalizing():
            return
        with contextlib.suppress(RuntimeError):  # the loop has ended
            asyncio.run_coroutine_threadsafe(self._close(), loop)
        text = f"the client of {addresses.of(self._core._connections)} was dropped and never closed: it is closed now"
        warnings.warn(text, ResourceWarning, source=self)

    def _begin(self) -> None:
        """Initializes the state that each process has separately."""
        self._loop = None
        self._thread: Optional[threading.Thread] = None
        self._is_exiting = False
        # Callbacks are passed to the loop only before it stops. The locks are reentrant, because the
        # handler of a signal may interrupt the thread that has them.
        self._handing_over = threading.RLock()
        self._connecting = threading.RLock()
        self._making = threading.RLock()  # a semaphore

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

        `max_hold` is the longest time for which a permit is held. Then the permit is lost. `group_share` and
        `group_cap` are the share and the cap of each group that has none of its own.
        """
        with self._making:
            return Semaphore(self, self._core.semaphore(name, limit, lease, max_hold, group_share, group_cap))

    def connect(self) -> None:
        """Connects, and checks the server and the rights of the user."""
        if sys.is_finalizing():
            raise Closed(_THE_END)
        with self._connecting:
            if self._core._was_closed:
                raise Closed("the client was closed")
            if self._loop is not None:
                return
            try:
                self._start()
                self._run(self._core.connect())
                self._has_connected = True
            except Exception:
                self._stop()
                raise
            except BaseException:  # interrupted: the thread ends in the background
                self._tell_loop_to_stop()
                raise

    def _start(self) -> None:
        exits.watch(self)
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=_serve, args=[loop], name="redis-lease-semaphore", daemon=True)
        self._loop, self._thread = loop, thread
        try:
            thread.start()
        except RuntimeError as reason:  # Python ends, or the process has too many threads
            self._loop = self._thread = None
            loop.close()
            raise Closed(f"the thread of the client cannot start: {reason}") from reason

    def _forked(self) -> None:
        """Called in a forked process, which has copies of the loop and the locks, but not the loop's thread."""
        # Closing that loop or its connections would disturb the parent process, so they are kept.
        self._inherited = (self._loop, self._thread, self._inherited)
        self._begin()

    def _go_on(self) -> None:
        """Starts the client in a forked process, with its first call."""
        with self._connecting:
            if self._core._was_closed:
                raise Closed("the client was closed")
            if not self._has_connected:
                raise Closed(NOT_CONNECTED)
            if self._loop is None:
                self._start()

    def close(self) -> None:
        """Ends all waits, and disconnects when Redis has confirmed their releases, or after two response timeouts.

        Permits that are still held are no longer refreshed. Each is lost when its lease expires or the
        program ends, unless it is released before. If the call is interrupted, for example by Ctrl-C, the client
        closes in the background. Another call waits again.
        """
        if sys.is_finalizing():
            return
        if self._is_own_thread():
            threading.Thread(target=self.close, daemon=True).start()
            return
        with self._connecting:
            if self._loop is None:
                self._core._was_closed |= self._has_connected
                return
            stops = False
            with contextlib.suppress(Closed):  # it was closed in the meantime
                stops = self._run(self._close(), goes_on=True)
            if stops or self._loop is None:
                self._stop()

    async def _close(self) -> bool:
        """Closes. If permits are held, the loop continues until the last permit is released or lost.

        Returns whether the loop stops now.
        """
        try:
            await self._core.close()
        finally:
            here = self._core._find()
            if here is not None and here._is_in_use:
                stops = False
                here._on_idle = self._tell_loop_to_stop
            else:
                stops = True
                self._tell_loop_to_stop()
        return stops

    def _exit(self) -> Optional[concurrent.futures.Future[None]]:
        """Releases permits when the program ends."""
        me = threading.current_thread()

        def stays(held: core_permit.Held) -> bool:
            """Returns whether a daemon thread may still use the permit."""
            return held.thread not in (None, me) and held.thread.is_alive()

        with self._handing_over:  # after a close, the loop may stop at any time
            loop = self._loop
            here = None if loop is None else self._core._of_loop(loop)
            if loop is None or here is None:
                return None
            self._is_exiting = True
            return asyncio.run_coroutine_threadsafe(
                here._loop_ends("is released, because the program ends", stays), loop
            )

    def __enter__(self) -> SemaphoreClient:
        self.connect()
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def _stop(self) -> None:
        self._tell_loop_to_stop()
        if self._thread is not None:
            self._thread.join()

    def _tell_loop_to_stop(self) -> None:
        is_own_thread = self._is_own_thread()
        if not self._handing_over.acquire(blocking=not is_own_thread):
            # A signal may have interrupted the thread that has the lock, and its handler may wait for this thread.
            asyncio.get_running_loop().call_later(_RETRY_INTERVAL, self._tell_loop_to_stop)
            return
        try:
            loop, self._loop = self._loop, None
            if loop is not None:
                loop.call_soon_threadsafe(loop.stop)
        finally:
            self._handing_over.release()

    def _run(
        self,
        coroutine: Coroutine[Any, Any, _T],
        undo: Optional[Callable[[_T], None]] = None,
        goes_on: bool = False,
    ) -> _T:
        """Runs a coroutine on the loop, and returns its result.

        If this wait is interrupted, for example by Ctrl-C, the coroutine is canceled. If that is too
        late, `undo` gets its result. With `goes_on`, the coroutine continues in the background instead.
        """
        if sys.is_finalizing() or self._is_own_thread():
            coroutine.close()
            if sys.is_finalizing():
                raise Closed(_THE_END)
            raise Unavailable("the thread of the client cannot wait for itself")
        answer: _Answer[_T] = _Answer()
        tasks: list[asyncio.Task[None]] = []
        is_daemon = threading.current_thread().daemon and not self._is_exiting

        def fail(error: BaseException) -> None:
            if not (is_daemon and self._is_exiting):  # otherwise its thread would print that the client was closed
                answer.fail(error)

        async def work() -> None:
            try:
                answer.tell(await coroutine)
            except asyncio.CancelledError:
                fail(Closed("the client was closed"))
            except BaseException as error:
                fail(error)

        def start() -> None:
            tasks.append(asyncio.get_running_loop().create_task(work()))
            tasks[0].add_done_callback(ended)

        def ended(task: asyncio.Task[None]) -> None:
            # A task that is canceled before it has begun reports nothing itself.
            coroutine.close()
            fail(Closed("the client was closed"))

        def abandon() -> None:
            if goes_on:
                if not tasks:
                    start()  # interrupted before it was handed over
            elif not tasks:
                coroutine.close()
            elif not answer.is_there:
                tasks[0].cancel()
            elif undo is not None and answer.error is None:
                undo(answer.value)

        try:
            while not (self._hand_over(start) or answer.is_there):
                try:
                    self._go_on()
                except BaseException:
                    coroutine.close()
                    raise
            return answer.wait()
        except BaseException as error:
            if error is not answer.error:
                self._hand_over(abandon)  # if the client was closed in the meantime, it has released the permit
            raise

    def _is_own_thread(self) -> bool:
        """Returns whether this is the loop's thread, which calls `__del__` of objects that it collects."""
        return threading.current_thread() is self._thread

    def _hand_over(self, callback: Callable[[], None]) -> bool:
        """Makes the loop's thread call `callback`. Returns False if the thread has ended.

        If the handler of a signal ends the thread in the meantime, False is returned although the thread may have
        called `callback`.
        """
        with self._handing_over:
            loop = self._loop
            if loop is None:
                return False
            try:
                loop.call_soon_threadsafe(callback)
            except RuntimeError:  # a signal's handler has closed the loop just now
                return False
            return self._loop is loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Runs the loop, in its thread."""
    loop.run_forever()
    loop.run_until_complete(_cancel_all())  # no thread may wait forever
    loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Answer(Generic[_T]):
    """The result of a coroutine on the loop's thread, for the thread that waits for it.

    It uses a plain lock, so that a signal that interrupts one thread cannot leave a lock that blocks the
    other thread.
    """

    value: _T

    def __init__(self) -> None:
        self._told = threading.Lock()
        self._told.acquire()
        self.is_there = False
        self.error: Optional[BaseException] = None

    def tell(self, value: _T) -> None:
        if not self.is_there:
            self.value, self.is_there = value, True
            self._told.release()

    def fail(self, error: BaseException) -> None:
        if not self.is_there:
            self.error, self.is_there = error, True
            self._told.release()

    def wait(self) -> _T:
        self._told.acquire()
        if self.error is not None:
            raise self.error
        return self.value


class Semaphore(Unique):
    """A semaphore. SemaphoreClient.semaphore() creates it."""

    def __init__(self, client: SemaphoreClient, core: core_semaphore.Semaphore) -> None:
        self._client, self._core = client, core
        self.name, self.limit, self.lease, self.max_hold = core.name, core.limit, core.lease, core.max_hold
        self.group_share, self.group_cap = core.group_share, core.group_cap

    def acquire(
        self, timeout: Optional[float] = None, weight: int = 1, group: Union[None, str, Group] = None
    ) -> Permit:
        """Waits in the queue for a permit. Raises AcquireTimeout after `timeout` seconds.

        With a timeout of 0 or less, the request does not wait. `group` is the name of a group, or a Group with its
        own share and cap. The asyncio client describes the other errors.
        """
        core = self._client._run(self._core.acquire(timeout, weight, group), undo=_give_back)
        return Permit(self._client, core)

    def try_acquire(self, weight: int = 1, group: Union[None, str, Group] = None) -> Optional[Permit]:
        """Returns a permit, or None if none is free or other requests wait."""
        permit = self._client._run(self._core.try_acquire(weight, group), undo=_give_back)
        return None if permit is None else Permit(self._client, permit)


def _give_back(permit: Optional[core_permit.Permit]) -> None:
    if permit is not None:
        permit._release_in_background()


class Permit(Unique):
    """A permit like redis_lease_semaphore.asyncio.Permit. `lost` is a threading.Event."""

    def __init__(self, client: SemaphoreClient, core: core_permit.Permit) -> None:
        self._client, self._core = client, core
        core._held.thread = threading.current_thread()
        self.id, self.weight, self.fencing_token = core.id, core.weight, core.fencing_token
        self.lost = cast(threading.Event, core.lost)

    @property
    def is_lost(self) -> bool:
        return self._core.is_lost

    @property
    def expires_in(self) -> float:
        """The seconds until the permit is lost unless its lease is refreshed. 0 if it was released or lost."""
        return self._core.expires_in

    def check(self) -> None:
        """Raises PermitLost if the permit was lost."""
        self._core.check()

    def release(self) -> bool:
        """Releases the permit, like release() of the asyncio client."""
        self._core._check_process()
        try:
            return self._client._run(self._core.release())
        except Closed as reason:
            return self._core._held.outcome_when_closed(reason)
        except BaseException:  # interrupted: it continues in the background
            self._client._hand_over(self._core._release_in_background)
            raise

    def __enter__(self) -> Permit:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if self._core._is_forked():
            return  # the parent process ends its own copy of the block
        try:
            was_held = self.release()
        except (Closed, Unavailable) as reason:
            logger.warning("%s", reason)  # the work of the block is done
            return
        if not was_held and error is None:
            raise PermitLost(self.id)
