"""The blocking client, for threads: the asyncio one on a loop in a thread of its own.

That thread renews the leases, whatever the threads of the program do, and all share its two
connections.
"""

import asyncio
import os
import threading

from . import client
from .errors import Closed, LeaseLost


class Client:
    """As redis_semaphore.asyncio.Client. Threads may share it, and forked processes may not."""

    def __init__(self, url, **settings):
        self._url, self._settings = url, settings
        self._loop = None
        self._thread = None
        self._core = None
        self._pid = None
        # What is given to the loop is given before it stops. (Both locks may be taken again by the
        # handler of a signal that interrupts whoever has them.)
        self._handing_over = threading.RLock()
        self._connecting = threading.RLock()

    def semaphore(self, name, limit, lease=30.0):
        """The semaphore of that name, with at most `limit` held at once."""

        async def make():
            return self._core.semaphore(name, limit, lease)

        return Semaphore(self, self._run(make()))

    def connect(self):
        if self._is_forked():
            raise Closed("the client is that of the parent process")
        with self._connecting:
            if self._loop is not None:
                return
            self._pid = os.getpid()
            self._core = None
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="redis-semaphore", daemon=True
            )
            self._thread.start()
            try:
                self._core = self._run(self._connect())
            except BaseException:
                self._stop()
                raise

    def close(self):
        if self._is_forked():
            return
        with self._connecting:
            try:
                if self._core is not None:
                    self._run(self._core.close())
            except Closed:
                pass  # a signal's handler has closed it meanwhile
            finally:
                self._stop()

    def _is_forked(self):
        """A forked process has neither the loop's thread nor whoever would let go of a lock."""
        return self._pid not in (None, os.getpid())

    def __enter__(self):
        self.connect()
        return self

    def __exit__(self, kind, error, traceback):
        self.close()

    async def _connect(self):
        core = client.Client(self._url, **self._settings)
        core._new_event = threading.Event
        await core.connect()
        return core

    def _stop(self):
        with self._handing_over:
            loop, self._loop = self._loop, None
            if loop is None:
                return
            loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.run_until_complete(_cancel_all())  # no thread may wait for ever
        loop.close()

    def _run(self, coroutine, undo=None):
        """Waits for what the coroutine returns.

        When that wait is interrupted, as by Ctrl-C, the coroutine is cancelled; `undo` gets its
        result if that comes too late.
        """
        answer = _Answer()
        tasks = []

        async def work():
            try:
                answer.tell(await coroutine)
            except asyncio.CancelledError:
                answer.tell(error=Closed("the client was closed"))
            except BaseException as error:
                answer.tell(error=error)

        def start():
            tasks.append(asyncio.get_running_loop().create_task(work()))
            tasks[0].add_done_callback(ended)

        def ended(task):
            # One that is cancelled before it has begun tells nothing itself.
            coroutine.close()
            answer.tell(error=Closed("the client was closed"))

        def abandon():
            if not tasks:
                coroutine.close()  # interrupted before it was handed over
            elif not answer.is_there:
                tasks[0].cancel()
            elif undo is not None and answer.error is None:
                undo(answer.value)

        try:
            if not self._hand_over(start):
                coroutine.close()
                raise Closed("the client is not connected in this process")
            return answer.wait()
        except BaseException as error:
            if error is not answer.error:
                self._hand_over(abandon)  # a client that was closed meanwhile has given it back
            raise

    def _hand_over(self, callback):
        """Has the loop's thread call that, unless it has ended."""
        if self._is_forked():
            return False
        with self._handing_over:
            loop = self._loop
            if loop is None:
                return False
            try:
                loop.call_soon_threadsafe(callback)
            except RuntimeError:  # a signal's handler has closed it just now
                return False
            return True


class _Answer:
    """What a coroutine on the loop's thread returned, for the thread that waits for it.

    A plain lock tells of it: a signal that interrupts the one thread leaves nothing taken on which
    the other could be held up.
    """

    def __init__(self):
        self._told = threading.Lock()
        self._told.acquire()
        self.is_there = False
        self.value = self.error = None

    def tell(self, value=None, error=None):
        if not self.is_there:
            self.value, self.error, self.is_there = value, error, True
            self._told.release()

    def wait(self):
        self._told.acquire()
        if self.error is not None:
            raise self.error
        return self.value


class Semaphore:
    """Made by Client.semaphore()."""

    def __init__(self, client, core):
        self._client, self._core = client, core
        self.name, self.limit, self.lease = core.name, core.limit, core.lease

    def acquire(self, timeout=None, weight=1):
        """Waits in the queue for a permit. Raises AcquireTimeout after `timeout` seconds."""
        return self._wrap(self._core.acquire(timeout, weight))

    def try_acquire(self, weight=1):
        """A permit, or None when there is no room or anybody waits."""
        return self._wrap(self._core.try_acquire(weight))

    def _wrap(self, coroutine):
        permit = self._client._run(coroutine, undo=_give_back)
        return permit and Permit(self._client, permit)


async def _cancel_all():
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _give_back(permit):
    if permit is not None:
        permit._give_back()


class Permit:
    """As redis_semaphore.asyncio.Permit. `lost` is a threading.Event."""

    def __init__(self, client, core):
        self._client, self._core = client, core
        self.id, self.weight, self.fencing_token = core.id, core.weight, core.fencing_token
        self.lost = core.lost

    @property
    def is_lost(self):
        return self._core.is_lost

    @property
    def expires_in(self):
        """Seconds until it is lost, unless the lease is renewed before."""
        return self._core.expires_in

    def check(self):
        """Raises LeaseLost if it was lost."""
        self._core.check()

    def release(self):
        """Gives it back: True when that is confirmed, False when the lease had ended before."""
        try:
            return self._client._run(self._core.release())
        except Closed:
            return self._core.was_released
        except BaseException:  # interrupted: it goes on in the background
            self._client._hand_over(self._core._release_in_background)
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if not self.release() and error is None:
            raise LeaseLost(self.id)
