#!/usr/bin/env python3
"""Runs the vectors of lua/vectors: this client must call the scripts like all others.

    vectors.py [file.json ...]        (REDIS_URL names the server)
"""

import asyncio
import json
import os
import pathlib
import sys
import uuid

import redis.asyncio

from redis_lease_semaphore import SemaphoreError, scripts

URL = os.environ.get("REDIS_URL", "redis://127.0.0.1")
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "lua" / "vectors"
MESSAGE_TIMEOUT = 5


class Mismatch(Exception):
    pass


class Case:
    def __init__(self, connection):
        self.connection = connection
        name = f"vector-{uuid.uuid4()}"
        self.variables = {"name": name, "channel": f"sem:wake:{name}", "sharded": f"sem:{{{name}}}:wake:{name}"}
        self.variables.update(zip(scripts.KEYS, scripts.keys("sem", name)))
        self.listener = None

    async def run(self, steps):
        steps = json.loads(json.dumps(steps).replace("@", self.variables["name"]))
        kinds = ("call", "command", "keys", "expires", "until", "listen", "message")
        try:
            for number, step in enumerate(steps, 1):
                try:
                    (kind,) = (kind for kind in kinds if kind in step)
                    await getattr(self, kind)(step)
                except (Mismatch, redis.RedisError, SemaphoreError) as problem:
                    raise Mismatch(f"step {number} {json.dumps(step)}: {problem!r}") from problem
        finally:
            await self.connection.delete(*(self.variables[key] for key in scripts.KEYS))
            if self.listener is not None:
                await self.listener.connection.disconnect()

    async def call(self, step):
        keys = [self.variables[key] for key in step.get("with_keys", scripts.KEYS[: scripts.WITHOUT_GROUPS])]
        try:
            reply = await scripts.call(self.connection.execute_command, step["call"], keys, self.words(step["args"]))
        except (redis.ResponseError, SemaphoreError) as error:
            if "error" not in step or not str(error).startswith(step["error"]):
                raise
        else:
            if "error" in step:
                raise Mismatch(f"no error but {reply}")
            self.expect(step["reply"], reply)

    async def command(self, step):
        reply = await self.connection.execute_command(*self.words(step["command"]))
        if "reply" in step:
            self.expect(step["reply"], reply)

    async def keys(self, step):
        for key, expected in step["keys"].items():
            found = await self.contents(key)
            if set(expected) != set(found):
                raise Mismatch(f"{key} has {found}")
            for member, value in expected.items():
                self.expect(value, found[member], f"{key} {member}")

    async def contents(self, key):
        name = self.variables[key]
        if key == "state":
            return {field.decode(): value for field, value in (await self.connection.hgetall(name)).items()}
        members = await self.connection.zrange(name, 0, -1, withscores=True)
        return {member.decode(): score for member, score in members}

    async def expires(self, step):
        for key, expected in step["expires"].items():
            self.expect(expected, await self.connection.pttl(self.variables[key]), key)

    async def until(self, step):
        while True:
            seconds, microseconds = await self.connection.time()
            left = self.variables[step["until"]] - (seconds * 1000 + microseconds // 1000)
            if left <= 0:
                return
            await asyncio.sleep(left / 1000)

    async def listen(self, step):
        # Not subscribe(), because redis-py 4.3 does not support sharded channels.
        self.listener = self.connection.pubsub()
        command = "SSUBSCRIBE" if step.get("sharded") else "SUBSCRIBE"
        await self.listener.execute_command(command, self.variables[step["listen"]])
        self.expect([command.lower(), self.variables[step["listen"]], 1], await self.pushed())

    async def message(self, step):
        _, _, data = await self.pushed()
        self.expect(step["message"], [line.split(" ") for line in data.decode().split("\n")])

    async def pushed(self):
        reply = await self.listener.parse_response(block=False, timeout=MESSAGE_TIMEOUT)
        if reply is None:
            raise Mismatch("no message came")
        return reply

    def words(self, expressions):
        return [self.word(expression) for expression in expressions]

    def word(self, expression):
        if isinstance(expression, str):
            return expression
        value = self.variables[expression["is"]]
        return str(value + expression["plus"] if "plus" in expression else value)

    def expect(self, expected, found, where="reply"):
        if isinstance(expected, list):
            if not isinstance(found, (list, tuple)) or len(found) != len(expected):
                raise Mismatch(f"{where} is {found}, expected {expected}")
            for index, part in enumerate(expected):
                self.expect(part, found[index], f"{where}[{index}]")
        elif not self.matches(expected, found):
            raise Mismatch(f"{where} is {found}, expected {expected}, {self.variables}")

    def matches(self, expected, found):
        if isinstance(expected, dict) and isinstance(self.variables.get(expected.get("is")), str):
            expected = self.variables[expected["is"]]
        if isinstance(expected, str):
            return found in (expected, expected.encode())
        try:
            number = int(found)
        except (TypeError, ValueError):
            return False
        if isinstance(expected, int):
            return number == expected
        if "is" in expected:
            matches = number == self.variables[expected["is"]] + expected.get("plus", 0)
        elif "above" in expected:
            matches = number > self.variables[expected["above"]]
        else:
            matches = expected.get("from", number) <= number <= expected.get("to", number)
        if "save" in expected:
            self.variables[expected["save"]] = number
        return matches


async def main(files):
    connection = redis.asyncio.Redis.from_url(URL)
    version = numbers((await connection.info("server"))["redis_version"])
    passed = failed = 0
    for file in files or sorted(FOLDER.glob("*.json")):
        for case in json.loads(pathlib.Path(file).read_text("utf-8"))["cases"]:
            if version < numbers(case.get("needs", "0")):
                continue
            try:
                await Case(connection).run(case["steps"])
                passed += 1
            except Mismatch as mismatch:
                failed += 1
                print(f"{pathlib.Path(file).name}: {case['name']}: {mismatch}", file=sys.stderr)
    # If a client changed the text of a script, it would send the whole text with each call.
    known = await connection.script_exists(*(script["sha1"] for script in scripts.SCRIPTS.values()))
    if not all(known):
        failed += 1
        print(f"the server knows other scripts than the manifest: {known}", file=sys.stderr)
    await connection.connection_pool.disconnect()
    print(f"{passed} cases passed, {failed} failed")
    return 1 if failed or not passed else 0


def numbers(version):
    return [int(number) for number in version.split(".")[:2]]


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
