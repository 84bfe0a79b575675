"""Tests with users, passwords and their rights."""

import re
from urllib.parse import quote

from programs import CLIENTS
from thin_test import ThinTest


class Rights(ThinTest):
    def url(self, user, password):
        return self.server.url.replace("//", f"//{user}:{password}@")

    def test_passwords(self):
        # More than 255 bytes, with characters that a URL contains as %XX.
        password = "a" * 253 + "A@:/%ä and more"
        coded = quote(password, safe="")
        self.redis.execute_command("ACL", "SETUSER", "jobs", "on", f">{password}", "~*", "&*", "+@all")
        self.finish(self.start(1, 1, 0, 60_000, url=self.url("jobs", coded)))
        self.assert_denied(self.url("jobs", coded[:-1]), "WRONGPASS|invalid")
        self.assert_denied(self.url("jobs", "wrong"), "WRONGPASS|invalid")
        self.redis.execute_command("ACL", "SETUSER", "default", "resetpass", ">secret")
        self.assert_denied(self.server.url, "NOAUTH|unauthenticated")

    def assert_denied(self, url, message):
        self.assert_fails(self.start(1, 1, 0, 60_000, url=url), message=message)

    def test_the_user_of_production_md_is_denied_nothing(self):
        page = (CLIENTS.parent / "docs/production.md").read_text("utf-8")
        self.redis.execute_command(*re.search(r"^ACL SETUSER jobs [^`]+", page, re.M)[0].split())
        # Each of two processes waits for a grant message of the other.
        programs = [self.start(1, 5, 100, 5_000, url=self.url("jobs", "secret")) for _ in range(2)]
        self.check_turns(10, *programs)
        self.assertEqual(self.redis.acl_log(), [])
        statistics = self.redis.info("stats")
        denied = {name: number for name, number in statistics.items() if "acl_access_denied" in name and number > 0}
        for command, calls in self.redis.info("commandstats").items():
            if calls.get("rejected_calls", 0) > 0:
                denied[command] = calls
        self.assertEqual(denied, {})
