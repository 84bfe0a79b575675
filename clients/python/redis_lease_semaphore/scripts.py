"""The semaphore's Lua scripts, and how they are called."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any, Awaitable, Callable, Sequence, Union

import redis

from . import errors

# In the repository this is a link to lua/manifest.json; an installed package has a copy.
_MANIFEST = json.loads(pathlib.Path(__file__).with_name("manifest.json").read_text("utf-8"))
SCRIPTS: dict[str, dict[str, str]] = {script["name"]: script for script in _MANIFEST["scripts"]}
_NO_ANSWER = (redis.ConnectionError, redis.TimeoutError, OSError)
# For these redis-py takes the code off the text; for others, and where Redis 6.2 puts words in front
# of it, it does not.
_CANNOT_NOW = (
    redis.exceptions.ReadOnlyError,
    redis.exceptions.TryAgainError,
    redis.exceptions.ClusterDownError,  # MASTERDOWN as well
)
_PASSING = re.compile(r"(^|-)(LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|NOREPLICAS|READONLY)\b")

KEYS = ("permits", "queue", "clients", "state")

Argument = Union[str, int]


def keys(prefix: str, name: str) -> list[str]:
    return [f"{prefix}:{{{name}}}:{key}" for key in KEYS]


def channel(prefix: str, client: str) -> str:
    """Where messages for the IDs of that client come."""
    return f"{prefix}:wake:{client}"


async def call(
    execute: Callable[..., Awaitable[Any]], name: str, keys: Sequence[str], arguments: Sequence[Argument]
) -> Any:
    """`execute` sends one command and returns its reply."""
    script = SCRIPTS[name]
    operands = (len(keys), *keys, *arguments)
    try:
        try:
            return await execute("EVALSHA", script["sha1"], *operands)
        except redis.exceptions.NoScriptError:
            return await execute("EVAL", script["source"], *operands)
    except redis.ResponseError as error:
        raise errors.from_reply(error)


def is_passing(error: BaseException) -> bool:
    """Whether a call that failed so should be repeated: no answer came, or the server can't now."""
    if isinstance(error, redis.AuthenticationError):  # for redis-py one of the connection
        return False
    return isinstance(error, _NO_ANSWER + _CANNOT_NOW) or _PASSING.search(str(error)) is not None
