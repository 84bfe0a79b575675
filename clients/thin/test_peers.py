"""Tests with servers that are not Redis, with wrong certificates, and with wrong URLs."""

import urllib.parse

from support import LastReply, Peer
from thin_test import ThinTest

SECRET = "S3cr3t"
PASSWORD = f"{SECRET}/@"
CODED = urllib.parse.quote(PASSWORD, safe="")


def words(request):
    return b" ".join(request.split(b"\r\n")[2::2])


class Peers(ThinTest):
    def assert_error(self, url, message, timeout=2_000, **environment):
        with self.subTest(url):
            program = self.start(1, 1, 0, 5_000, timeout, url=url, **environment)
            self.assert_fails(program, message=message)
            self.assertNotIn(SECRET, program.errors())
            self.assertLess(max(map(len, program.errors().splitlines())), 1_000)

    def peer(self, reply, name=None):
        peer = Peer(reply, name)
        self.addCleanup(peer.close)
        return peer

    def test_no_error_contains_the_password_if_a_peer_repeats_what_it_gets(self):
        for reply in (
            lambda request: b"-ERR unsupported command: " + words(request) + b"\r\n",
            lambda request: b"-ERR " + urllib.parse.quote(words(request)).encode() + b"\r\n",
            lambda request: b"HTTP/1.1 400 " + words(request) + b"\r\n",
            lambda request: b"-ERR " + CODED.encode() + b"x" * 5_000 + b"\r\n",
            lambda request: request,
        ):
            peer = self.peer(reply)
            for credentials in (f"bob:{CODED}", f":{CODED}", CODED):
                self.assert_error(f"redis://{credentials}@{peer.address}", ".")

    def test_a_reply_of_an_unexpected_type_has_a_clear_error(self):
        for reply in (b"+OK\r\n", b":1\r\n", b"$-1\r\n", b"*1\r\n:1\r\n", b"*5\r\n:1\r\n:1\r\n:1\r\n:1\r\n$1\r\n1\r\n"):
            self.assert_error(f"redis://{self.peer(lambda _: reply).address}", "reply to acquire is not of a Redis server")

    def test_subscriptions_that_are_always_cut_do_not_prolong_the_wait(self):
        subscriptions = []

        def reply(request):
            if b"subscribe" in request.lower():
                subscriptions.append(request)
                return LastReply(b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n")
            if b"return" in request:
                return b"*3\r\n:1\r\n:-1\r\n:1\r\n"
            if b"declare" not in request:
                return b"+OK\r\n"
            code = 0 if b"try" in request else 2
            return b"*6\r\n:1\r\n:-1\r\n:-1\r\n:%d\r\n:7\r\n:1\r\n" % code

        self.assert_error(f"redis://{self.peer(reply).address}", "no permit was granted in time")
        self.assertLess(len(subscriptions), 20, "it did not pause")

    def test_the_error_of_a_missing_password_says_where_it_belongs(self):
        self.redis.config_set("requirepass", "secret")
        self.redis.connection_pool.disconnect()
        self.assert_error(self.server.url, "requires a password")

    def test_the_certificate_and_its_host_name_are_checked(self):
        refusal = lambda _: b"-ERR refused\r\n"
        right, other = self.peer(refusal, "IP:127.0.0.1"), self.peer(refusal, "DNS:other.test")
        url = f"rediss://:{CODED}@{right.address}"
        self.assert_error(url, "refused", SSL_CERT_FILE=right.certificate)
        self.assert_error(url, "(?i)certificate verify failed", SSL_CERT_FILE=other.certificate)
        url = f"rediss://:{CODED}@{other.address}"
        self.assert_error(url, "(?i)host ?name|does not match|did not match", SSL_CERT_FILE=other.certificate)

    def test_no_error_of_a_wrong_url_contains_its_password(self):
        for url in (
            f"redis://:{SECRET}@h h", f"redis://:{SECRET}/x@h", f"redis://:{SECRET}#x@h", f":{SECRET}@h", SECRET,
            f"{SECRET}://h", f"redis://:{SECRET}@[::1", "redis://h h", f"redis://:{SECRET}@h:x",
        ):
            self.assert_error(url, "URL")
