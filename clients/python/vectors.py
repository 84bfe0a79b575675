"""Runs the vectors of lua/vectors: does this client call the scripts as all others do?

    python3 vectors.py [file.json ...]        (REDIS_URL says which server)
"""

import json
import os
import pathlib
import sys
import time
import uuid

import redis

from scripts import Scripts

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "lua" / "vectors"
KEYS = ("permits", "queue", "waiting", "state")


URL = os.environ.get("REDIS_URL", "redis://127.0.0.1")


class Mismatch(Exception):
    pass


class Case:
    def __init__(self, connection):
        self.connection = connection
        self.scripts = Scripts(connection)
        name = f"vector-{uuid.uuid4()}"
        self.variables = {"name": name, "channel": f"sem:wake:{name}", "sharded": f"sem:{{{name}}}:wake"}
        self.variables.update({key: f"sem:{{{name}}}:{key}" for key in KEYS})
        self.listener = None

    def run(self, step):
        kind = next(iter(step))
        getattr(self, f"step_{kind}")(step)

    def step_call(self, step):
        keys = [self.variables[key] for key in step.get("with_keys", KEYS)]
        arguments = [self.value(argument) for argument in step["args"]]
        try:
            reply = self.scripts.call(step["call"], keys, arguments)
        except redis.ResponseError as error:
            if not str(error).startswith(step.get("error", "\0")):
                raise Mismatch(f"error {error}") from error
            return
        if "error" in step:
            raise Mismatch(f"no error but {reply}")
        self.expect(step["reply"], reply)

    def step_command(self, step):
        reply = self.connection.execute_command(*(self.value(word) for word in step["command"]))
        if "reply" in step:
            self.expect(step["reply"], reply)

    def step_keys(self, step):
        for key, expected in step["keys"].items():
            self.expect_members(expected, self.contents(key), key)

    def step_expires(self, step):
        for key, expected in step["expires"].items():
            self.expect(expected, self.connection.execute_command("PTTL", self.variables[key]), key)

    def step_until(self, step):
        while True:
            seconds, us = self.connection.execute_command("TIME")
            left = self.variables[step["until"]] - (int(seconds) * 1000 + int(us) // 1000)
            if left <= 0:
                return
            time.sleep(left / 1000)

    def step_listen(self, step):
        self.listener = self.connection.pubsub()
        channel = self.variables[step["listen"]]
        if step.get("sharded"):
            self.listener.ssubscribe(channel)
        else:
            self.listener.subscribe(channel)
        self.next_message({"subscribe", "ssubscribe"})

    def step_message(self, step):
        text = self.next_message({"message", "smessage"})["data"].decode()
        self.expect(step["message"], [line.split(" ") for line in text.split("\n")])

    def next_message(self, kinds):
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            message = self.listener.get_message(timeout=0.1)
            if message and message["type"] in kinds:
                return message
        raise Mismatch("no message came")

    def contents(self, key):
        name = self.variables[key]
        if key in ("permits", "queue"):
            flat = self.connection.execute_command("ZRANGE", name, 0, -1, "WITHSCORES")
            if flat and isinstance(flat[0], (tuple, list)):
                return {member.decode(): score for member, score in flat}
        else:
            flat = self.connection.execute_command("HGETALL", name)
            if isinstance(flat, dict):
                flat = [part for pair in flat.items() for part in pair]
        found = {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}
        if key == "waiting":
            found = {id: record.split(b" ") for id, record in found.items()}
        return found

    def expect_members(self, expected, found, where):
        if set(expected) != set(found):
            raise Mismatch(f"{where} has {found}")
        for member, value in expected.items():
            self.expect(value, found[member], f"{where} {member}")

    def value(self, expression):
        if isinstance(expression, str):
            return expression
        value = self.variables[expression["is"]]
        return str(value + expression["plus"] if "plus" in expression else value)

    def expect(self, expected, found, where="reply"):
        problem = Mismatch(f"{where} is {found}, expected {json.dumps(expected)} of {self.variables}")
        if isinstance(expected, list):
            if not isinstance(found, (list, tuple)) or len(found) != len(expected):
                raise problem
            for index, (part, its) in enumerate(zip(expected, found)):
                self.expect(part, its, f"{where}[{index}]")
            return
        if isinstance(expected, str):
            if found != expected and found != expected.encode():
                raise problem
            return
        if isinstance(expected, dict) and isinstance(self.variables.get(expected.get("is")), str):
            self.expect(self.variables[expected["is"]], found, where)
            return
        number = int(found)
        if isinstance(expected, int):
            matches = number == expected
        else:
            matches = self.matches(expected, number)
        if not matches:
            raise problem
        if isinstance(expected, dict) and "save" in expected:
            self.variables[expected["save"]] = number

    def matches(self, expected, number):
        if "is" in expected:
            return number == self.variables[expected["is"]] + expected.get("plus", 0)
        if "above" in expected:
            return number > self.variables[expected["above"]]
        if "from" in expected:
            return expected["from"] <= number <= expected["to"]
        return True


def main(files):
    connection = redis.Redis.from_url(URL)
    version = connection.info("server")["redis_version"]
    passed, failed = 0, 0
    for file in files or sorted(FOLDER.glob("*.json")):
        for case in json.loads(pathlib.Path(file).read_text("utf-8"))["cases"]:
            needed = case.get("needs", "0")
            if [int(n) for n in version.split(".")[:2]] < [int(n) for n in needed.split(".")[:2]]:
                continue
            running = Case(connection)
            try:
                for number, step in enumerate(case["steps"], 1):
                    try:
                        running.run(step)
                    except Exception as problem:
                        raise Mismatch(f"step {number} {json.dumps(step)}: {problem!r}") from problem
                passed += 1
            except Mismatch as mismatch:
                failed += 1
                print(f"{pathlib.Path(file).name}: {case['name']}: {mismatch}", file=sys.stderr)
    print(f"{passed} cases passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
