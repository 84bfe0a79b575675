"""The Lua scripts, and their calls."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any, Awaitable, Callable, Sequence, Union

import redis

from . import errors

# In the repository, this is a link to lua/manifest.json. An installed package contains a copy.
_MANIFEST = json.loads(pathlib.Path(__file__).with_name("manifest.json").read_text("utf-8"))
SCRIPTS: dict[str, dict[str, str]] = {script["name"]: script for script in _MANIFEST["scripts"]}
_NO_ANSWER = (redis.ConnectionError, redis.TimeoutError, OSError)
# redis-py removes the code from the text of these errors. It keeps the code of other errors, and any code after the
# prefix that Redis 6.2 adds.
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
    """Returns the channel of the client's messages."""
    return f"{prefix}:wake:{client}"


async def call(
    execute: Callable[..., Awaitable[Any]], name: str, keys: Sequence[str], arguments: Sequence[Argument]
) -> Any:
    """Calls a script. `execute` sends one command and returns its reply."""
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
    """Returns whether to retry a call after this error: no reply, or a temporary state of the server."""
    if isinstance(error, redis.AuthenticationError):  # for redis-py, this is a ConnectionError
        return False
    return isinstance(error, _NO_ANSWER + _CANNOT_NOW) or _PASSING.search(str(error)) is not None
