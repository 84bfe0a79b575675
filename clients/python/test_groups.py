import asyncio
import enum
import pickle
import subprocess
import sys
import textwrap
import unittest

import redis_lease_semaphore
from redis_lease_semaphore import AcquireTimeout, Group, ids, scripts
from redis_lease_semaphore.asyncio import SemaphoreClient

from support import DEADLINE, URL, Keys, Server, new_name, until, until_async

NONCE = "n" * 16


class Tenant(str, enum.Enum):
    SEVEN = "tenant-7"


class Groups(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.name = new_name()
        self.keys = Keys(URL, self.name)
        self.addCleanup(self.keys.close)

    async def another(self, limit=1, **settings):
        """Returns the semaphore of another client."""
        client = SemaphoreClient(URL, heartbeat_timeout=600)  # heartbeats are due after minutes
        await client.connect()
        self.addAsyncCleanup(client.close)
        return client.semaphore(self.name, limit, **settings)

    async def queue(self, semaphore, **arguments):
        """Returns a waiting task whose request is in the queue."""
        before = self.keys.queued()
        task = asyncio.create_task(semaphore.acquire(**arguments))
        await until_async(lambda: self.keys.queued() == before + 1)
        return task

    async def test_waiting_groups_are_granted_permits_in_proportion_to_their_shares(self):
        first, second = await self.another(), await self.another()
        for small in ("a", None):  # requests without a group form a group with a share of 1
            held = await first.acquire()
            waits = {await self.queue(first, group=small): "a" for _ in range(4)}
            waits |= {await self.queue(second, group=Group("b", share=3)): "b" for _ in range(12)}
            order = ""
            while waits:
                await held.release()
                (granted,), _ = await asyncio.wait(waits, timeout=DEADLINE, return_when=asyncio.FIRST_COMPLETED)
                order += waits.pop(granted)
                held = granted.result()
            await held.release()
            # While both groups wait, the weights divided by the shares differ by at most the sum of 1 / share.
            for end in range(min(order.rindex("a"), order.rindex("b")) + 2):
                granted_a, granted_b = order[:end].count("a"), order[:end].count("b")
                self.assertLess(abs(granted_a - granted_b / 3), 1 + 1 / 3 + 1e-9, order)
            self.assertTrue(self.keys.are_empty())

    async def test_a_group_at_its_cap_waits_and_delays_no_other_group(self):
        semaphore = await self.another(limit=3, group_cap=1)
        held = await semaphore.acquire(group="a")
        with self.assertRaises(AcquireTimeout):
            await semaphore.acquire(group="a", timeout=0.001)
        self.assertIsNone(await semaphore.try_acquire(group="a"))
        wait = await self.queue(semaphore, group="a")
        async with await semaphore.try_acquire(group="b"), await semaphore.try_acquire():
            self.assertFalse(wait.done())
            self.assertEqual(self.keys.held(), 3)
        await held.release()
        async with await wait:
            async with await semaphore.try_acquire(group=Group("a", cap=2)):  # a larger cap applies to new requests
                pass
        self.assertTrue(self.keys.are_empty())

    async def test_an_id_has_the_group_with_its_share_and_cap(self):
        semaphore = await self.another(limit=9, group_share=2, group_cap=7)
        self.assertEqual((semaphore.group_share, semaphore.group_cap), (2, 7))
        largest = Group("x" * 64, 1000, 2**32 - 1)
        for group, part in (
            ("tenant-7", "tenant-7,2,7"),
            (Tenant.SEVEN, "tenant-7,2,7"),
            (Group("A.z_0-", share=3), "A.z_0-,3,7"),
            (Group("a", cap=5), "a,2,5"),
            (largest, f"{'x' * 64},1000,4294967295"),
        ):
            async with semaphore.acquire(weight=4, group=group) as permit:
                self.assertEqual(permit.id.split(":")[4:-1], [part])
                self.assertEqual(list(self.keys.ends()), [permit.id])
        async with semaphore.acquire() as permit:
            self.assertEqual(len(permit.id.split(":")), 5)
        plain = await self.another(limit=9)
        async with plain.acquire(group="a") as permit:
            self.assertEqual(permit.id.split(":")[4], "a,1,0")

    async def test_wrong_groups_are_rejected_before_the_call(self):
        semaphore = await self.another(limit=9)
        names = 'a name of 1 to 64 letters, digits, ".", "_" or "-", not '
        for group, why in (
            ("", names + "''"),
            ("x" * 65, names),
            ("a:b", names + "'a:b'"),
            ("a,1,1", names + "'a,1,1'"),
            ("a\n", names),
            ("é", names),
            (7, names + "7"),
            (Group(None), names + "None"),
            ("redis://:s3cret@h", names + "a text with a URL"),
            (Group("a", share=0), "a group's share is a whole number from 1 to 1000, not 0"),
            (Group("a", share=1001), "share is a whole number from 1 to 1000, not 1001"),
            (Group("a", share=True), "not True"),
            (Group("a", cap=1), "a group's cap for the weight 2 is a whole number from 2 to 4294967295, not 1"),
            (Group("a", cap=2**32), "not 4294967296"),
        ):
            for acquire in (semaphore.acquire, semaphore.try_acquire):
                with self.assertRaises(ValueError) as caught:
                    await acquire(weight=2, group=group)
                self.assertIn(why, str(caught.exception))
        for settings in ({"group_share": 0}, {"group_share": 1001}, {"group_cap": 0}, {"group_cap": 2.5}):
            with self.assertRaisesRegex(ValueError, "group_(share|cap) is a whole number from 1"):
                semaphore._client.semaphore(new_name(), limit=1, **settings)
        with self.assertRaisesRegex(ValueError, "group_share 1 and group_cap None already"):
            semaphore._client.semaphore(self.name, limit=9, group_cap=3)
        capped = await self.another(limit=9, group_cap=1)
        with self.assertRaisesRegex(ValueError, "from 2 to 4294967295, not 1"):
            await capped.acquire(weight=2, group="a")
        self.assertFalse(self.keys.connection.exists(self.keys.state))  # nothing was sent

    async def test_clients_without_groups_use_a_semaphore_that_has_groups(self):
        early, late, grouped = [await self.another(limit=2) for _ in range(3)]
        permit = await early.acquire()
        held = await grouped.acquire(group="a")
        self.assertFalse(early._keys.has_groups)
        wait = await self.queue(early)  # its call is repeated with all keys
        self.assertTrue(early._keys.has_groups)
        self.assertIsNone(await late.try_acquire())
        self.assertTrue(await held.release())
        self.assertTrue(await permit.release())
        self.assertTrue(await (await wait).release())
        self.assertTrue(self.keys.are_empty())

    async def test_the_first_call_with_a_group_is_not_repeated(self):
        server = Server()
        self.addCleanup(server.close)
        async with SemaphoreClient(server.url) as client:
            await (await client.semaphore("plain", limit=1).acquire()).release()  # now the server knows the scripts
            before = server.script_calls()
            async with client.semaphore("grouped", limit=1).acquire(group="a"):
                self.assertEqual(server.script_calls(), before + 1)

    async def test_a_permit_without_groups_is_refreshed_and_released(self):
        plain, grouped = await self.another(limit=2, lease=3.0), await self.another(limit=2)
        permit = await plain.acquire()
        async with grouped.acquire(group="a") as other:
            (start,) = (end for request_id, end in self.keys.ends().items() if request_id == permit.id)
            await until_async(lambda: self.keys.ends().get(permit.id, 0) > start)
            self.assertIs(await permit.release(), True)
            self.assertEqual(list(self.keys.ends()), [other.id])

    async def test_a_permit_of_a_group_that_no_waiter_wants_is_released(self):
        semaphore = await self.another()
        held = await semaphore.acquire(group="a")
        # The request reaches the server as if its release had overtaken it.
        request_id = ids.new(semaphore._client._client, 1, 30_000, Group("a", 1, 0))
        source, keys = scripts.SCRIPTS["acquire"]["source"], scripts.keys("sem", self.name)
        reply = self.keys.connection.eval(source, len(keys), *keys, "declare_if_unset", 1, 15_000, request_id, "wait")
        self.assertEqual(reply[3], 2)
        await held.release()
        await until_async(self.keys.are_empty)

    async def test_the_lease_of_an_id(self):
        for group, is_valid in (
            ("", True), ("a,1,0:", True), ("a,1000,4294967295:", True), (f"{'x' * 64},1,2:", True), (":", False),
            ("a:", False), ("a,1:", False), (",1,0:", False), ("a,0,0:", False), ("a,1001,0:", False),
            ("a,1,1:", False), ("a,1,4294967296:", False), ("a,01,0:", False), ("a,1,02:", False),
            (f"{'x' * 65},1,0:", False), ("é,1,0:", False), ("a,1,0:b,1,0:", False),
        ):
            lease = ids.lease_of("c", f"P:c:2:30000:{group}{NONCE}")
            self.assertEqual(lease, 30 if is_valid else None, group)

    async def test_groups_are_values(self):
        group = Group("a", share=3)
        self.assertEqual((group, hash(group)), (Group("a", 3, None), hash(Group("a", 3))))
        self.assertEqual(pickle.loads(pickle.dumps(group)), group)
        with self.assertRaises(AttributeError):
            group.share = 4


class Threads(unittest.TestCase):
    def setUp(self):
        self.name = new_name()
        self.keys = Keys(URL, self.name)
        self.addCleanup(self.keys.close)
        self.client = redis_lease_semaphore.SemaphoreClient(URL)
        self.client.connect()
        self.addCleanup(self.client.close)

    def test_processes_share_a_cap(self):
        semaphore = self.client.semaphore(self.name, limit=3, group_share=2, group_cap=1)
        self.assertEqual((semaphore.group_share, semaphore.group_cap), (2, 1))
        program = textwrap.dedent("""
            import sys, redis_lease_semaphore
            with redis_lease_semaphore.SemaphoreClient(sys.argv[1]) as client:
                semaphore = client.semaphore(sys.argv[2], limit=3, group_cap=1)
                with semaphore.acquire(group="a"):
                    print("held", flush=True)
                    sys.stdin.read()
        """)
        words = [sys.executable, "-c", program, URL, self.name]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            try:
                self.assertEqual(holder.stdout.readline(), "held\n")
                self.assertIsNone(semaphore.try_acquire(group="a"))
                with semaphore.acquire(group="b") as other, semaphore.try_acquire(group=Group("a", cap=2)) as more:
                    self.assertEqual(other.id.split(":")[4], "b,2,1")
                    self.assertEqual(more.id.split(":")[4], "a,2,2")
                holder.stdin.close()
                with semaphore.acquire(group="a"):  # waits for the process
                    pass
                self.assertEqual(holder.wait(DEADLINE), 0)
            finally:
                holder.kill()
        until(self.keys.are_empty)

    def test_a_wrong_group_is_rejected(self):
        semaphore = self.client.semaphore(self.name, limit=1)
        for acquire in (semaphore.acquire, semaphore.try_acquire):
            with self.assertRaisesRegex(ValueError, "not 'a:b'"):
                acquire(group="a:b")

    def test_another_event_loop_has_the_same_defaults(self):
        client = SemaphoreClient(URL)
        semaphore = client.semaphore(self.name, limit=2, group_share=5, group_cap=1)

        async def hold():
            async with semaphore.acquire(group="a") as permit:
                self.assertEqual(permit.id.split(":")[4], "a,5,1")
                self.assertIsNone(await semaphore.try_acquire(group="a"))

        async def begin():
            await client.connect()
            await hold()

        asyncio.run(begin())
        asyncio.run(hold())
        asyncio.run(client.close())
        until(self.keys.are_empty)


if __name__ == "__main__":
    unittest.main()
