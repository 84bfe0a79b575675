"""The blocking client, for threads: the asyncio one on a loop in a thread of its own.

That thread renews the leases, whatever the threads of the program do, and all share its
connections.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from types import TracebackType
from typing import Any, Callable, Coroutine, Generic, Optional, TypeVar, cast

from . import exits
from . import permit as core_permit
from . import semaphore as core_semaphore
from . import client as core
from .errors import Closed, PermitLost

_T = TypeVar("_T")


class SemaphoreClient:
    """As redis_lease_semaphore.asyncio.SemaphoreClient. Threads may share it.

    A forked process goes on with a connected client: it connects by itself with the first acquire.
    When the program ends, permits that are still held are released, within two response timeouts;
    but not those that a daemon thread acquired, as it may still work.
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

    def _begin(self) -> None:
        """What a process has of its own."""
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._thread: Optional[threading.Thread] = None
        self._is_exiting = False
        # What is given to the loop is given before it stops. (Both locks may be taken again by the
        # handler of a signal that interrupts whoever has them.)
        self._handing_over = threading.RLock()
        self._connecting = threading.RLock()

    def semaphore(
        self, name: str, limit: int, lease: float = 30.0, max_hold: Optional[float] = None
    ) -> Semaphore:
        """The semaphore of that name, with at most `limit` held at once.

        `max_hold` is the longest time for which a permit is held; then it is lost.
        """

        async def make() -> core_semaphore.Semaphore:
            return self._core.semaphore(name, limit, lease, max_hold)

        return Semaphore(self, self._run(make()))

    def connect(self) -> None:
        """Finds out whether the server is there and permits what is needed."""
        with self._connecting:
            if self._core._was_closed:
                raise Closed("the client was closed")
            if self._loop is not None:
                return
            self._start()
            try:
                self._run(self._core.connect())
            except BaseException:
                self._stop()
                raise
            self._has_connected = True

    def _start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=_serve, args=[self._loop], name="redis-lease-semaphore", daemon=True
        )
        self._thread.start()
        exits.watch(self)

    def _forked(self) -> None:
        """This is a forked process: it has copies of the loop and the locks, but not the loop's thread."""
        # To close that loop or its connections would disturb the parent process, so they are kept.
        self._inherited = (self._loop, self._thread, self._inherited)
        self._begin()

    def _go_on(self) -> None:
        """In a forked process the client begins with the first call."""
        with self._connecting:
            if self._core._was_closed:
                raise Closed("the client was closed")
            if not self._has_connected:
                raise Closed("the client is not connected")
            if self._loop is None:
                self._start()

    def close(self) -> None:
        """Ends all waits, and disconnects when Redis has taken back what was given up.

        Permits that are still held are not taken away. They are renewed no more, and are lost when
        their leases end, or when the program ends, unless they are released before.
        """
        with self._connecting:
            if self._loop is None:
                self._core._was_closed |= self._has_connected
                return
            is_in_use = False
            try:
                self._run(self._core.close())
                is_in_use = self._run(self._leave())
            except Closed:
                pass  # a signal's handler has closed it meanwhile
            finally:
                if not is_in_use:
                    self._stop()

    async def _leave(self) -> bool:
        """Where permits are held, the loop goes on until the last one is released or lost."""
        here = self._core._find()
        if here is None:
            return False
        here._on_idle = self._tell_loop_to_stop
        return here._is_in_use

    def _exit(self) -> Optional[concurrent.futures.Future[None]]:
        """The program ends."""
        loop = self._loop
        here = None if loop is None else self._core._of_loop(loop)
        if loop is None or here is None:
            return None
        self._is_exiting = True
        me = threading.current_thread()

        def stays(held: core_permit.Held) -> bool:
            """A daemon thread that still works with it."""
            return held.thread not in (None, me) and held.thread.is_alive()

        return asyncio.run_coroutine_threadsafe(
            here._loop_ends("is given back: the program ends", stays), loop
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
        with self._handing_over:
            loop, self._loop = self._loop, None
            if loop is not None:
                loop.call_soon_threadsafe(loop.stop)

    def _run(
        self, coroutine: Coroutine[Any, Any, _T], undo: Optional[Callable[[_T], None]] = None
    ) -> _T:
        """Waits for what the coroutine returns.

        When that wait is interrupted, as by Ctrl-C, the coroutine is cancelled; `undo` gets its
        result if that comes too late.
        """
        answer: _Answer[_T] = _Answer()
        tasks: list[asyncio.Task[None]] = []
        is_daemon = threading.current_thread().daemon and not self._is_exiting

        def fail(error: BaseException) -> None:
            if not (is_daemon and self._is_exiting):  # its thread would only print that the client was closed
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
            # One that is cancelled before it has begun tells nothing itself.
            coroutine.close()
            fail(Closed("the client was closed"))

        def abandon() -> None:
            if not tasks:
                coroutine.close()  # interrupted before it was handed over
            elif not answer.is_there:
                tasks[0].cancel()
            elif undo is not None and answer.error is None:
                undo(answer.value)

        try:
            while not self._hand_over(start):
                try:
                    self._go_on()
                except BaseException:
                    coroutine.close()
                    raise
            return answer.wait()
        except BaseException as error:
            if error is not answer.error:
                self._hand_over(abandon)  # a client that was closed meanwhile has given it back
            raise

    def _hand_over(self, callback: Callable[[], None]) -> bool:
        """Has the loop's thread call that, unless it has ended."""
        with self._handing_over:
            loop = self._loop
            if loop is None:
                return False
            try:
                loop.call_soon_threadsafe(callback)
            except RuntimeError:  # a signal's handler has closed it just now
                return False
            return True


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """The loop's thread."""
    loop.run_forever()
    loop.run_until_complete(_cancel_all())  # no thread may wait for ever
    loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Answer(Generic[_T]):
    """What a coroutine on the loop's thread returned, for the thread that waits for it.

    A plain lock tells of it: a signal that interrupts the one thread leaves nothing taken on which
    the other could be held up.
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


class Semaphore:
    """Made by SemaphoreClient.semaphore()."""

    def __init__(self, client: SemaphoreClient, core: core_semaphore.Semaphore) -> None:
        self._client, self._core = client, core
        self.name, self.limit, self.lease = core.name, core.limit, core.lease

    def acquire(self, timeout: Optional[float] = None, weight: int = 1) -> Permit:
        """Waits in the queue for a permit. Raises AcquireTimeout after `timeout` seconds."""
        core = self._client._run(self._core.acquire(timeout, weight), undo=_give_back)
        return Permit(self._client, core)

    def try_acquire(self, weight: int = 1) -> Optional[Permit]:
        """A permit, or None when none is free or anybody waits."""
        permit = self._client._run(self._core.try_acquire(weight), undo=_give_back)
        return None if permit is None else Permit(self._client, permit)


def _give_back(permit: Optional[core_permit.Permit]) -> None:
    if permit is not None:
        permit._release_in_background()


class Permit:
    """As redis_lease_semaphore.asyncio.Permit. `lost` is a threading.Event."""

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
        """Seconds until it is lost, unless the lease is renewed before."""
        return self._core.expires_in

    def check(self) -> None:
        """Raises PermitLost if it was lost."""
        self._core.check()

    def release(self) -> bool:
        """As that of asyncio."""
        self._core._check_process()
        return self._give_back(self._core.release())

    def _give_back(self, release: Coroutine[Any, Any, bool]) -> bool:
        try:
            return self._client._run(release)
        except Closed:
            return self._core.was_released
        except BaseException:  # interrupted: it goes on in the background
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
        if not self._give_back(self._core._end_block()) and error is None:
            raise PermitLost(self.id)
