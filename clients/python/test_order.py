"""The order of the program's calls, while the server has not replied to an earlier call."""

import asyncio
import logging
import threading
import unittest
import warnings

import redis_lease_semaphore
from redis_lease_semaphore import scripts
from redis_lease_semaphore.asyncio import SemaphoreClient

from support import Server, new_name, until, until_async


class Order(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.close)

    async def asyncSetUp(self):
        self.client = SemaphoreClient(self.server.url, response_timeout=60)
        await self.client.connect()
        self.addAsyncCleanup(self.client.close)

    async def semaphore_with_a_silent_server(self):
        """Holds all of two permits, and releases the first, but the server does not reply."""
        self.semaphore = self.client.semaphore(new_name(), limit=2)
        first, self.second = await self.semaphore.acquire(), await self.semaphore.acquire()
        self.wait = asyncio.create_task(self.semaphore.acquire(weight=2))
        await until_async(lambda: self.semaphore._waits and not self.unanswered())
        self.server.stop()
        self.release = asyncio.create_task(first.release())
        await until_async(self.unanswered)

    def unanswered(self):
        return self.client._link._line._replies

    async def start(self, call):
        """Starts a call in a task."""
        task = asyncio.create_task(call)
        await asyncio.sleep(0)
        return task

    async def outcome(self, call):
        """Returns whether a call has returned a permit, which it releases. The server replies from now on."""
        task = await self.start(call)
        self.server.go_on()
        permit = await task
        if permit is not None:
            await permit.release()
        return permit is not None

    async def test_a_call_takes_effect_after_earlier_releases(self):
        async def released():
            self.wait.cancel()
            await self.start(self.second.release())
            return 2

        async def dropped():
            self.wait.cancel()
            self.second = None
            return 2

        async def canceled():
            self.wait.cancel()
            await asyncio.gather(self.wait, return_exceptions=True)
            return 1

        async def canceled_just_now():
            self.wait.cancel()
            return 1

        async def canceled_before_it_was_sent():
            self.wait.cancel()
            wait = await self.start(self.semaphore.acquire(weight=2))
            wait.cancel()
            return 1

        logging.disable(logging.WARNING)
        self.addCleanup(logging.disable, logging.NOTSET)
        for way in (released, dropped, canceled, canceled_just_now, canceled_before_it_was_sent):
            with self.subTest(way.__name__), warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                await self.semaphore_with_a_silent_server()
                weight = await way()
                self.assertTrue(await self.outcome(self.semaphore.try_acquire(weight)))
                if self.second is not None:
                    await self.second.release()

    async def test_a_release_takes_effect_after_earlier_calls(self):
        await self.semaphore_with_a_silent_server()
        self.wait.cancel()
        early = await self.start(self.semaphore.try_acquire(2))
        release = await self.start(self.second.release())
        self.assertTrue(await self.outcome(self.semaphore.try_acquire(2)))
        self.assertEqual((await early, await release, await self.release), (None, True, True))

    async def test_a_release_that_the_server_lets_repeat_comes_before_the_next_request(self):
        other = SemaphoreClient(self.server.url)
        await other.connect()
        self.addAsyncCleanup(other.close)
        for groups in ((None, None), ("other", "own")):
            with self.subTest(groups):
                name = new_name()
                semaphore = self.client.semaphore(name, limit=2)
                permit = await semaphore.acquire()
                async with other.semaphore(name, limit=2).acquire(group=groups[0]):
                    self.server.connection.script_flush()
                    self.server.connection.script_load(scripts.SCRIPTS["acquire"]["source"])
                    release = await self.start(permit.release())
                    self.assertTrue(await self.outcome(semaphore.try_acquire(group=groups[1])))
                    self.assertTrue(await release)

    async def test_a_release_does_not_wait_for_a_request_that_must_wait_for_the_subscription(self):
        semaphore = self.client.semaphore(new_name(), limit=1)
        permit = await semaphore.acquire()
        self.client._listener.error = Exception("cut")
        wait = await self.start(semaphore.acquire())
        self.assertTrue(await permit.release())
        self.client._listener.error = None
        await (await wait).release()

    def test_a_permit_that_a_thread_drops_is_free_for_its_next_call(self):
        with redis_lease_semaphore.SemaphoreClient(self.server.url, response_timeout=60) as client:
            semaphore = client.semaphore(new_name(), limit=2)
            first, second = semaphore.acquire(), semaphore.acquire()
            self.server.stop()
            others = [threading.Thread(target=first.release), threading.Thread(target=lambda: made.append(
                semaphore.try_acquire(weight=2)))]
            others[0].start()
            until(lambda: client._core._link._line._replies)
            made = []
            with self.assertWarns(ResourceWarning), self.assertLogs("redis_lease_semaphore"):
                del second
                others[1].start()
                until(lambda: semaphore._core._waits)
                self.server.go_on()
                for other in others:
                    other.join()
            self.assertTrue(made[0].release())


if __name__ == "__main__":
    unittest.main()
