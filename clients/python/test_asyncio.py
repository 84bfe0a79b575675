import asyncio
import enum
import math
import random
import time
import unittest
from decimal import Decimal

from redis_lease_semaphore import AcquireTimeout, Closed, PermitLost, TooHeavy, ids, scripts
from redis_lease_semaphore.asyncio import SemaphoreClient

from support import DEADLINE, HUGE, URL, Keys, new_name, until_async


class Asyncio(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.name = new_name()
        self.keys = Keys(URL, self.name)
        self.addCleanup(self.keys.close)
        self.client = await self.connect()
        self.semaphore = self.client.semaphore(self.name, limit=1)

    async def connect(self, url=URL, **settings):
        client = SemaphoreClient(url, **settings)
        await client.connect()
        self.addAsyncCleanup(client.close)
        return client

    async def another(self, limit=1, lease=30.0, **settings):
        """Returns the semaphore of another client."""
        return (await self.connect(**settings)).semaphore(self.name, limit, lease)

    async def queue(self, semaphore, **arguments):
        """Returns a waiting task whose request is in the queue."""
        before = self.keys.queued()
        task = asyncio.create_task(semaphore.acquire(**arguments))
        await until_async(lambda: self.keys.queued() == before + 1)
        return task

    async def test_a_permit_is_a_context_manager(self):
        async with self.semaphore.acquire() as permit:
            self.assertEqual(self.keys.held(), 1)
            self.assertFalse(permit.is_lost)
            self.assertIsNone(await self.semaphore.try_acquire())
        self.assertTrue(self.keys.are_empty())
        self.assertIs(await permit.release(), True)
        async with await self.semaphore.try_acquire() as later:
            self.assertGreater(later.fencing_token, permit.fencing_token)

    async def test_an_error_of_the_body_passes(self):
        with self.assertRaises(ZeroDivisionError):
            async with await self.semaphore.acquire():
                1 / 0
        self.assertTrue(self.keys.are_empty())

    async def test_permits_are_handed_on_in_order(self):
        other = await self.another()
        held = await self.semaphore.acquire()
        waits = [await self.queue(semaphore) for semaphore in (other, self.semaphore, other, other)]
        while waits:
            self.assertFalse(any(wait.done() for wait in waits))
            await held.release()
            held = await waits.pop(0)
        await held.release()
        self.assertTrue(self.keys.are_empty())

    async def test_concurrent_acquires_of_one_object(self):
        semaphore = await self.another(limit=3)
        inside, most, order = 0, 0, []

        async def work(number):
            nonlocal inside, most
            async with await semaphore.acquire():
                order.append(number)
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

        await asyncio.gather(*(work(number) for number in range(200)))
        self.assertEqual(order, list(range(200)))
        self.assertLessEqual(most, 3)
        self.assertTrue(self.keys.are_empty())

    async def test_weights(self):
        semaphore = await self.another(limit=4)
        three = await semaphore.acquire(weight=3)
        heavy = await self.queue(semaphore, weight=4)
        light = await self.queue(semaphore, weight=1)  # would fit, but must not overtake
        self.assertIsNone(await semaphore.try_acquire())
        self.assertFalse(light.done())
        await three.release()
        await (await heavy).release()
        await (await light).release()
        self.assertTrue(self.keys.are_empty())

    async def test_too_heavy_for_the_limit_beside_others(self):
        semaphore = await self.another(limit=2)
        results = await asyncio.gather(
            semaphore.acquire(), semaphore.acquire(weight=3), semaphore.acquire(), return_exceptions=True
        )
        self.assertIsInstance(results[1], TooHeavy)
        self.assertEqual((results[1].weight, results[1].limit), (3, 2))
        for permit in (results[0], results[2]):
            self.assertTrue(await permit.release())
        self.assertTrue(self.keys.are_empty())

    async def test_too_heavy_after_the_limit_was_lowered(self):
        held = await (await self.another(limit=2)).acquire(weight=2)
        wait = await self.queue(await self.another(limit=2), weight=2)
        with self.assertLogs("redis_lease_semaphore", "WARNING") as log:
            self.assertIsNone(await self.semaphore.try_acquire())
        self.assertIn("the declared limit was 2, and is 1 now", log.output[0])
        await held.release()
        with self.assertRaises(TooHeavy):
            await wait

    async def test_one_semaphore_of_a_name(self):
        self.assertIs(self.client.semaphore(self.name, limit=1), self.semaphore)
        with self.assertRaises(ValueError):
            self.client.semaphore(self.name, limit=2)

    async def test_no_error_contains_a_url_that_is_passed_as_another_argument(self):
        url = "redis://:s3cret@127.0.0.1 "
        calls = [
            *(lambda setting=setting: SemaphoreClient(URL, **{setting: url})
              for setting in ("prefix", "response_timeout", "heartbeat_timeout", "outage_tolerance")),
            *(lambda setting=setting: self.client.semaphore(new_name(), **{"limit": 1, setting: url})
              for setting in ("limit", "lease", "max_hold")),
            lambda: self.client.semaphore(url + "{", limit=1),
        ]
        for call in calls:
            with self.assertRaises(ValueError) as caught:
                call()
            self.assertNotIn("s3cret", str(caught.exception))

    async def test_wrong_arguments(self):
        for limit, lease in ((-1, 1), (2**32, 1), (1, 0), (1, 604801)):
            with self.assertRaises(ValueError):
                self.client.semaphore(self.name, limit=limit, lease=lease)
        wrong_times = (-1, -1e-9, math.nan, -math.inf, -HUGE, "1", True, 1j, Decimal(1))
        wrong = {
            "prefix": ("", "a}b", 5), "heartbeat_timeout": (0, 1e9, math.inf, HUGE, *wrong_times),
            "outage_tolerance": (HUGE, *wrong_times), "response_timeout": (0, HUGE, *wrong_times),
        }
        for setting, values in wrong.items():
            for value in values:
                with self.assertRaisesRegex(ValueError, "prefix has|is a time from"):
                    SemaphoreClient(URL, **{setting: value})
        for setting in ("lease", "max_hold"):
            for value in (0, math.inf, HUGE, *wrong_times):
                with self.assertRaisesRegex(ValueError, "is a time from"):
                    self.client.semaphore(new_name(), limit=1, **{setting: value})
        for name in ("", "a{b", "a\nb", "é" * 257, "\udc80", 5):
            with self.assertRaisesRegex(ValueError, "a name has"):
                self.client.semaphore(name, limit=1)
        for limit in (2.5, True, "2", HUGE, None):
            with self.assertRaisesRegex(ValueError, "a limit is a whole number"):
                self.client.semaphore(new_name(), limit=limit)
        for weight in (0, 2**32, 1.5, 2.0, True, HUGE, -HUGE, math.nan, None):
            for acquire in (self.semaphore.acquire, self.semaphore.try_acquire):
                with self.assertRaisesRegex(ValueError, "a weight is a whole number"):
                    await acquire(weight=weight)
        for timeout in (math.nan, "1", True, 1j, Decimal(1)):
            with self.assertRaisesRegex(ValueError, "a timeout is a time"):
                await self.semaphore.acquire(timeout=timeout)
        self.assertFalse(self.semaphore._waits)
        self.assertTrue(self.keys.are_empty())

    async def test_a_timeout_that_is_larger_than_any_float_never_ends(self):
        async with self.semaphore.acquire(timeout=HUGE):
            wait = await self.queue(self.semaphore, timeout=HUGE)
        await (await wait).release()
        self.assertTrue(self.keys.are_empty())

    async def test_a_weight_of_an_enumeration(self):
        class Weight(int, enum.Enum):
            HEAVY = 2

        semaphore = self.client.semaphore(new_name(), limit=2)
        async with semaphore.acquire(weight=Weight.HEAVY) as permit:
            self.assertEqual(permit.weight, 2)

    async def test_text_from_the_connection_is_no_matter(self):
        in_url = {"url": URL + "?decode_responses=True"}
        for settings in ({"decode_responses": True}, in_url):
            semaphore = await self.another(heartbeat_timeout=600, **settings)
            held = await self.semaphore.acquire()
            waiting = await self.queue(semaphore)
            await held.release()
            permit = await asyncio.wait_for(waiting, DEADLINE)  # by a message, because the heartbeat is due after 200 s
            self.assertTrue(await permit.release())

    async def test_a_defect_makes_nobody_deaf(self):
        client = await self.connect(heartbeat_timeout=600)
        listener, held = client._listener, await self.semaphore.acquire()
        waiting = await self.queue(client.semaphore(self.name, limit=1))
        on_message = listener._on_message

        def fail(data):
            listener._on_message = on_message
            raise ZeroDivisionError

        listener._on_message = fail
        with self.assertLogs("redis_lease_semaphore", "ERROR"):
            await held.release()
            permit = await asyncio.wait_for(waiting, DEADLINE)
        self.assertTrue(await permit.release())

    async def test_close_while_it_subscribes_again(self):
        for delay in range(0, 30, 2):
            client = SemaphoreClient(URL, heartbeat_timeout=3)
            await client.connect()
            self.keys.connection.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            await asyncio.sleep(delay / 1000)
            await asyncio.wait_for(client.close(), DEADLINE)

    async def test_a_timeout_leaves_nothing_behind(self):
        held = await self.semaphore.acquire()
        with self.assertRaises(AcquireTimeout):
            await self.semaphore.acquire(timeout=0.05)
        await until_async(lambda: self.keys.queued() == 0)
        await held.release()
        self.assertTrue(self.keys.are_empty())

    async def test_a_timeout_of_0_is_a_try(self):
        async with self.semaphore.acquire(timeout=0):
            with self.assertRaises(AcquireTimeout):
                await self.semaphore.acquire(timeout=0)
        self.assertTrue(self.keys.are_empty())

    async def test_a_negative_timeout_is_a_try(self):
        for timeout in (-1, -1e-9, -math.inf, -HUGE):
            async with self.semaphore.acquire(timeout=timeout):
                with self.assertRaises(AcquireTimeout):
                    await self.semaphore.acquire(timeout=timeout)
        self.assertTrue(self.keys.are_empty())

    async def test_an_acquire_before_connect_names_connect(self):
        semaphore = SemaphoreClient(URL).semaphore(self.name, limit=1)
        with self.assertRaisesRegex(Closed, r"not connected: call connect\(\) first, or use .* `with`"):
            await semaphore.acquire()

    async def test_a_cancelled_wait_leaves_nothing_behind(self):
        held = await self.semaphore.acquire()
        wait = await self.queue(self.semaphore)
        wait.cancel()
        await asyncio.gather(wait, return_exceptions=True)
        await until_async(lambda: self.keys.queued() == 0)
        await held.release()
        self.assertTrue(self.keys.are_empty())

    async def test_cancelled_at_any_moment(self):
        semaphore = await self.another(limit=2)
        rng = random.Random(7)

        async def hold():
            async with await semaphore.acquire():
                await asyncio.sleep(rng.random() / 500)

        for _ in range(20):
            tasks = [asyncio.create_task(hold()) for _ in range(20)]
            while not all(task.done() for task in tasks):
                rng.choice(tasks).cancel()
                await asyncio.sleep(rng.random() / 500)
            await asyncio.gather(*tasks, return_exceptions=True)
        await until_async(self.keys.are_empty)
        permits = [await semaphore.try_acquire(), await semaphore.try_acquire()]
        self.assertNotIn(None, permits)

    async def test_what_is_released_while_all_tasks_are_cancelled(self):
        async def hold():
            async with self.semaphore.acquire():
                await asyncio.Event().wait()

        for is_holder_first in (True, False):
            holder = asyncio.create_task(hold())
            await until_async(lambda: self.semaphore._permits and self.semaphore._rest)
            tasks = [holder, self.semaphore._worker]
            for task in tasks if is_holder_first else reversed(tasks):
                task.cancel()
            await asyncio.wait(tasks)  # like asyncio.run at its end
            self.assertTrue(self.keys.are_empty())

    async def test_a_wait_is_cancelled_when_it_was_granted_just_now(self):
        grant, granted = self.semaphore._grant, []

        def grant_and_cancel(claim, *arguments):
            grant(claim, *arguments)
            wait.cancel()  # before the task runs again
            granted.append(claim.outcome.result())

        self.semaphore._grant = grant_and_cancel
        wait = asyncio.create_task(self.semaphore.acquire())
        with self.assertRaises(asyncio.CancelledError):
            await wait
        self.assertIsNotNone(granted[0])
        await until_async(self.keys.are_empty)

    async def test_a_lease_is_refreshed_beyond_its_length(self):
        semaphore = await self.another(limit=2, lease=3)
        permits = [await semaphore.acquire(), await semaphore.acquire()]
        first_ends = self.keys.ends()

        def all_are_long_over():
            seconds, microseconds = self.keys.connection.time()
            return seconds * 1000 + microseconds // 1000 > max(first_ends.values()) + 3000

        await until_async(all_are_long_over)
        self.assertIsNone(await semaphore.try_acquire())
        for permit in permits:
            self.assertFalse(permit.is_lost)
            self.assertTrue(await permit.release())
            self.assertEqual(permit.expires_in, 0)

    async def test_a_permit_whose_key_was_deleted_is_lost_at_the_next_refresh(self):
        semaphore = await self.another(limit=1, lease=15)
        permit = await semaphore.acquire()
        self.assertGreater(permit.expires_in, 0)
        self.keys.connection.delete(self.keys.permits)
        await asyncio.wait_for(permit.lost.wait(), DEADLINE)
        self.assertLess(time.monotonic(), permit._held.deadline)
        self.assertEqual(permit.expires_in, 0)
        self.assertTrue(permit.is_lost)
        with self.assertRaises(PermitLost):
            permit.check()
        self.assertIs(await permit.release(), False)

    async def test_a_loss_is_told_at_the_end_of_the_block(self):
        with self.assertRaises(PermitLost):
            async with await self.semaphore.acquire():
                self.keys.connection.delete(self.keys.permits)

    async def test_a_loss_is_told_although_the_loop_is_busy(self):
        permit = await (await self.another(lease=0.2)).acquire()
        while permit.expires_in > 0:
            pass  # the loop does not run
        self.assertFalse(permit.lost.is_set())
        self.assertTrue(permit.is_lost)
        self.assertIs(await permit.release(), False)
        self.assertTrue(permit.lost.is_set())

    async def test_a_turn_in_spite_of_killed_subscriptions(self):
        held = await self.semaphore.acquire()
        patient = await self.another(heartbeat_timeout=600)  # heartbeats are due after minutes
        waits = [await self.queue(patient) for _ in range(2)]
        for wait in waits:
            # No client is subscribed at the release, so the server skips the waiter for now.
            self.keys.connection.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            await held.release()
            held = await asyncio.wait_for(wait, DEADLINE)
        await held.release()
        self.assertTrue(self.keys.are_empty())

    async def test_a_cut_subscription_is_made_anew_at_once(self):
        client = await self.connect()
        channel = scripts.channel("sem", client._client)
        listening = lambda count: self.keys.connection.pubsub_numsub(channel) == [(channel, count)]
        pauses = []
        while len(pauses) < 9 or sorted(pauses[-9:])[4] > 0.1:  # most of them, because the machine may be busy
            self.assertLess(len(pauses), 100)
            self.keys.connection.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            start = time.monotonic()
            await until_async(lambda: listening(1))
            pauses.append(time.monotonic() - start)
            self.keys.connection.publish(channel, "")  # the subscription worked
            await until_async(lambda: client._deaf_because is None and client._listener._pauses._last == 0)

    async def test_strange_messages_are_ignored(self):
        held = await self.semaphore.acquire()
        wait = await self.queue(self.semaphore)
        (request_id,) = self.keys.connection.zrange(self.keys.queue, 0, -1)
        server_ms = self.keys.connection.time()[0] * 1000
        channel = scripts.channel("sem", self.client._client)
        publish = lambda message: self.keys.connection.publish(channel, message)
        for message in (
            "\n\n",
            f"{self.name}\n{request_id} 1 {server_ms + 90000}\nrubbish",
            f"other\n{request_id} 1 {server_ms + 90000}",
            f"{self.name}\nsomebody 1 {server_ms + 90000}",
            f"{self.name}\n{request_id} 1 {server_ms + 20000}",  # a grant before it was queued
        ):
            self.assertEqual(publish(message), 1)
        # When this message was handled, the others were, too.
        self.assertEqual(publish(f"{self.name}\n{request_id} 0 0"), 1)
        heard = self.keys.connection.zscore(self.keys.clients, self.client._client)
        await until_async(lambda: self.keys.connection.zscore(self.keys.clients, self.client._client) != heard)
        self.assertFalse(wait.done())
        await held.release()
        await (await wait).release()

    async def test_a_hand_off_after_half_of_the_lease_is_not_taken_on_trust(self):
        semaphore = await self.another(lease=4, heartbeat_timeout=600)
        held = await self.semaphore.acquire()
        wait = await self.queue(semaphore)
        (claim,) = semaphore._waits.values()
        await until_async(lambda: asyncio.get_running_loop().time() > claim.asked_at + 2.4)
        await held.release()
        permit = await asyncio.wait_for(wait, DEADLINE)
        self.assertGreater(permit.expires_in, 2)
        self.assertTrue(await permit.release())

    async def test_a_reply_that_is_read_after_half_of_the_lease_is_not_taken_on_trust(self):
        semaphore = await self.another(lease=4)
        call = semaphore._client._call

        async def read_late(*arguments):
            semaphore._client._call = call
            start, reply = time.monotonic(), await call(*arguments)
            while time.monotonic() < start + 2.2:
                pass  # the loop does not run
            return reply

        semaphore._client._call = read_late
        permit = await semaphore.acquire()
        self.assertGreater(permit.expires_in, 2)
        self.assertTrue(await permit.release())

    async def test_the_first_refresh_is_planned_from_the_start_of_the_lease(self):
        permit = await self.semaphore.acquire()
        before_its_end = permit._held.deadline - self.semaphore._refresh_at
        # The deadline is 1 ms before the lease expires.
        self.assertAlmostEqual(before_its_end, self.semaphore.lease * 2 / 3 - 0.001, places=6)
        await permit.release()

    async def test_a_release_is_repeated_for_as_long_as_a_late_refresh_may_hold_the_permit(self):
        permit = await self.semaphore.acquire()
        permit._release_in_background()
        self.assertGreater(self.semaphore._releases[permit.id].until, permit._held.deadline + 1e-6)
        self.assertTrue(await permit.release())

    async def test_close_ends_waits_and_takes_no_permit_away(self):
        connections = len(self.keys.connection.client_list())
        client = await self.connect()
        semaphore = client.semaphore(self.name, limit=1)
        async with semaphore.acquire() as held:
            wait = await self.queue(semaphore)
            await client.close()
            with self.assertRaises(Closed):
                await wait
            for call in (semaphore.acquire, client.connect):
                with self.assertRaises(Closed):
                    await call()
            self.assertFalse(held.is_lost)
            self.assertEqual((self.keys.held(), self.keys.queued()), (1, 0))
        self.assertTrue(self.keys.are_empty())
        await until_async(lambda: len(self.keys.connection.client_list()) == connections)

    async def test_a_permit_that_outlives_its_client_is_lost_in_time(self):
        client = await self.connect()
        held = await client.semaphore(self.name, limit=1, lease=1).acquire()
        await client.close()
        await asyncio.wait_for(held.lost.wait(), DEADLINE)
        self.assertIs(await held.release(), False)
        await until_async(self.keys.are_empty)
        await (await self.semaphore.acquire()).release()

    def queue_late_copy(self, client):
        """Sends a request as if it had reached the server after its release. Returns the ID of the request."""
        request_id = ids.new(client._client, 1, 30000)
        source, keys = scripts.SCRIPTS["acquire"]["source"], scripts.keys("sem", self.name)
        reply = self.keys.connection.eval(source, len(keys), *keys, "declare_if_unset", 1, 15000, request_id, "wait")
        self.assertEqual(reply[3], 2)
        return request_id

    async def test_a_permit_that_nobody_wants_is_given_back(self):
        for client in (self.client, await self.connect()):  # the second client has no semaphore of this name
            held = await self.semaphore.acquire()
            self.queue_late_copy(client)
            await held.release()
            await until_async(self.keys.are_empty)

    async def test_late_and_repeated_messages_release_nothing_that_is_in_use(self):
        held = await self.semaphore.acquire()
        wait = await self.queue(self.semaphore)
        (request_id,) = self.keys.connection.zrange(self.keys.queue, 0, -1)
        await held.release()
        permit = await wait
        channel = scripts.channel("sem", self.client._client)
        (end,) = self.keys.ends().values()
        stray = self.queue_late_copy(self.client)
        for request_id in (request_id, request_id, stray):
            line = f"{request_id} {permit.fencing_token} {round(end)}"
            self.assertEqual(self.keys.connection.publish(channel, f"{self.name}\n{line}"), 1)
        await until_async(lambda: self.keys.queued() == 0)  # all messages have arrived
        self.assertEqual(self.keys.held(), 1)
        self.assertIs(await permit.release(), True)
        # An invalid ID, or an ID of another client, would make the server reject the release of the others.
        for request_id in ("rubbish", f"P:{self.client._client}:1:30000:short", ids.new("other", 1, 30000),
                     f"P:{self.client._client}:4294967296:30000:{'n' * 16}"):
            self.keys.connection.publish(channel, f"{self.name}\n{request_id} 1 {round(end)}")
        self.keys.connection.publish(channel, f"a{{b\n{stray} 1 {round(end)}")
        self.assertTrue(await (await self.semaphore.acquire()).release())
        self.assertEqual(self.semaphore._releases, {})

    async def test_the_limit_is_declared_by_the_first_acquire(self):
        semaphore = await self.another(limit=3)
        await (await semaphore.acquire()).release()
        self.assertEqual(self.keys.connection.hget(self.keys.state, "declared"), "3")


if __name__ == "__main__":
    unittest.main()
