"""One asyncio client in several event loops."""

import asyncio
import gc
import threading
import unittest

from redis_lease_semaphore import Closed
from redis_lease_semaphore.asyncio import SemaphoreClient

from support import DEADLINE, URL, Keys, new_name, until, until_async


class Loops(unittest.TestCase):
    def setUp(self):
        self.name = new_name()
        self.keys = Keys(URL, self.name)
        self.addCleanup(self.keys.close)
        self.client = SemaphoreClient(URL, heartbeat_timeout=600)  # heartbeats are due after minutes
        self.semaphore = self.client.semaphore(self.name, limit=1)
        self.addCleanup(lambda: asyncio.run(self.client.close()))

    def test_a_canceled_connect_ends(self):
        """Before Python 3.12, asyncio.wait_for swallows a cancellation that arrives when its task has just ended."""

        async def connect(number):
            client = SemaphoreClient(URL)
            task = asyncio.create_task(client.connect())
            for _ in range(number):  # turns of the event loop
                await asyncio.sleep(0)
            is_canceled = task.cancel()
            await asyncio.wait([task], timeout=DEADLINE)
            self.assertEqual((task.done(), task.cancelled()), (True, is_canceled), number)
            await client.close()
            return is_canceled

        for _ in range(5):
            for number in range(1_000):
                if not asyncio.run(connect(number)):
                    break

    def test_a_loop_may_end_at_any_step_of_a_new_connection(self):
        """A task that is canceled before its first step runs no `finally`."""

        async def drop(steps):
            client = SemaphoreClient(URL)
            await client.connect()
            permit = await client.semaphore(self.name, limit=1).acquire()
            await client.close()
            del permit  # its release needs a new connection
            for _ in range(steps):  # turns of the event loop
                await asyncio.sleep(0)

        for steps in range(8):
            thread = threading.Thread(target=lambda: asyncio.run(drop(steps)), daemon=True)
            thread.start()
            thread.join(DEADLINE)
            self.assertFalse(thread.is_alive(), f"the loop does not end after {steps} steps")
            self.assertTrue(self.keys.are_empty(), steps)

    async def take_turns(self):
        """A message grants each permit except the first."""

        async def turn():
            async with self.semaphore.acquire(timeout=DEADLINE):
                await asyncio.sleep(0.001)

        await asyncio.gather(*(turn() for _ in range(5)))

    async def hand_over(self):
        """A message grants a permit, because another client holds it first."""
        async with SemaphoreClient(URL) as other:
            held = await other.semaphore(self.name, limit=1).acquire()
            wait = asyncio.create_task(self.semaphore.acquire())
            await until_async(lambda: self.keys.queued() == 1)
            await held.release()
            self.assertTrue(await (await asyncio.wait_for(wait, DEADLINE)).release())

    def channels(self):
        return len(self.keys.connection.pubsub_channels("sem:wake:*"))

    def test_a_second_run_is_not_deaf(self):
        before = self.channels()
        asyncio.run(self.client.connect())
        for _ in range(3):
            asyncio.run(self.hand_over())
            self.assertEqual(self.channels(), before)
        self.assertLessEqual(len(self.client._twins), 1)
        self.assertTrue(self.keys.are_empty())

    def test_a_second_run_may_connect(self):
        async def main():
            await self.client.connect()
            await self.hand_over()

        for _ in range(2):
            asyncio.run(main())

    def test_two_loops_at_once(self):
        asyncio.run(self.client.connect())
        errors = []

        def work():
            async def turns():
                for _ in range(30):
                    async with self.semaphore.acquire(timeout=DEADLINE):
                        await asyncio.sleep(0)

            try:
                asyncio.run(turns())
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])
        self.assertTrue(self.keys.are_empty())

    def test_a_permit_that_is_released_in_another_loop(self):
        home = asyncio.new_event_loop()
        home.run_until_complete(self.client.connect())
        permit = home.run_until_complete(self.semaphore.acquire())
        # The loop of the permit does not run.
        self.assertIs(asyncio.run(permit.release()), True)
        self.assertTrue(self.keys.are_empty())
        permit = home.run_until_complete(self.semaphore.acquire())
        thread = threading.Thread(target=home.run_forever)
        thread.start()
        # The loop of the permit runs in another thread.
        self.assertIs(asyncio.run(permit.release()), True)
        self.assertTrue(self.keys.are_empty())
        asyncio.run_coroutine_threadsafe(self.client.close(), home).result()
        home.call_soon_threadsafe(home.stop)
        thread.join()
        home.close()

    def test_a_release_in_another_loop_after_close_says_that_the_permit_is_held(self):
        async def block():
            async with permit:
                pass

        home = asyncio.new_event_loop()
        self.addCleanup(home.close)
        home.run_until_complete(self.client.connect())
        permit = home.run_until_complete(self.semaphore.acquire())
        asyncio.run(self.client.close())
        with self.assertRaisesRegex(Closed, f"closed, so {permit.id} cannot be released: it is free when its lease"):
            asyncio.run(permit.release())
        with self.assertLogs("redis_lease_semaphore", "WARNING") as logs:
            asyncio.run(block())
        self.assertIn("cannot be released", logs.output[0])
        self.assertIs(home.run_until_complete(permit.release()), True)
        home.run_until_complete(self.client.close())

    def test_a_permit_is_lost_when_its_loop_ends(self):
        async def main():
            await self.client.connect()
            return await self.semaphore.acquire()

        permit = asyncio.run(main())
        self.assertTrue(permit.is_lost)
        self.assertTrue(self.keys.are_empty())
        self.assertIs(asyncio.run(permit.release()), False)

    def test_close_in_another_loop_ends_the_waits_of_all(self):
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        call = lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop)
        call(self.client.connect()).result()
        held = call(self.semaphore._acquire(None, 1)).result()
        wait = call(self.semaphore._acquire(None, 1))
        until(lambda: self.keys.queued() == 1)
        asyncio.run(self.client.close())
        self.assertIsInstance(wait.exception(DEADLINE), Closed)
        self.assertEqual((self.keys.held(), self.keys.queued()), (1, 0))
        for make in (self.semaphore.acquire, self.client.connect):
            with self.assertRaises(Closed):
                asyncio.run(self.run_one(make))
        self.assertTrue(call(held.release()).result())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def test_close_that_ends_the_wait_and_the_loop_of_another_thread_logs_no_warning(self):
        async def wait():
            with self.assertRaises(Closed):
                await semaphore.acquire()

        async def main():
            async with SemaphoreClient(URL) as client:
                nonlocal semaphore
                semaphore = client.semaphore(self.name, limit=1)
                async with semaphore.acquire():
                    thread = threading.Thread(target=asyncio.run, args=[wait()])
                    thread.start()
                    await until_async(lambda: self.keys.queued() == 1)
                    await client.close()
                    await asyncio.to_thread(thread.join)

        for _ in range(10):
            semaphore = None
            with self.assertNoLogs("redis_lease_semaphore", "WARNING"):
                asyncio.run(main())
            self.assertTrue(self.keys.are_empty())

    async def run_one(self, make):
        return await make()

    def test_one_that_was_never_connected_is_closed(self):
        with self.assertRaisesRegex(Closed, "not connected"):
            asyncio.run(self.run_one(self.semaphore.acquire))

    def test_another_loop(self):
        try:
            import uvloop
        except ImportError:
            self.skipTest("there is no uvloop")
        uvloop.run(self.client.connect())
        for _ in range(2):
            uvloop.run(self.hand_over())
        uvloop.run(self.take_turns())
        gc.collect()
        self.assertTrue(self.keys.are_empty())


if __name__ == "__main__":
    unittest.main()
