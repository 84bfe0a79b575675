"""Failures of the server or of a connection. Each test has its own server."""

import asyncio
import os
import time
import unittest

import redis

from redis_lease_semaphore import AcquireTimeout, Closed, MissingPermission, Rejected, SemaphoreError
from redis_lease_semaphore import TooHeavy, Unavailable, scripts
from redis_lease_semaphore.asyncio import SemaphoreClient

from support import DEADLINE, Keys, Proxy, Server, new_name, until, until_async


class Faults(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.server = Server()
        self.addCleanup(self.server.close)
        self.name = new_name()
        self.keys = Keys(self.server.url, self.name)
        self.addCleanup(self.keys.close)

    async def semaphore(self, url=None, limit=1, lease=30.0, **settings):
        client = SemaphoreClient(url or self.server.url, **settings)
        await client.connect()
        self.addAsyncCleanup(client.close)
        return client.semaphore(self.name, limit, lease)

    async def queue(self, semaphore, **arguments):
        before = self.keys.queued()
        task = asyncio.create_task(semaphore.acquire(**arguments))
        await until_async(lambda: self.keys.queued() == before + 1)
        return task

    def connections_so_far(self):
        return self.server.connection.info("stats")["total_connections_received"]

    async def test_who_waits_does_not_poll(self):
        held = await (await self.semaphore()).acquire()
        waits = [await self.queue(await self.semaphore(heartbeat_timeout=3.0))]
        start, before = time.monotonic(), self.server.script_calls()
        await until_async(lambda: self.server.script_calls() >= before + 2)
        self.assertGreater(time.monotonic() - start, 1.5)  # heartbeats are due every third of the heartbeat timeout
        waits[0].cancel()
        await until_async(lambda: self.keys.queued() == 0)
        wait = await self.queue(await self.semaphore(heartbeat_timeout=600))
        before = self.server.script_calls()
        await held.release()
        permit = await wait
        self.assertEqual(self.server.script_calls(), before + 1)  # only the release
        await permit.release()

    async def test_a_request_that_the_server_rejected_at_once_needs_no_release(self):
        self.server.connection.set(self.keys.queue, "something else")
        semaphore = await self.semaphore()
        before = self.server.script_calls()
        with self.assertRaisesRegex(Rejected, "SEM_TYPE"):
            await semaphore.acquire()
        await semaphore._client.close()
        self.assertEqual(self.server.script_calls(), before + 1)

    async def test_a_busy_server_is_unavailable_to_connect(self):
        self.server.connection.config_set("lua-time-limit", 50)
        self.server.connection.execute_command("ACL", "SETUSER", "u", "on", ">pw", "~*", "&*", "+@all")
        busy = asyncio.create_task(asyncio.to_thread(self.server.connection.eval, "while true do end", 0))
        with redis.Redis.from_url(self.server.url) as other:
            try:
                for url in (self.server.url, self.server.url.replace("//", "//u:pw@")):
                    with self.assertRaisesRegex(Unavailable, "BUSY"):
                        while True:  # until the script is busy
                            client = SemaphoreClient(url)
                            await client.connect()
                            await client.close()
            finally:
                other.script_kill()
        with self.assertRaises(redis.ResponseError):
            await busy

    async def test_one_call_refreshes_all_permits(self):
        semaphore = await self.semaphore(limit=50, lease=3)
        permits = await asyncio.gather(*(semaphore.acquire() for _ in range(50)))
        start, before = time.monotonic(), self.server.script_calls()
        await until_async(lambda: self.server.script_calls() >= before + 3)
        self.assertGreater(time.monotonic() - start, 1.9)
        await asyncio.gather(*(permit.release() for permit in permits))
        self.assertTrue(self.keys.are_empty())

    async def test_a_loss_is_told_in_time_while_the_server_is_silent(self):
        semaphore = await self.semaphore(lease=1.2, response_timeout=0.3)
        permit = await semaphore.acquire()
        start = time.monotonic()
        self.server.stop()
        try:
            await asyncio.wait_for(permit.lost.wait(), DEADLINE)
            self.assertGreater(time.monotonic() - start, 0.7)  # not before the lease expired
            self.assertIs(await permit.release(), False)
            with self.assertRaisesRegex(AcquireTimeout, "no permit within 0.1 s, and the last call failed: .*127"):
                await semaphore.acquire(timeout=0.1)
        finally:
            self.server.go_on()
        # A refresh that reached the server late is undone.
        await until_async(self.keys.are_empty)
        async with semaphore.acquire(timeout=DEADLINE):
            pass

    async def test_a_loss_is_told_in_time_when_the_server_is_gone(self):
        semaphore = await self.semaphore(lease=1.2)
        permit = await semaphore.acquire()
        self.server.kill()
        await asyncio.wait_for(permit.lost.wait(), DEADLINE)

    async def test_a_short_outage_loses_nothing(self):
        semaphore = await self.semaphore(lease=6, response_timeout=0.9)
        self.assertEqual(semaphore._client._connections.connection_pool.connection_kwargs["socket_timeout"], 0.9)
        permit = await semaphore.acquire()
        wait = await self.queue(semaphore)
        self.server.stop()
        await until_async(lambda: semaphore._error is not None)  # a refresh has failed
        self.server.go_on()
        self.assertTrue(await permit.release())
        self.assertTrue(await (await wait).release())
        self.assertTrue(self.keys.are_empty())

    async def test_waits_outlast_a_restart_that_lost_all_data(self):
        semaphore = await self.semaphore(lease=2)
        permit = await semaphore.acquire()
        wait = await self.queue(semaphore)
        self.server.kill()
        self.server.start()
        later = await asyncio.wait_for(wait, DEADLINE)
        self.assertIs(await permit.release(), False)
        self.assertTrue(await later.release())

    async def test_close_ends_a_release_that_redis_does_not_confirm(self):
        client = SemaphoreClient(self.server.url, response_timeout=1)
        await client.connect()
        permit = await client.semaphore(self.name, limit=1).acquire()
        self.server.kill()
        release = asyncio.create_task(permit.release())
        await asyncio.sleep(0)
        await client.close()
        with self.assertRaises(Unavailable):  # the permit was not lost
            await asyncio.wait_for(release, DEADLINE)

    async def jobs(self, **settings):
        """Returns the semaphore of a user whose right to call scripts refuse() removes."""
        acl = "ACL SETUSER jobs on >secret ~sem:{* resetchannels &sem:wake:* +@all"
        self.server.connection.execute_command(*acl.split())
        return await self.semaphore(f"redis://jobs:secret@127.0.0.1:{self.server.port}", **settings)

    def refuse(self, is_refused=True):
        rights = "-evalsha" if is_refused else "+evalsha"
        self.server.connection.execute_command("ACL", "SETUSER", "jobs", rights)

    async def test_a_release_that_is_refused_is_told_and_goes_on(self):
        semaphore = await self.jobs(response_timeout=1)
        permit = await semaphore.acquire()
        self.refuse()
        for _ in range(2):
            with self.assertRaisesRegex(Unavailable, "not confirmed.*permissions"):
                await asyncio.wait_for(permit.release(), 10)
        self.assertFalse(permit.is_lost)
        self.assertEqual(self.keys.held(), 1)
        self.refuse(False)
        await until_async(self.keys.are_empty)
        self.assertIs(await permit.release(), True)

    async def test_a_release_that_was_refused_first_and_is_unknown_then_was_lost(self):
        semaphore = await self.jobs()
        permit = await semaphore.acquire()
        self.refuse()
        release = asyncio.create_task(permit.release())
        await until_async(lambda: semaphore._error is not None)
        self.server.connection.delete(self.keys.permits)
        self.refuse(False)
        self.assertIs(await release, False)

    async def test_a_block_whose_permit_cannot_be_given_back_was_not_lost(self):
        semaphore = await self.jobs(limit=2, response_timeout=1)
        with self.assertLogs("redis_lease_semaphore", "WARNING") as logs:
            async with semaphore.acquire():
                self.refuse()
        self.assertRegex(logs.output[-1], "not confirmed")
        self.refuse(False)
        with self.assertRaises(ZeroDivisionError):
            async with semaphore.acquire():
                self.refuse()
                1 / 0
        self.refuse(False)
        await until_async(self.keys.are_empty)

    async def test_a_release_in_an_outage_is_told_and_goes_on(self):
        semaphore = await self.semaphore(response_timeout=1)
        permit = await semaphore.acquire()
        self.server.stop()
        try:
            with self.assertRaises(Unavailable):
                await asyncio.wait_for(permit.release(), 10)
        finally:
            self.server.go_on()
        await until_async(self.keys.are_empty)
        self.assertIs(await permit.release(), True)

    async def test_a_try_ends_in_an_outage_as_a_release_does(self):
        semaphore = await self.semaphore(response_timeout=1)
        self.server.stop()
        try:
            for claim in (semaphore.try_acquire(), semaphore.acquire(timeout=0)):
                with self.assertRaisesRegex(Unavailable, "try_acquire got no result within 2 s: "):
                    await asyncio.wait_for(claim, 10)
        finally:
            self.server.go_on()
        await until_async(self.keys.are_empty)

    async def test_a_lost_reply_loses_no_permit(self):
        async with Proxy(self.server.port) as proxy:
            proxy.is_cutting = False
            semaphore = await self.semaphore(url=proxy.url, limit=2, lease=1.5)
            permit = await semaphore.acquire()
            first = permit._held.deadline
            await until_async(lambda: permit._held.deadline > first)  # now the server knows the script
            proxy.lose = scripts.SCRIPTS["refresh"]["sha1"].encode()
            await until_async(lambda: permit.is_lost or permit._held.deadline > first + 2)
            self.assertEqual((proxy.lost, permit.is_lost), (1, False))
            proxy.lose = b"declare_if_unset"
            await (await semaphore.acquire()).release()
            self.assertEqual((proxy.lost, permit.is_lost), (2, False))
            await permit.release()

    async def test_a_password_that_is_wrong_is_told_at_once(self):
        self.server.connection.config_set("requirepass", "secret")
        for url in (self.server.url, f"redis://:wrong@127.0.0.1:{self.server.port}"):
            with self.assertRaises(Rejected):
                await asyncio.wait_for(SemaphoreClient(url).connect(), 5)
        semaphore = await self.semaphore(f"redis://:secret@127.0.0.1:{self.server.port}")
        self.server.connection.config_set("requirepass", "another")
        self.server.connection.execute_command("CLIENT", "KILL", "TYPE", "normal")
        with self.assertRaisesRegex(Rejected, "username-password"):
            await asyncio.wait_for(semaphore.acquire(), 5)

    async def test_connects_at_once_are_one_and_a_close_waits_for_them(self):
        tasks = asyncio.all_tasks()
        client = SemaphoreClient(self.server.url)
        connects = asyncio.gather(*(client.connect() for _ in range(3)))
        await connects
        self.assertEqual(len(self.server.connection.pubsub_channels("sem:wake:*")), 1)
        await client.close()
        self.assertEqual(asyncio.all_tasks(), tasks)
        client = SemaphoreClient(self.server.url)
        connect = asyncio.create_task(client.connect())
        await asyncio.sleep(0)
        await client.close()
        self.assertEqual(self.server.connection.pubsub_channels("sem:wake:*"), [])
        await connect
        for call in (client.semaphore(self.name, limit=1).acquire, client.connect):
            with self.assertRaises(Closed):
                await call()
        self.assertEqual(asyncio.all_tasks(), tasks)

    async def test_a_wake_that_fails_is_repeated(self):
        semaphore = await self.semaphore(heartbeat_timeout=600)  # heartbeats are due after minutes
        request_id = f"N:dead:1:300:{'n' * 16}"
        source, keys = scripts.SCRIPTS["acquire"]["source"], scripts.keys("sem", self.name)
        self.server.connection.eval(source, len(keys), *keys, "declare", 1, 15000, request_id, "wait")
        call = semaphore._client._call

        async def failing(script, *arguments):
            if script == "wake":
                semaphore._client._call = call
                raise Unavailable("as when it is cut")
            return await call(script, *arguments)

        semaphore._client._call = failing
        permit = await asyncio.wait_for(semaphore.acquire(), 10)
        self.assertTrue(await permit.release())

    async def test_a_wake_that_fails_for_long_is_left_to_who_waits(self):
        semaphore = await self.semaphore(outage_tolerance=0.2)
        self.server.kill()
        semaphore._wake_at = time.monotonic()
        semaphore._poke()
        await until_async(lambda: semaphore._worker is None)

    async def test_a_subscription_that_is_cut_time_and_again_is_made_with_pauses(self):
        semaphore = await self.semaphore()
        start = time.monotonic()
        while time.monotonic() < start + 2:
            self.server.connection.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            await asyncio.sleep(0.001)
        calls = self.server.connection.info("commandstats")["cmdstat_subscribe"]["calls"]
        self.assertLess(calls, 50)
        await until_async(lambda: semaphore._client._deaf_because is None)

    async def test_an_outage_without_end_ends_the_wait(self):
        semaphore = await self.semaphore(heartbeat_timeout=0.6, outage_tolerance=0.3, response_timeout=1)
        self.server.kill()
        with self.assertRaises(Unavailable):
            await asyncio.wait_for(semaphore.acquire(), DEADLINE)

    def block_until_dead(self, semaphore):
        """Blocks this process, so that it sends no heartbeat, until the server counts its client as dead."""
        key, client = f"sem:{{{semaphore.name}}}:clients", semaphore._client._client
        server = self.server.connection
        until(lambda: float(server.zscore(key, client)) < server.time()[0] * 1000)

    async def test_a_process_that_was_stopped_is_no_outage(self):
        async with Proxy(self.server.port) as proxy:
            semaphore = await self.semaphore(url=proxy.url, heartbeat_timeout=0.6, outage_tolerance=0.3)
            held = await (await self.semaphore()).acquire()
            wait = await self.queue(semaphore)
            await until_async(lambda: semaphore._is_declared)
            self.block_until_dead(semaphore)
            proxy.lose = b"declare_if_unset"
            await until_async(lambda: proxy.lost == 1)
            await held.release()
            await (await wait).release()

    async def test_who_is_in_the_queue_outlasts_a_full_memory(self):
        semaphore = await self.semaphore(heartbeat_timeout=0.6)
        held = await semaphore.acquire()
        wait = await self.queue(semaphore)
        self.server.connection.config_set("maxmemory", 1)
        await until_async(lambda: semaphore._error is not None)
        where = f"semaphore {self.name}: 127.0.0.1:{self.server.port}, acquire"
        with self.assertRaisesRegex(Rejected, f"^{where}: .*maxmemory") as caught:
            await semaphore.acquire()
        self.assertIsInstance(caught.exception.__cause__, redis.ResponseError)
        self.server.connection.config_set("maxmemory", 0)
        await held.release()
        await (await wait).release()

    async def test_a_memory_that_stays_full_ends_the_wait(self):
        semaphore = await self.semaphore(heartbeat_timeout=0.6, outage_tolerance=0.3)
        held = await semaphore.acquire()
        wait = await self.queue(semaphore)
        self.server.connection.config_set("maxmemory", 1)
        with self.assertRaisesRegex(Unavailable, "calls have failed for .*maxmemory"):
            await asyncio.wait_for(wait, DEADLINE)
        await held.release()
        self.assertTrue(self.keys.are_empty())

    async def test_one_that_is_too_heavy_and_given_up_harms_nobody(self):
        semaphore = await self.semaphore(lease=1.5)
        held = await semaphore.acquire()
        wait = await self.queue(semaphore)
        self.server.stop()
        with self.assertRaises(AcquireTimeout):
            await semaphore.acquire(weight=2, timeout=0.05)  # times out during its call
        self.server.go_on()
        calls = self.server.script_calls()
        await until_async(lambda: self.server.script_calls() > calls + 3)  # the client refreshes the lease
        self.assertFalse(held.is_lost)
        await held.release()
        await (await wait).release()
        await until_async(self.keys.are_empty)

    async def test_those_beside_one_that_is_too_heavy_are_told_what_happens_next(self):
        semaphore = await self.semaphore(limit=2)
        await (await semaphore.acquire()).release()
        self.server.connection.config_set("maxmemory", 1)
        claims = [semaphore.acquire(weight=weight) for weight in (1, 5, 1)] + [semaphore.try_acquire()]
        outcomes = await asyncio.wait_for(asyncio.gather(*claims, return_exceptions=True), DEADLINE)
        self.assertIsInstance(outcomes.pop(1), TooHeavy)
        for outcome in outcomes:
            self.assertIsInstance(outcome, Rejected)
            self.assertRegex(str(outcome), "maxmemory")

    async def test_a_close_that_is_cancelled_leaves_nothing_open(self):
        self.keys.queued()  # over a separate connection
        connections = len(self.server.connection.client_list())
        client = SemaphoreClient(self.server.url, response_timeout=0.5)
        await client.connect()
        await client.connect()  # has no effect
        semaphore = client.semaphore(self.name, limit=1)
        held = await semaphore.acquire()
        wait = await self.queue(semaphore)
        self.server.stop()
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(client.close(), 0.1)
        self.server.go_on()
        with self.assertRaises(Closed):
            await wait
        await until_async(lambda: len(self.server.connection.client_list()) == connections)
        self.assertTrue(await held.release())

    async def test_calls_are_repeated_after_a_lost_reply(self):
        async with Proxy(self.server.port) as proxy:
            semaphore = await self.semaphore(url=proxy.url, limit=2)
            await (await semaphore.acquire()).release()  # from now on the server knows the scripts
            proxy.lose = b"declare_if_unset"  # the reply to acquire is lost
            permit = await semaphore.acquire()
            self.assertEqual((proxy.lost, self.keys.held()), (1, 1))
            proxy.lose = b"return"  # the reply to release is lost
            self.assertIs(await permit.release(), True)
            self.assertEqual((proxy.lost, self.keys.held()), (2, 0))
            proxy.lose = b"declare_if_unset"
            wait = asyncio.create_task(semaphore.acquire())
            await until_async(lambda: proxy.lost == 3)
            wait.cancel()  # the request may have been granted
            await until_async(self.keys.are_empty)

    async def test_a_queued_request_is_repeated_after_a_lost_reply(self):
        async with Proxy(self.server.port) as proxy:
            semaphore = await self.semaphore(url=proxy.url)
            held = await semaphore.acquire()
            proxy.lose = b"declare_if_unset"
            wait = await self.queue(semaphore)
            await until_async(lambda: proxy.lost == 1)
            behind = await self.queue(semaphore)
            self.assertEqual(self.keys.queued(), 2)
            await held.release()
            await (await wait).release()
            await (await behind).release()
            self.assertTrue(self.keys.are_empty())

    async def test_a_lease_that_is_too_short_for_the_round_trip_ends_the_acquire(self):
        async with Proxy(self.server.port) as proxy:
            semaphore = await self.semaphore(url=proxy.url, lease=0.4)
            proxy.delay = 0.25
            for acquire in (semaphore.acquire, semaphore.try_acquire):
                with self.assertRaisesRegex(SemaphoreError, "half of the lease of 0.4 s"):
                    await asyncio.wait_for(acquire(), DEADLINE)
            await until_async(self.keys.are_empty)

    async def test_the_address_leads_to_another_server_and_nobody_listens_there(self):
        other = Server()
        self.addCleanup(other.close)
        async with Proxy(self.server.port) as proxy:
            client = SemaphoreClient(proxy.url, heartbeat_timeout=0.6)
            await client.connect()
            self.addAsyncCleanup(client.close)
            channel = scripts.channel("sem", client._client)
            proxy.port = other.port
            client._link.replace()
            await until_async(lambda: other.connection.pubsub_numsub(channel)[0][1] == 1)

    async def test_a_message_with_many_words_of_an_unknown_name_is_one_call(self):
        client = SemaphoreClient(self.server.url)
        await client.connect()
        self.addAsyncCleanup(client.close)
        ids = [f"P:{client._client}:1:30000:forged-forged-{number:06}" for number in range(900)]
        calls, connections = self.server.script_calls(), self.connections_so_far()
        client._received("\n".join(["nobody", *(f"{request_id} 5 {2**53 - 1}" for request_id in ids)]).encode())
        await until_async(lambda: not client._active)
        self.assertEqual(self.server.script_calls(), calls + 1)
        self.assertLessEqual(self.connections_so_far(), connections + 1)

    async def test_cut_connections(self):
        semaphore = await self.semaphore()

        cycles = 0

        async def work():
            nonlocal cycles
            for _ in range(30):
                async with await semaphore.acquire():
                    await asyncio.sleep(0)
                cycles += 1

        tasks = [asyncio.create_task(work()) for _ in range(4)]
        while not all(task.done() for task in tasks):
            before = cycles
            for kind in ("normal", "pubsub"):
                self.server.connection.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
            await until_async(lambda: cycles > before)  # the client has reconnected
        await asyncio.gather(*tasks)
        await until_async(self.keys.are_empty)

    async def test_the_server_forgot_the_scripts(self):
        semaphore = await self.semaphore()
        permit = await semaphore.acquire()
        self.server.connection.script_flush()
        self.assertTrue(await permit.release())

    async def test_a_replica_that_becomes_a_primary_again(self):
        semaphore = await self.semaphore(lease=60, response_timeout=10)
        permit = await semaphore.acquire()
        wait = await self.queue(semaphore)
        connections = self.connections_so_far()
        self.server.connection.execute_command("REPLICAOF", "127.0.0.1", "1")
        release = asyncio.create_task(permit.release())
        await until_async(lambda: semaphore._error is not None)
        self.assertFalse(release.done())
        # The address may lead to another server now.
        await until_async(lambda: self.connections_so_far() > connections)
        self.server.connection.execute_command("REPLICAOF", "NO", "ONE")
        self.assertTrue(await release)
        self.assertTrue(await (await wait).release())

    async def test_a_replica_without_a_primary(self):
        semaphore = await self.semaphore(lease=60)
        permit = await semaphore.acquire()
        self.server.connection.config_set("replica-serve-stale-data", "no")
        self.server.connection.execute_command("REPLICAOF", "127.0.0.1", "1")
        wait = asyncio.create_task(semaphore.acquire())
        await until_async(lambda: "MASTER is down" in str(semaphore._error))
        self.server.connection.execute_command("REPLICAOF", "NO", "ONE")
        self.assertTrue(await permit.release())
        self.assertTrue(await (await wait).release())

    async def test_what_the_user_may_not_do_is_found_when_connecting(self):
        acl = "ACL SETUSER jobs on >secret ~sem:{* resetchannels &sem:wake:* +@all -zadd"
        self.server.connection.execute_command(*acl.split())
        client = SemaphoreClient(f"redis://jobs:secret@127.0.0.1:{self.server.port}")
        with self.assertRaisesRegex(MissingPermission, f"127.0.0.1:{self.server.port}, probe, ZADD: "):
            await client.connect()
        self.server.connection.execute_command("ACL", "SETUSER", "jobs", "+zadd", "-evalsha")
        with self.assertRaisesRegex(MissingPermission, f"127.0.0.1:{self.server.port}, probe: .*evalsha"):
            await client.connect()
        self.server.connection.execute_command("ACL", "SETUSER", "jobs", "+evalsha", "-subscribe")
        with self.assertRaisesRegex(MissingPermission, f"127.0.0.1:{self.server.port}, connecting.*subscribe"):
            await client.connect()

    async def test_a_server_that_accepts_no_writes_is_named_when_connecting(self):
        client, at = SemaphoreClient(self.server.url), f"127.0.0.1:{self.server.port}, probe"
        configure = self.server.connection.config_set

        async def fails(kind, text):
            with self.assertRaisesRegex(kind, f"^{at}{text}") as caught:
                await client.connect()
            self.assertIs(type(caught.exception), kind)
            self.assertIsInstance(caught.exception.__cause__, redis.ResponseError)
            self.assertEqual(str(caught.exception).count("PEXPIREAT"), text.count("PEXPIREAT"))

        configure("min-replicas-to-write", 3)
        await fails(Unavailable, ", PEXPIREAT: .*replicas to write")
        configure("min-replicas-to-write", 0)
        self.fail_to_save()
        await fails(Rejected, ", PEXPIREAT: .*MISCONF")
        configure("save", "")
        self.server.connection.execute_command("REPLICAOF", "127.0.0.1", "1")
        await fails(Unavailable, ", PEXPIREAT: the server is a replica: connect to the primary .*read only")
        configure("replica-serve-stale-data", "no")
        await fails(Unavailable, ": the server is a replica: connect to the primary .*MASTER is down")
        self.server.connection.execute_command("REPLICAOF", "NO", "ONE")
        await client.connect()
        await client.close()

    def fail_to_save(self):
        """Makes the server reject writes, because its data cannot be saved."""
        os.makedirs(self.server.connection.config_get("dir")["dir"] + "/dump.rdb/file")
        self.server.connection.config_set("save", "3600 1")
        self.server.connection.bgsave()
        until(lambda: self.server.connection.info("persistence")["rdb_last_bgsave_status"] == "err")

    async def test_what_the_scripts_refuse(self):
        semaphore = await self.semaphore()
        self.server.connection.set(self.keys.permits, "something else")
        with self.assertRaisesRegex(Rejected, "SEM_TYPE"):
            await semaphore.acquire()


if __name__ == "__main__":
    unittest.main()
