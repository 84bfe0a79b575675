import concurrent.futures
import contextlib
import gc
import os
import signal
import sys
import threading
import time
import unittest
from unittest import mock

from redis_lease_semaphore import AcquireTimeout, Closed, PermitLost, SemaphoreClient, Unavailable

from support import DEADLINE, HUGE, URL, Keys, Server, Turns, new_name, until


class Blocking(unittest.TestCase):
    def setUp(self):
        # SIGINT is ignored if the tests were started in the background.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        self.name = new_name()
        self.keys = Keys(URL, self.name)
        self.addCleanup(self.keys.close)
        self.client = self.connect()
        self.semaphore = self.client.semaphore(self.name, limit=1)

    def connect(self):
        client = SemaphoreClient(URL)
        client.connect()
        self.addCleanup(client.close)
        return client

    def another(self, limit=1, lease=30.0):
        """Returns the semaphore of another client."""
        return self.connect().semaphore(self.name, limit, lease)

    def test_a_permit_is_a_context_manager(self):
        with self.semaphore.acquire() as permit:
            self.assertFalse(permit.is_lost)
            self.assertIsNone(self.semaphore.try_acquire())
        self.assertTrue(self.keys.are_empty())
        self.assertIs(permit.release(), True)

    def test_concurrent_acquires_of_one_object(self):
        semaphore = self.another(limit=3)
        room = threading.BoundedSemaphore(3)  # an acquire that must wait would exceed it
        failures = []

        def work():
            for _ in range(10):
                with semaphore.acquire():
                    if not room.acquire(blocking=False):
                        failures.append("more than the limit")
                        return
                    room.release()

        threads = [threading.Thread(target=work) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertTrue(self.keys.are_empty())

    def test_a_timeout_leaves_nothing_behind(self):
        with self.semaphore.acquire():
            with self.assertRaises(AcquireTimeout):
                self.semaphore.acquire(timeout=0.05)
            until(lambda: self.keys.queued() == 0)
        self.assertTrue(self.keys.are_empty())

    def test_a_timeout_that_is_larger_than_any_float_leaves_nothing_behind(self):
        with self.semaphore.acquire(timeout=HUGE):
            with self.assertRaises(AcquireTimeout):
                self.semaphore.acquire(timeout=-HUGE)
        self.assertTrue(self.keys.are_empty())

    def test_a_lost_lease(self):
        semaphore = self.another(lease=6)
        with self.assertRaises(PermitLost):
            with semaphore.acquire() as permit:
                self.keys.connection.delete(self.keys.permits)
                self.assertTrue(permit.lost.wait(DEADLINE))
                self.assertEqual(permit.expires_in, 0)
                permit.check()

    def test_an_interrupted_wait_leaves_the_queue(self):
        def interrupt():
            until(lambda: self.keys.queued() == 1)
            os.kill(os.getpid(), signal.SIGINT)

        with self.semaphore.acquire():
            thread = threading.Thread(target=interrupt)
            thread.start()
            with self.assertRaises(KeyboardInterrupt):
                self.semaphore.acquire()
            thread.join()
            until(lambda: self.keys.queued() == 0)

    def test_an_interrupted_program_leaves_nothing_behind(self):
        with self.semaphore.acquire():
            turns = Turns(URL, self.name)
            until(lambda: self.keys.queued() == 1)
            turns.process.send_signal(signal.SIGINT)
            _, status = turns.finish()
            self.assertNotEqual(status, 0)
            self.assertIn("KeyboardInterrupt", turns.errors)
            self.assertEqual(self.keys.queued(), 0)

    def test_an_interrupt_at_the_hand_over_leaves_nothing_behind(self):
        loop = self.client._loop
        hand_over = loop.call_soon_threadsafe

        def interrupted(callback):
            loop.call_soon_threadsafe = hand_over
            hand_over(callback)
            raise KeyboardInterrupt

        loop.call_soon_threadsafe = interrupted
        with self.assertRaises(KeyboardInterrupt):
            self.semaphore.acquire()
        until(self.keys.are_empty)
        self.semaphore.acquire(timeout=DEADLINE).release()

    def test_a_release_that_is_interrupted_goes_on(self):
        def interrupt(*_):
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        with self.assertRaises(KeyboardInterrupt):
            with self.semaphore.acquire():
                self.client._loop.call_soon_threadsafe(time.sleep, 2)  # so the coroutine does not begin
                signal.setitimer(signal.ITIMER_REAL, 0.1)
        until(self.keys.are_empty)

    def test_a_close_that_is_interrupted_goes_on(self):
        def work():
            with contextlib.suppress(Closed):
                semaphore.acquire()

        def interrupt():
            until(lambda: client._core._is_closed)
            os.kill(os.getpid(), signal.SIGINT)

        server, threads = Server(), threading.active_count()
        self.addCleanup(server.close)
        keys = Keys(server.url, self.name)
        self.addCleanup(keys.close)
        client = SemaphoreClient(server.url, response_timeout=DEADLINE)
        client.connect()
        self.addCleanup(client.close)
        semaphore = client.semaphore(self.name, limit=2, lease=10 * DEADLINE)
        held = semaphore.acquire()
        server.stop()
        threading.Thread(target=work).start()
        until(lambda: any(claim.asked_at for claim in list(semaphore._core._waits.values())))
        threading.Thread(target=interrupt).start()
        start = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            client.close()
        self.assertLess(time.monotonic() - start, DEADLINE / 2)
        server.go_on()
        self.assertIs(held.release(), True)
        self.assertTrue(keys.are_empty())
        client.close()
        until(lambda: threading.active_count() == threads)

    def test_a_connect_that_is_interrupted_can_be_repeated(self):
        start = threading.Thread.start

        def interrupted(thread):
            start(thread)
            raise KeyboardInterrupt

        client = SemaphoreClient(URL)
        self.addCleanup(client.close)
        with mock.patch.object(threading.Thread, "start", interrupted), self.assertRaises(KeyboardInterrupt):
            client.connect()
        client.connect()
        client.semaphore(self.name, limit=1).acquire().release()

    def test_a_block_ends_in_an_outage_and_was_not_lost(self):
        server = Server()
        self.addCleanup(server.close)
        keys = Keys(server.url, self.name)
        self.addCleanup(keys.close)
        with SemaphoreClient(server.url, response_timeout=1) as client:
            semaphore = client.semaphore(self.name, limit=2)
            held, start = semaphore.acquire(), time.monotonic()
            with semaphore.acquire():
                server.stop()
            with self.assertRaises(Unavailable):
                held.release()
            self.assertLess(time.monotonic() - start, 10)
            server.go_on()
            until(keys.are_empty)
            self.assertIs(held.release(), True)

    def test_a_client_that_connects_twice_and_closes_twice(self):
        threads = threading.active_count()
        client = self.connect()
        semaphore = client.semaphore(self.name, limit=1)
        client.connect()
        self.assertTrue(semaphore.acquire().release())
        client.close()
        client.close()
        self.assertEqual(threading.active_count(), threads)

    def test_no_thread_waits_for_ever_for_a_client_that_closes(self):
        interval = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, interval)
        sys.setswitchinterval(1e-5)
        for _ in range(20):
            client = SemaphoreClient(URL)
            client.connect()
            semaphore = client.semaphore(self.name, limit=1)
            is_closing = threading.Event()
            failures = []

            def close():
                try:
                    client.close()
                except Exception as error:
                    failures.append(error)

            def work():
                while client._loop is not None:
                    with contextlib.suppress(Closed):
                        permit = semaphore.try_acquire()
                        if permit is not None:
                            permit.release()
                            is_closing.set()

            threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
            threads += [threading.Thread(target=close, daemon=True) for _ in range(2)]
            for thread in threads[:8]:
                thread.start()
            is_closing.wait(DEADLINE)
            for thread in threads[8:]:
                thread.start()
            for thread in threads:
                thread.join(DEADLINE)
                self.assertFalse(thread.is_alive())
            self.assertEqual(failures, [])

    def test_closed(self):
        wait = []

        def work():
            try:
                self.semaphore.acquire()
            except Closed:
                wait.append("closed")

        held = self.semaphore.acquire()
        thread = threading.Thread(target=work)
        thread.start()
        until(lambda: self.keys.queued() == 1)
        self.client.close()
        thread.join()
        self.assertEqual(wait, ["closed"])
        for call in (self.semaphore.acquire, self.client.connect):
            with self.assertRaises(Closed):
                call()
        self.assertFalse(held.is_lost)
        self.assertEqual((self.keys.held(), self.keys.queued()), (1, 0))
        self.assertIs(held.release(), True)
        self.assertTrue(self.keys.are_empty())

    def test_a_client_that_is_closed_in_a_block(self):
        with self.assertRaises(ZeroDivisionError):
            with self.semaphore.acquire():
                self.client.close()
                self.client.close()
                1 / 0
        self.assertTrue(self.keys.are_empty())

    def test_a_permit_that_outlives_its_client_is_lost_in_time(self):
        threads = threading.active_count()
        client = self.connect()
        semaphore = client.semaphore(self.name, limit=2, lease=1)
        released, held = semaphore.acquire(), semaphore.acquire()
        self.assertIs(released.release(), True)
        client.close()
        self.assertTrue(held.lost.wait(DEADLINE))
        self.assertEqual((released.release(), held.release()), (True, False))
        until(lambda: threading.active_count() == threads)

    def test_a_release_after_a_close_in_an_outage_raises_unavailable_and_is_not_false(self):
        server = Server()
        self.addCleanup(server.close)
        client = SemaphoreClient(server.url, response_timeout=1)
        client.connect()
        self.addCleanup(client.close)
        permit = client.semaphore(self.name, limit=1).acquire()
        server.stop()
        with permit, self.assertRaises(Unavailable):
            permit.release()
        client.close()
        self.assertFalse(permit.is_lost)
        with self.assertRaisesRegex(Unavailable, f"closed before Redis confirmed the release of {permit.id}: .* lease"):
            permit.release()
        with self.assertLogs("redis_lease_semaphore", "WARNING") as logs:
            with permit:
                pass
        self.assertIn("before Redis confirmed", logs.output[0])

    def test_a_release_and_a_close_on_the_thread_of_the_client_do_not_wait(self):
        class Late:
            def __init__(self, call):
                self.call, self.itself = call, self

            def __del__(self):
                try:
                    self.call()
                except Unavailable as error:
                    errors.append(str(error))

        errors = []
        threads = threading.active_count()
        client = self.connect()
        permit = client.semaphore(self.name, limit=1).acquire()
        for call in (permit.release, client.close):
            Late(call)  # in a cycle, so a collection on any thread ends it
            client._loop.call_soon_threadsafe(gc.collect)
            until(self.keys.are_empty)
        self.assertIs(permit.release(), True)
        until(lambda: threading.active_count() == threads)
        self.assertEqual(errors, ["the thread of the client cannot wait for itself"])

    def test_semaphores_and_permits_have_the_public_names_of_asyncio(self):
        public = lambda thing: {name for name in dir(thing) if not name.startswith("_")}
        self.assertEqual(public(self.semaphore), public(self.semaphore._core))
        with self.semaphore.acquire() as permit:
            self.assertEqual(public(permit), public(permit._core))
        self.assertEqual(self.client.semaphore(new_name(), limit=1, max_hold=60).max_hold, 60)

    def test_a_semaphore_may_be_created_before_connect_and_after_close_like_with_asyncio(self):
        client = SemaphoreClient(URL)
        semaphore = client.semaphore(self.name, limit=1)
        for call in (semaphore.acquire, semaphore.try_acquire):
            with self.assertRaisesRegex(Closed, r"not connected: call connect\(\) first, or use .* `with`"):
                call()
        with client:
            self.assertIs(client.semaphore(self.name, limit=1)._core, semaphore._core)
            self.assertTrue(semaphore.acquire().release())
        with self.assertRaisesRegex(Closed, "the client was closed"):
            client.semaphore(new_name(), limit=1).acquire()

    def test_threads_that_create_a_semaphore_at_the_same_time_share_it(self):
        with SemaphoreClient(URL) as client, concurrent.futures.ThreadPoolExecutor() as threads:
            made = list(threads.map(lambda _: client.semaphore(self.name, limit=1), range(100)))
        self.assertEqual(len({semaphore._core for semaphore in made}), 1)

    def test_no_server(self):
        client = SemaphoreClient("redis://127.0.0.1:1")
        with self.assertRaisesRegex(Unavailable, "127.0.0.1:1, connecting: "):
            client.connect()
        client.close()


if __name__ == "__main__":
    unittest.main()
