"""The Lua scripts, and their calls."""

from __future__ import annotations

import importlib.resources
import json
from typing import Any, Awaitable, Callable, Sequence, Union

import redis

# In the repository, this is a link to lua/manifest.json. An installed package contains a copy.
_FILE = importlib.resources.files(__package__) / "manifest.json"
if not _FILE.is_file():
    raise FileNotFoundError(f"{_FILE} is missing: to copy clients/python alone, use cp -rL or pip")
_MANIFEST = json.loads(_FILE.read_text("utf-8"))
SCRIPTS: dict[str, dict[str, str]] = {script["name"]: script for script in _MANIFEST["scripts"]}

KEYS = ("permits", "queue", "clients", "state", "order", "turns")
WITHOUT_GROUPS = 4  # the number of keys that a call has if the semaphore has no groups

Argument = Union[str, int]


def keys(prefix: str, name: str) -> list[str]:
    return [f"{prefix}:{{{name}}}:{key}" for key in KEYS]


class Keys:
    """The keys of a semaphore."""

    def __init__(self, prefix: str, name: str) -> None:
        self._all = keys(prefix, name)
        self.has_groups = False

    @property
    def named(self) -> list[str]:
        """The keys that a call names: the keys for groups only if the semaphore has groups."""
        return self._all if self.has_groups else self._all[:WITHOUT_GROUPS]


def channel(prefix: str, client: str) -> str:
    """Returns the channel of the client's messages."""
    return f"{prefix}:wake:{client}"


# For each script: how many arguments come before the requests, and how many arguments each request has. Then the same
# for the numbers of the reply: how many come before the results, and how many each result has.
_SHAPES = {"acquire": (3, 2, 3, 3), "refresh": (0, 2, 2, 1), "release": (1, 1, 2, 1)}


def is_reply(script: str, arguments: Sequence[Argument], reply: Any) -> bool:
    """Returns whether a reply can be of this script: one result for each request, or one result for all."""
    if not isinstance(reply, list) or script == "probe":
        return isinstance(reply, list)
    if script not in _SHAPES:
        return len(reply) == 3 and all(isinstance(part, int) for part in reply)
    before, arguments_each, first, each = _SHAPES[script]
    count = (len(arguments) - before) // arguments_each
    for_all = script != "refresh" and len(reply) == first + each
    return (for_all or len(reply) == first + each * count) and all(isinstance(part, int) for part in reply)


Execute = Callable[..., Awaitable[Any]]  # sends one command and returns its reply


async def call(execute: Execute, name: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
    """Calls a script."""
    try:
        return await execute("EVALSHA", SCRIPTS[name]["sha1"], len(keys), *keys, *arguments)
    except redis.exceptions.NoScriptError:
        return await load(execute, name, keys, arguments)


async def load(execute: Execute, name: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
    """Calls a script that the server may not know."""
    return await execute("EVAL", SCRIPTS[name]["source"], len(keys), *keys, *arguments)
