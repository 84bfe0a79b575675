"""The semaphore's Lua scripts, from lua/manifest.json."""

import json
import pathlib

import redis

MANIFEST = pathlib.Path(__file__).resolve().parents[2] / "lua" / "manifest.json"
SCRIPTS = {s["name"]: s for s in json.loads(MANIFEST.read_text("utf-8"))["scripts"]}


class Scripts:
    def __init__(self, connection):
        self.connection = connection

    def call(self, name, keys, arguments):
        script = SCRIPTS[name]
        try:
            return self.connection.execute_command("EVALSHA", script["sha1"], len(keys), *keys, *arguments)
        except redis.exceptions.NoScriptError:
            return self.connection.execute_command("EVAL", script["source"], len(keys), *keys, *arguments)
