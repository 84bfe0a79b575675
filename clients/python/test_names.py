"""Servers with a host name, which is resolved outside the default executor of the event loop."""

import asyncio
import gc
import socket
import threading
import unittest
from unittest import mock

import redis_lease_semaphore
from redis_lease_semaphore import Closed, Rejected, Unavailable
from redis_lease_semaphore.asyncio import SemaphoreClient

from support import Keys, Peer, Server, new_name, run_program, until

HEAD = """
import atexit, redis
url = sys.argv[1]
client = redis_lease_semaphore.SemaphoreClient(url)
semaphore = client.semaphore(sys.argv[2], limit=2)
def cut():
    other = redis.Redis.from_url(url)
    for kind in ("normal", "pubsub"):
        other.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
"""
PROGRAMS = {
    "a thread that works longer than the main thread": """
def work():
    threading.main_thread().join()
    permit = semaphore.acquire()
    cut()
    print(permit.release(), semaphore.acquire(timeout=60).release())
client.connect()
threading.Thread(target=work).start()
""",
    "an exit after a cut": "client.connect()\npermit = semaphore.acquire()\ncut()\nprint(True, True)",
    "an exit after a close": "client.connect()\npermit = semaphore.acquire()\nclient.close()\nprint(True, True)",
    "a forked child": """
client.connect()
pid = os.fork()
if pid:
    assert os.waitpid(pid, 0)[1] == 0
    cut()
permit = semaphore.acquire()
if pid:
    print(permit.release(), semaphore.acquire().release())
""",
    "a callback at exit": """
async def work():
    async with redis_lease_semaphore.asyncio.SemaphoreClient(url) as other:
        print(*[await (await other.semaphore(sys.argv[2], limit=2).acquire()).release() for _ in range(2)])
atexit.register(lambda: asyncio.run(work()))
""",
}


def threads(host):
    return [thread for thread in threading.enumerate() if thread.name == f"redis-lease-semaphore-{host}"]


class Names(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.close)
        self.port, self.name = self.server.port, new_name()
        self.keys = Keys(self.server.url, self.name)
        self.addCleanup(self.keys.close)

    async def connect(self, host="localhost"):
        client = SemaphoreClient(f"redis://{host}:{self.port}")
        await client.connect()
        self.addAsyncCleanup(client.close)
        return client

    def cut(self):
        for kind in ("normal", "pubsub"):
            self.server.connection.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")

    def resolve(self, name, answer):
        """Makes the resolution of a name call `answer`."""
        original = socket.getaddrinfo

        def find(host, *arguments, flags=0, **options):
            if host == name and not flags & socket.AI_NUMERICHOST:
                answer()
                host = "127.0.0.1"
            return original(host, *arguments, flags=flags, **options)

        patch = mock.patch("socket.getaddrinfo", find)
        patch.start()
        self.addCleanup(patch.stop)

    def test_programs_connect_again_while_they_end(self):
        for name, program in PROGRAMS.items():
            with self.subTest(name):
                done = run_program(HEAD + program, self.name, url=f"redis://localhost:{self.port}")
                self.assertEqual(done.stdout, "True True\n", done.stderr)
                self.assertTrue(self.keys.are_empty(), done.stderr)
                self.assertNotIn("before Redis confirmed", done.stderr)

    async def test_the_program_may_use_all_threads_of_the_executor(self):
        client = await self.connect()
        permit = await client.semaphore(self.name, limit=1).acquire()
        gate = threading.Event()
        work = [asyncio.get_running_loop().run_in_executor(None, gate.wait) for _ in range(64)]
        try:
            self.cut()
            self.assertTrue(await permit.release())
        finally:
            gate.set()
        await asyncio.gather(*work)

    async def test_a_resolution_that_hangs_blocks_no_other_client(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        self.resolve("hanging.test", gate.wait)
        client = SemaphoreClient(f"redis://hanging.test:{self.port}", response_timeout=0.01)
        for _ in range(40):
            with self.assertRaisesRegex(Unavailable, "hanging.test"):
                await client.connect()
        other = await self.connect()
        self.assertTrue(await (await other.semaphore(self.name, limit=1).acquire()).release())
        gate.set()
        await self.connect("hanging.test")

    async def test_an_attempt_may_succeed_while_an_earlier_attempt_hangs(self):
        gate, asked = threading.Event(), []
        self.addCleanup(gate.set)
        self.resolve("slow.test", lambda: asked.append(1) or len(asked) == 1 and gate.wait())
        first = asyncio.create_task(SemaphoreClient(f"redis://slow.test:{self.port}", response_timeout=60).connect())
        while not asked:
            await asyncio.sleep(0)
        await self.connect("slow.test")
        first.cancel()

    async def test_a_process_that_can_start_no_thread_resolves_names(self):
        client = redis_lease_semaphore.SemaphoreClient(f"redis://localhost:{self.port}")
        with mock.patch("threading.Thread.start", side_effect=RuntimeError("can't start new thread")):
            await self.connect()
            with self.assertRaisesRegex(Closed, "can't start new thread"):
                client.connect()
        client.connect()
        client.close()

    async def test_the_threads_end_with_the_client_and_an_address_needs_none(self):
        await self.connect("127.0.0.1")
        self.assertEqual(threads("127.0.0.1"), [])
        self.resolve("short.test", lambda: None)
        client = SemaphoreClient(f"redis://short.test:{self.port}")
        await client.connect()
        self.assertEqual(len(threads("short.test")), 1)
        await client.close()
        del client
        gc.collect()
        until(lambda: not threads("short.test"))

    async def test_the_certificate_must_have_the_host_name(self):
        for name, error, text in (("DNS:localhost", Rejected, "refused"), ("IP:127.0.0.1", Unavailable, "certificate")):
            with self.subTest(name):
                peer = Peer(lambda _: b"-ERR refused\r\n", name)
                self.addCleanup(peer.close)
                host = peer.address.replace("127.0.0.1", "localhost")
                with self.assertRaisesRegex(error, text):
                    await SemaphoreClient(f"rediss://{host}?ssl_ca_certs={peer.certificate}").connect()


if __name__ == "__main__":
    unittest.main()
