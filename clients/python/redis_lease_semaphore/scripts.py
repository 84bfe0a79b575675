"""The Lua scripts, and their calls."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Awaitable, Callable, Sequence, Union

import redis

# In the repository, this is a link to lua/manifest.json. An installed package contains a copy.
_MANIFEST = json.loads(pathlib.Path(__file__).with_name("manifest.json").read_text("utf-8"))
SCRIPTS: dict[str, dict[str, str]] = {script["name"]: script for script in _MANIFEST["scripts"]}

KEYS = ("permits", "queue", "clients", "state")

Argument = Union[str, int]


def keys(prefix: str, name: str) -> list[str]:
    return [f"{prefix}:{{{name}}}:{key}" for key in KEYS]


def channel(prefix: str, client: str) -> str:
    """Returns the channel of the client's messages."""
    return f"{prefix}:wake:{client}"


async def call(
    execute: Callable[..., Awaitable[Any]], name: str, keys: Sequence[str], arguments: Sequence[Argument]
) -> Any:
    """Calls a script. `execute` sends one command and returns its reply."""
    script = SCRIPTS[name]
    operands = (len(keys), *keys, *arguments)
    try:
        return await execute("EVALSHA", script["sha1"], *operands)
    except redis.exceptions.NoScriptError:
        return await execute("EVAL", script["source"], *operands)
