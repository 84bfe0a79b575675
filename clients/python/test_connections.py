"""Addresses, the number of connections, and the commands of a handshake."""

import asyncio
import pathlib
import re
import subprocess
import traceback
import unittest
import urllib.parse
import warnings

import redis

import redis_lease_semaphore
from redis_lease_semaphore import MissingPermission, Rejected, SemaphoreError, Unavailable, scripts
from redis_lease_semaphore.asyncio import SemaphoreClient

from support import DEADLINE, Keys, Peer, Server, new_name, until_async

REPOSITORY = pathlib.Path(__file__).parent / "../.."
SECRET = "s3cr3t"


def programs():
    """Returns the server of the tests, and the installed servers that count denied commands."""
    yield None
    for name in ("redis-8.2", "valkey-9"):
        words = [REPOSITORY / "scripts/find-redis-server", "--no-install", name]
        found = subprocess.run(words, capture_output=True, text=True)
        if found.returncode == 0:
            yield found.stdout.strip()


class Connections(unittest.IsolatedAsyncioTestCase):
    def server(self, *options, **settings):
        server = Server(*options, **settings)
        self.addCleanup(server.close)
        return server

    def peer(self, reply, name=None):
        peer = Peer(reply, name)
        self.addCleanup(peer.close)
        return peer

    async def connect(self, url, **settings):
        client = SemaphoreClient(url, **settings)
        await client.connect()
        self.addAsyncCleanup(client.close)
        return client

    async def test_three_hundred_names_at_once_share_two_connections(self):
        server = self.server()
        client = await self.connect(server.url, heartbeat_timeout=600, response_timeout=30)
        semaphores = [client.semaphore(new_name(), limit=1) for _ in range(300)]
        with self.assertNoLogs("redis_lease_semaphore"):
            permits = await asyncio.gather(*(semaphore.acquire() for semaphore in semaphores))
            await asyncio.gather(*(permit.release() for permit in permits))
        connections = server.connection.info("stats")["total_connections_received"]
        self.assertLessEqual(connections, 2 + 2)  # two of this test
        await until_async(lambda: not client._active)

    async def test_a_call_that_is_slow_cuts_no_other_off(self):
        server = self.server()
        client = await self.connect(server.url, response_timeout=20)
        short = client.semaphore(new_name(), limit=1, lease=3)
        other = client.semaphore(new_name(), limit=1)
        permit = await short.acquire()
        await (await other.acquire()).release()
        server.connection.execute_command("CLIENT", "PAUSE", 4000, "ALL")
        with self.assertNoLogs("redis_lease_semaphore", "ERROR"):
            start = asyncio.get_running_loop().time()
            slow = await other.acquire()  # over a connection that the other semaphore has replaced
        self.assertGreater(asyncio.get_running_loop().time() - start, 2)
        self.assertIsNone(other._error)
        self.assertTrue(await slow.release())
        await permit.release()
        await until_async(lambda: len(client._link._lines) == 1)

    async def test_a_cut_of_an_idle_connection_is_not_worth_a_line(self):
        server = self.server()
        client = await self.connect(server.url)
        semaphore = client.semaphore(new_name(), limit=1)
        await (await semaphore.acquire()).release()
        with self.assertNoLogs("redis_lease_semaphore", "WARNING"):
            for _ in range(3):
                server.connection.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                await until_async(lambda: client._link._line.has_ended)
                await (await semaphore.acquire()).release()

    async def test_a_full_server_and_the_address_are_named_if_the_subscription_was_cut(self):
        server = self.server()
        async with SemaphoreClient(server.url, response_timeout=0.5) as client:
            semaphore = client.semaphore("full", limit=1)
            permit = await semaphore.acquire()
            server.connection.config_set("maxclients", 1)
            with self.assertLogs("redis_lease_semaphore", "INFO") as logs:
                server.connection.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
                await until_async(lambda: re.search("maxclients|number of clients", str(client._listener.error)))
            self.assertTrue(all(f"127.0.0.1:{server.port}" in line for line in logs.output), logs.output)
            server.connection.config_set("maxclients", 100)
            await permit.release()

    async def test_connections_for_options_of_a_pool(self):
        server = self.server()
        in_url = {"url": server.url + "?max_connections=1"}
        for settings in ({"max_connections": 1}, {"max_connections": -1}, {"max_connections": "x"}, in_url):
            with self.assertRaisesRegex(ValueError, "max_connections is at least 2"):
                SemaphoreClient(**{"url": server.url, **settings})
        for name, value in {"protocol": 3, "health_check_interval": 5, "max_connections": 9}.items():
            with self.assertRaisesRegex(ValueError, f"the URL and the option {name} differ"):
                SemaphoreClient(f"{server.url}?{name}=2", **{name: value})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for options in (
                {"max_connections": 2}, {"single_connection_client": True}, {"health_check_interval": 1},
                {"protocol": 3}, {"socket_keepalive": True}, {"client_name": "us"},
            ):
                is_old = int(redis.__version__.split(".")[0]) < 5
                if is_old and options.keys() & {"protocol", "single_connection_client"}:
                    continue
                async with SemaphoreClient(server.url, **options) as client:
                    async with client.semaphore("a", limit=1).acquire():
                        pass

    async def test_the_documented_user_is_denied_nothing(self):
        text = (REPOSITORY / "docs/production.md").read_text("utf-8")
        acl = re.search(r"ACL SETUSER jobs [^`]*", text)[0]
        for program in programs():
            with self.subTest(program):
                server = self.server(program=program)
                server.connection.execute_command(*acl.split())
                client = await self.connect(f"redis://jobs:secret@127.0.0.1:{server.port}", heartbeat_timeout=0.6)
                semaphore = client.semaphore("a", limit=1, lease=0.6)
                async with semaphore.acquire():
                    wait = asyncio.create_task(semaphore._acquire(None, 1))
                    calls = lambda name: server.connection.info("commandstats").get(f"cmdstat_{name}", {}).get("calls", 0)
                    before = [calls("evalsha"), calls("ping")]
                    # It sends a heartbeat and a ping, and refreshes the lease.
                    await until_async(lambda: calls("evalsha") >= before[0] + 3 and calls("ping") > before[1])
                await (await wait).release()
                await client.close()
                self.assertEqual(server.connection.execute_command("ACL", "LOG"), [])
                stats = server.connection.info("stats")
                self.assertEqual(stats.get("acl_access_denied_cmd", 0), 0)

    async def test_connect_names_each_right_that_the_user_lacks(self):
        text = (REPOSITORY / "docs/production.md").read_text("utf-8")
        acl = re.search(r"ACL SETUSER jobs [^`]*", text)[0]
        server = self.server(program=next(reversed(list(programs()))))
        rights = set(re.findall(r"\+(\S+)", acl)) - {"script|load"}  # this client does not send SCRIPT LOAD
        self.assertLessEqual({"ping", "eval", "evalsha"}, rights)
        await self.connect(server.url)  # the server knows the scripts, so EVALSHA succeeds
        for right in sorted(rights):
            server.connection.execute_command("ACL", "DELUSER", "jobs")
            server.connection.execute_command(*acl.replace(f"+{right} ", "").replace(f"+{right}\n", "\n").split())
            with self.subTest(right), self.assertRaisesRegex(MissingPermission, f"(?i){right.split('|')[0]}"):
                await self.connect(f"redis://jobs:secret@127.0.0.1:{server.port}")

    async def test_a_ping_that_is_rejected_cuts_no_connection(self):
        server = self.server()
        server.connection.execute_command(*"ACL SETUSER jobs on >secret ~* &* +@all".split())
        client = await self.connect(f"redis://jobs:secret@127.0.0.1:{server.port}", heartbeat_timeout=0.6)
        before = server.connection.info("stats")["total_connections_received"]
        server.connection.execute_command("ACL", "SETUSER", "jobs", "-ping")
        denied = lambda: sum(int(found["count"]) for found in server.connection.acl_log())
        await until_async(lambda: denied() >= 3)
        self.assertEqual(server.connection.info("stats")["total_connections_received"], before)

    async def test_a_cluster_is_told_when_connecting(self):
        server = self.server("--cluster-enabled", "yes")
        for _ in range(3):
            with self.assertRaisesRegex(SemaphoreError, f"127.0.0.1:{server.port}.*Redis Cluster"):
                await SemaphoreClient(server.url).connect()
        with self.assertRaisesRegex(SemaphoreError, "Redis Cluster"):
            await asyncio.to_thread(redis_lease_semaphore.SemaphoreClient(server.url).connect)

    async def test_a_cluster_is_told_by_a_call(self):
        # Behind a proxy without HELLO.
        nodes = [self.server("--cluster-enabled", "yes") for _ in range(2)]
        for node, slots in zip(nodes, (range(8192), range(8192, 16384))):
            node.connection.execute_command("CLUSTER", "ADDSLOTS", *slots)
        nodes[0].connection.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[1].port)
        is_ok = lambda: "cluster_state:ok" in str(nodes[0].connection.execute_command("CLUSTER", "INFO"))
        await until_async(is_ok)
        client = SemaphoreClient(nodes[0].url)
        client._link.call = self.without_hello(client._link.call)
        with self.assertRaisesRegex(SemaphoreError, "MOVED .*Redis Cluster"):
            while True:  # until a name is on the other node
                await client.connect()
                await client.semaphore(new_name(), limit=1).acquire()

    def without_hello(self, call):
        async def called(*command, **settings):
            if command[0] == "HELLO":
                raise redis.ResponseError("unknown command")
            return await call(*command, **settings)

        return called

    async def test_no_secret_of_a_url_is_in_an_error(self):
        for url in (
            f"unix:///:{SECRET}@/run/redis.sock", f"unix:///jobs:{SECRET}@/run/redis.sock",
            f"redis://:{SECRET}/x@127.0.0.1:1", f"redis://:12/{SECRET}@127.0.0.1:1", f"redis://:12#{SECRET}@127.0.0.1:1",
            f"redis://:12?{SECRET}@127.0.0.1:1", f"redis://:{SECRET}#x@127.0.0.1:1", f"redis://:{SECRET}?x@h:1",
            f"redis://127.0.0.1:1/{SECRET}", f"redis://[:{SECRET}@127.0.0.1:1", f"redis://jobs:{SECRET}@127.0.0.1:x{SECRET}",
            f"redis://jobs:{SECRET}@127.0.0.1:1", f"unix://jobs:{SECRET}@/no/such.sock", f"unix:///no/such.sock?password={SECRET}",
            f"http://jobs:{SECRET}@h", f"{SECRET}", f"redis://127.0.0.1:1?pasword={SECRET}",
            f"redis://{SECRET}@127.0.0.1:1", f"unix://{SECRET}@/no/such.sock", f"redis://127.0.0.1:1?username={SECRET}",
        ):
            with self.subTest(url):
                with self.assertRaises(Exception) as caught:
                    await asyncio.wait_for(SemaphoreClient(url).connect(), DEADLINE)
                error = caught.exception
                self.assertIsInstance(error, (ValueError, TypeError, SemaphoreError))
                while error is not None:
                    self.assertNotIn(SECRET, str(error))
                    error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)

    async def test_no_secret_is_in_an_error_of_a_server_without_the_commands_of_the_handshake(self):
        versions = ({}, {"protocol": 3}) if int(redis.__version__.split(".")[0]) >= 5 else ({},)
        renamed = ("--rename-command", "AUTH", "", "--rename-command", "HELLO", "")
        server = self.server(*renamed)
        url = f"redis://bob:{SECRET}@127.0.0.1:{server.port}"
        for version in versions:
            with self.assertRaisesRegex(MissingPermission, "as user bob: unknown command .(AUTH|HELLO).$") as caught:
                await SemaphoreClient(url, **version).connect()
            self.assertNotIn(SECRET, "".join(traceback.format_exception(caught.exception)))
        for version in versions:
            server = self.server()
            server.connection.execute_command("ACL", "SETUSER", "bob", "on", f">{SECRET}", "~*", "&*", "+@all")
            url = f"redis://bob:{SECRET}@127.0.0.1:{server.port}"
            client = await self.connect(url, response_timeout=1, outage_tolerance=0, **version)
            semaphore = client.semaphore(new_name(), limit=1)
            permit = await semaphore.acquire()
            server.kill()
            server._options += renamed
            server.start()
            await until_async(lambda: client._link._line.has_ended)
            calls = (permit.release, semaphore.try_acquire, semaphore.acquire)
            with self.assertLogs("redis_lease_semaphore", "INFO") as logs:
                for call in calls:
                    with self.assertRaisesRegex(SemaphoreError, "unknown command .(AUTH|HELLO).") as caught:
                        await asyncio.wait_for(call(), DEADLINE)
                    self.assertNotIn(SECRET, "".join(traceback.format_exception(caught.exception)))
            self.assertNotIn(SECRET, "".join(logs.output))

    async def test_no_secret_is_in_an_error_or_a_log_if_a_peer_repeats_what_it_gets(self):
        secret = f"{SECRET}'@ä"
        url_of = lambda peer: f"redis://bob:{urllib.parse.quote(secret, safe='')}@{peer.address}"
        words = lambda request: b" ".join(request.split(b"\r\n")[2::2])
        for answer in (
            lambda request: b"-ERR unsupported command: " + words(request) + b"\r\n",
            lambda request: b"-unsupported " + words(request) + b"\r\n",
            lambda request: b":" + words(request) + b"\r\n",
            lambda request: b"HTTP/1.1 400 Bad Request: " + words(request) + b"\r\n",
            lambda request: words(request) + b"\r\n",
            lambda request: repr(request).encode() + b"\r\n",
            lambda request: urllib.parse.quote(words(request)).encode() + b"\r\n",
            lambda request: request,
        ):
            peer = self.peer(answer)
            with self.subTest(answer(b"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n")):
                with self.assertRaises(SemaphoreError) as caught:
                    await SemaphoreClient(url_of(peer), response_timeout=0.5).connect()
                self.assertNotIn(SECRET, "".join(traceback.format_exception(caught.exception)))

    async def test_a_reply_of_another_protocol_or_type_has_a_clear_error(self):
        for answer in (b"+OK\r\n", b"$-1\r\n", b":1\r\n", b"*1\r\n:1\r\n", b"*1\r\n$-1\r\n", b"HTTP/1.1 400 Bad\r\n\r\n"):
            with self.subTest(answer):
                # One reply per command of a request.
                peer = self.peer(lambda request: answer * request.count(b"*"))
                with self.assertRaises(SemaphoreError) as caught:
                    await SemaphoreClient(f"redis://{peer.address}", heartbeat_timeout=0.6, response_timeout=0.5).connect()
                self.assertRegex(str(caught.exception), "not of a Redis server|Protocol Error|no reply")
                self.assertNotIn("None", str(caught.exception))

    async def test_a_peer_that_is_silent_or_closes_is_told(self):
        for answer in (b"", None):
            # HELLO is unknown, as for a proxy.
            reply = lambda request: b"-ERR unknown\r\n" * request.count(b"*") if b"HELLO" in request else answer
            peer = self.peer(reply)
            with self.assertRaises(Unavailable) as caught:
                await SemaphoreClient(f"redis://{peer.address}", heartbeat_timeout=0.6, response_timeout=0.5).connect()
            self.assertRegex(str(caught.exception), "SUBSCRIBE|[Cc]los|reset")
            self.assertNotIn("None", str(caught.exception))

    async def test_the_text_of_a_server_is_limited(self):
        peer = self.peer(lambda request: b"-ERR " + b"x" * 5000 + b"\r\n")
        with self.assertRaises(Rejected) as caught:
            await SemaphoreClient(f"redis://{peer.address}").connect()
        self.assertLess(len(str(caught.exception)), 700)

    async def test_the_error_of_a_missing_password_says_where_it_belongs(self):
        server = self.server()
        server.connection.config_set("requirepass", "secret")
        with self.assertRaisesRegex(Rejected, "requires a password, in the URL"):
            await SemaphoreClient(server.url).connect()

    async def test_a_user_that_may_be_a_password_is_not_named(self):
        server = self.server()
        with self.assertRaisesRegex(Rejected, "connecting as the user of the URL without a password") as caught:
            await SemaphoreClient(f"redis://{SECRET}@127.0.0.1:{server.port}").connect()
        self.assertNotIn(SECRET, str(caught.exception))

    async def test_nothing_of_a_url_is_ignored(self):
        for url in (
            "redis://h/1?db=2", "redis://h/1?db=1", "rediss://h/0?db=0", "redis://h?db=1&db=2", "unix:///s?db=1&db=2",
            "redis://h/1?%64b=2", "redis://jobs@h?username=others", "redis://:x@h?password=y", "redis://h?host=g", "redis://h:1?port=2",
            "unix:///s?path=/t",
        ):
            with self.subTest(url), self.assertRaisesRegex(ValueError, "the URL sets an option twice"):
                SemaphoreClient(url)
        for url in ("redis://h/1", "redis://h?db=1", "unix:///s?db=1"):
            SemaphoreClient(url, db=1)
            with self.assertRaisesRegex(ValueError, "the URL and the option db differ"):
                SemaphoreClient(url, db=2)
        for option in ({"host": "g"}, {"port": 2}, {"username": "others"}, {"password": SECRET}):
            with self.assertRaisesRegex(ValueError, "the URL and the option [a-z]+ differ: omit") as caught:
                SemaphoreClient("redis://jobs:x@h:1", **option)
            self.assertNotIn(SECRET, str(caught.exception))

    async def test_a_socket_timeout_is_rejected_and_names_response_timeout(self):
        for url, options in (
            ("redis://h", {"socket_timeout": 5}), ("redis://h", {"socket_timeout": None}),
            ("redis://h?socket_timeout=5", {}), ("unix:///s?socket_timeout=5", {}),
        ):
            with self.assertRaisesRegex(ValueError, "use response_timeout instead of socket_timeout"):
                SemaphoreClient(url, **options)

    async def test_the_error_of_a_wrong_address_says_what_is_wrong(self):
        for url, text in (
            ("redis://h:99999", "port .* 1 to 65535"), ("redis://:x@h:65536/1", "port .* 1 to 65535"),
            ("redis://h:0", "port .* 1 to 65535"), ("redis://[::1]:70000", "port .* 1 to 65535"),
            ("redis://a:1,b:2", "several addresses"), ("redis://a,b", "several addresses"),
            ("rediss://:x@a:1,b", "several addresses"), ("redis://a:1,redis://b:2", "several addresses"),
            ("redis://h?db=x", "(?i)invalid value for .?db"), ("unix:///s?db=x", "(?i)invalid value for .?db"),
            ("redis://h?max_connections=x", "(?i)invalid value for .?max_connections"),
            ("redis://h?encoding=utf-16", "encoding utf-16 is not supported"),
            ("redis://h ", "white space"), ("redis://h:1 ", "white space"), ("redis://h/1\n", "white space"),
            (" redis://h", "white space"), ("redis://:a b@h", "white space.*%20"),
            ("redis://::1:6379", r"in brackets, as in redis://\[::1\]"), (f"redis://:{SECRET}@2001:db8::7", "in brackets"),
            (f"redis://:99999/{SECRET}@h", "%2F"), (f"redis://:{SECRET},/x@h", "%2F"), (f"redis://h:{SECRET}", "%2F"),
        ):
            with self.subTest(url):
                with self.assertRaisesRegex(ValueError, text) as caught:
                    SemaphoreClient(url)
                self.assertNotIn(SECRET, str(caught.exception))

    async def test_a_missing_file_of_an_option_is_named(self):
        for option in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_ca_path"):
            with self.assertRaisesRegex(ValueError, f"the option {option} .* cannot be read: /no/such"):
                SemaphoreClient("rediss://h", **{option: "/no/such"})
            with self.assertRaisesRegex(ValueError, f"the option {option} .* cannot be read: /no/such"):
                SemaphoreClient(f"rediss://h?{option}=/no/such")

    async def test_the_host_name_of_a_certificate_is_checked_unless_the_url_says_otherwise(self):
        refusal = lambda _: b"-ERR refused\r\n"
        for name, query, error, text in (
            ("DNS:other.test", "", Unavailable, "certificate"),
            ("IP:127.0.0.1", "", Rejected, "refused"),
            ("DNS:other.test", "&ssl_check_hostname=no", Rejected, "refused"),
            ("DNS:other.test", "&ssl_cert_reqs=none", Rejected, "refused"),
        ):
            with self.subTest(name + query):
                peer = self.peer(refusal, name)
                url = f"rediss://{peer.address}?ssl_ca_certs={peer.certificate}{query}"
                with self.assertRaisesRegex(error, text):
                    await SemaphoreClient(url).connect()

    async def test_users_and_passwords_from_both_places(self):
        server = self.server()
        for name, rights in (("jobs", ">secret"), ("looker", "nopass")):
            server.connection.execute_command("ACL", "SETUSER", name, "on", rights, "~*", "&*", "+@all")
        at = f"127.0.0.1:{server.port}"
        for url, options, user in (
            (f"redis://jobs:secret@{at}", {}, "jobs"), (f"redis://jobs@{at}", {"password": "secret"}, "jobs"),
            (f"redis://{at}", {"username": "jobs", "password": "secret"}, "jobs"), (f"redis://looker:@{at}", {}, "looker"),
            (f"redis://looker@{at}", {}, "looker"), (f"redis://{at}", {}, "default"),
        ):
            client = await self.connect(url, **options)
            users = {found["user"] for found in server.connection.client_list() if found["cmd"] != "client|list"}
            self.assertEqual(users, {user}, url)
            await client.close()

    async def test_errors_name_the_address_the_step_and_the_user(self):
        server = self.server()
        at = f"127.0.0.1:{server.port}"
        server.connection.execute_command("ACL", "SETUSER", "jobs", "on", ">secret", "~*", "&*", "+@all")
        with self.assertRaisesRegex(Rejected, f"{at}, connecting as user jobs: .*invalid"):
            await SemaphoreClient(f"redis://jobs:{SECRET}@{at}").connect()
        server.stop()
        with self.assertRaisesRegex(Unavailable, at):
            await SemaphoreClient(server.url, response_timeout=1).connect()
        server.go_on()
        client = await self.connect(server.url, response_timeout=1)
        server.kill()
        with self.assertRaisesRegex(SemaphoreError, f"{at}"):
            await client.semaphore(new_name(), limit=1).try_acquire()

    async def test_errors_over_a_unix_socket_are_those_over_tcp(self):
        server = self.server()
        path = f"{server._folder.name}/redis.sock"
        server._options += ["--unixsocket", path]
        server.kill()
        server.start()
        server.connection.config_set("requirepass", "secret")
        for url, text in (
            (f"unix://:{SECRET}@{path}", "connecting: .*"), (f"unix://:secret@{path}?db=99", "connecting: .*index"),
            (f"unix://{path}", ".*the server requires a password"),
        ):
            with self.subTest(url):
                with self.assertRaisesRegex(Rejected, f"^{path}, {text}") as caught:
                    await SemaphoreClient(url).connect()
                self.assertNotIn(SECRET, "".join(traceback.format_exception(caught.exception)))
        client = await self.connect(f"unix://:secret@{path}", heartbeat_timeout=0.6)
        server.connection.config_set("requirepass", "other")
        server.connection.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await until_async(lambda: client._link._line.has_ended)
        with self.assertRaises(Rejected):
            await client.semaphore(new_name(), limit=1).try_acquire()


if __name__ == "__main__":
    unittest.main()
