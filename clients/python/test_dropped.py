"""Permits that are dropped, or held for too long."""

import asyncio
import copy
import gc
import pickle
import threading
import time
import unittest
import warnings

import redis_lease_semaphore
from redis_lease_semaphore import PermitLost
from redis_lease_semaphore.asyncio import SemaphoreClient

from support import DEADLINE, URL, Keys, new_name, until, until_async


class Dropped(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.name = new_name()
        self.keys = Keys(URL, self.name)
        self.addCleanup(self.keys.close)
        self.client = SemaphoreClient(URL)
        await self.client.connect()
        self.addAsyncCleanup(self.client.close)
        self.semaphore = self.client.semaphore(self.name, limit=1)

    async def test_a_permit_that_is_dropped_comes_back(self):
        with self.assertWarnsRegex(ResourceWarning, "never released"):
            with self.assertLogs("redis_lease_semaphore", "WARNING") as logs:
                await self.semaphore.acquire()
                async with self.semaphore.acquire(timeout=DEADLINE):
                    pass
        self.assertIn("was dropped and never released", logs.output[0])
        self.assertTrue(self.keys.are_empty())

    async def test_no_object_can_be_copied(self):
        # The end of a copy would release the permit, or close the client.
        permit = await self.semaphore.acquire()
        with redis_lease_semaphore.SemaphoreClient(URL) as client:
            semaphore = client.semaphore(new_name(), limit=1)
            blocking = semaphore.acquire()
            for original in [permit, self.semaphore, self.client, blocking, semaphore, client]:
                for copied in [copy.copy, copy.deepcopy, pickle.dumps]:
                    with self.assertRaisesRegex(TypeError, "cannot be copied or pickled"):
                        copied(original)
            blocking.release()
        gc.collect()
        self.assertIsNone(await self.semaphore.try_acquire())
        self.assertTrue(await permit.release())

    async def test_one_in_a_cycle_comes_back_when_it_is_collected(self):
        permit = await self.semaphore.acquire()
        permit.itself = permit
        del permit
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)  # even if that is an error
            await asyncio.to_thread(gc.collect)  # in any thread
            await until_async(self.keys.are_empty)

    async def test_one_whose_acquire_was_not_awaited_to_the_end_comes_back(self):
        task = asyncio.create_task(self.semaphore._acquire(None, 1))
        await until_async(task.done)
        with self.assertWarns(ResourceWarning):
            del task
            await until_async(self.keys.are_empty)

    async def test_one_that_was_released_or_lost_is_no_warning(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(3):
                async with self.semaphore.acquire():
                    pass
            short = self.client.semaphore(new_name(), limit=1, lease=0.3, max_hold=0.3)
            permit = await short.acquire()
            await asyncio.wait_for(permit.lost.wait(), DEADLINE)
            del permit
            gc.collect()

    async def test_a_permit_of_the_blocking_client_comes_back(self):
        def work():
            with redis_lease_semaphore.SemaphoreClient(URL) as client:
                semaphore = client.semaphore(self.name, limit=1)
                for _ in range(3):
                    semaphore.acquire(timeout=DEADLINE)
                until(self.keys.are_empty)

        with self.assertWarns(ResourceWarning):
            await asyncio.to_thread(work)

    async def test_a_blocking_client_that_is_dropped_is_closed(self):
        def work():
            client = redis_lease_semaphore.SemaphoreClient(URL)
            client.connect()
            permit = client.semaphore(self.name, limit=1).acquire()
            return client._thread, client._core

        with self.assertWarnsRegex(ResourceWarning, "client of .* was dropped and never closed"):
            thread, core = await asyncio.to_thread(work)
            await until_async(lambda: not thread.is_alive())
        self.assertTrue(self.keys.are_empty())
        self.assertEqual(core._link._lines, set())

    async def test_a_permit_is_held_for_max_hold_and_no_longer(self):
        semaphore = self.client.semaphore(new_name(), limit=1, lease=0.6, max_hold=1.5)
        start = time.monotonic()
        with self.assertRaises(PermitLost):
            async with semaphore.acquire() as permit:
                self.assertLess(permit.expires_in, 0.7)
                await asyncio.wait_for(permit.lost.wait(), DEADLINE)
        took = time.monotonic() - start
        self.assertGreater(took, 1.4)  # the permit was refreshed until then
        async with semaphore.acquire(timeout=DEADLINE) as permit:  # the first permit was released on the server
            self.assertFalse(permit.is_lost)

    async def test_the_server_does_not_let_a_permit_live_longer_than_max_hold(self):
        name = new_name()
        keys = Keys(URL, name)
        self.addCleanup(keys.close)
        semaphore = self.client.semaphore(name, limit=1, lease=3.0, max_hold=4.0)
        seconds, microseconds = keys.connection.time()
        granted = seconds * 1000 + microseconds / 1000
        permit = await semaphore.acquire()
        self.assertEqual(semaphore.max_hold, 4.0)
        first = keys.ends()[permit.id]
        last = await until_async(lambda: (end := keys.ends()[permit.id]) > first and end)
        self.assertLess(last - granted, 4600)  # refreshed for the remaining time, not for a whole lease
        await permit.release()

    async def test_a_max_hold_that_is_shorter_than_the_lease(self):
        semaphore = self.client.semaphore(new_name(), limit=1, lease=30.0, max_hold=0.3)
        permit = await semaphore.acquire()
        self.assertLess(permit.expires_in, 0.3)
        await asyncio.wait_for(permit.lost.wait(), DEADLINE)
        self.assertEqual(permit.expires_in, 0)
        await (await semaphore.acquire(timeout=5)).release()  # long before the lease would expire

    async def test_wrong_max_holds(self):
        for wrong in (0, 0.001, -1, float("nan"), "1", True):
            with self.assertRaises(ValueError):
                self.client.semaphore(new_name(), limit=1, max_hold=wrong)
        with self.assertRaises(ValueError):
            self.client.semaphore(self.name, limit=1, max_hold=5)  # the semaphore exists without max_hold


class InOrder(unittest.IsolatedAsyncioTestCase):
    """Calls of a program take effect in their order."""

    ROUNDS = 100

    def setUp(self):
        self.name = new_name()
        self.keys = Keys(URL, self.name)
        self.addCleanup(self.keys.close)

    async def test_with_asyncio(self):
        async with SemaphoreClient(URL) as client:
            semaphore = client.semaphore(self.name, limit=1)
            for _ in range(self.ROUNDS):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ResourceWarning)
                    permit = await semaphore.acquire()
                    del permit
                    permit = await semaphore.try_acquire()
                self.assertIsNotNone(permit)
                waits = [asyncio.create_task(semaphore._acquire(timeout, 1)) for timeout in (None, 0.0001)]
                await asyncio.gather(waits[1], return_exceptions=True)  # it times out
                waits[0].cancel()
                self.assertTrue(await permit.release())
                async with semaphore.acquire(timeout=0):
                    pass
        self.assertTrue(self.keys.are_empty())

    def test_with_threads(self):
        with redis_lease_semaphore.SemaphoreClient(URL) as client:
            semaphore = client.semaphore(self.name, limit=1)
            for _ in range(self.ROUNDS):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ResourceWarning)
                    permit = semaphore.acquire()
                    del permit
                    permit = semaphore.try_acquire()
                self.assertIsNotNone(permit)
                found = []

                def release():
                    permit.release()
                    is_free.set()

                def take():
                    is_free.wait()
                    found.append(semaphore.try_acquire())

                is_free = threading.Event()
                threads = [threading.Thread(target=work) for work in (release, take)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                self.assertIsNotNone(found[0])
                found.pop().release()
                with self.assertRaises(redis_lease_semaphore.AcquireTimeout):
                    with semaphore.acquire(timeout=0):
                        semaphore.acquire(timeout=0)
                with semaphore.acquire(timeout=0):
                    pass
        self.assertTrue(self.keys.are_empty())


if __name__ == "__main__":
    unittest.main()
