import unittest

from redis_lease_semaphore import message


class Parse(unittest.TestCase):
    def test_what_scripts_send(self):
        self.assertEqual(message.parse(b"printer\na 1 2\nb 0 0"), ("printer", [("a", 1, 2), ("b", 0, 0)]))
        self.assertEqual(message.parse(b""), ("", []))

    def test_what_no_script_sends(self):
        for data in (
            b"printer\na 1",
            b"printer\na 1 2\n",
            b"printer\na 1 x",
            b"printer\na 1 -2",
            b"printer\na  1 2",
            b"printer\na 1 9007199254740992",
            b"printer\na 1 \xd9\xa1",
            b"\xff\na 1 2",
            b"printer\n" + b"a" * (1 << 20) + b" 1 2",
        ):
            self.assertIsNone(message.parse(data), data[:40])


if __name__ == "__main__":
    unittest.main()
