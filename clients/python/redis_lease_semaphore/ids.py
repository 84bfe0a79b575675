"""IDs of requests, and of their permits."""

from __future__ import annotations

import os
import re
import secrets
import socket
from typing import Optional

from .group import Group

# The readable part of the client. The rest is random.
_HOST = re.sub(r"[^\w.-]", "-", socket.gethostname(), flags=re.ASCII)[:60]
_GROUP = r"[\w.-]{1,64},(?:[1-9][0-9]{0,2}|1000),(0|[1-9][0-9]{0,9}):"
_ID = re.compile(
    rf"P:([\w.-]{{1,100}}):([1-9][0-9]{{0,9}}):([1-9][0-9]{{0,8}}):(?:{_GROUP})?[\w-]{{16,64}}", re.ASCII
)


def new_client() -> str:
    """Returns a new client, which is a part of its IDs and of its channel."""
    return f"{_HOST}.{os.getpid()}.{secrets.token_hex(8)}"


def new(client: str, weight: int, lease_ms: int, group: Optional[Group] = None) -> str:
    """Returns a new ID. A group without a cap has the cap 0 there."""
    part = "" if group is None else f"{group.name},{group.share},{group.cap or 0}:"
    return f"P:{client}:{weight}:{lease_ms}:{part}{secrets.token_urlsafe(16)}"


def lease_of(client: str, request_id: str) -> Optional[float]:
    """Returns the lease in an ID of this client in seconds, or None if it is no such ID."""
    match = _ID.fullmatch(request_id)
    if match is None or match[1] != client:
        return None
    weight, lease_ms, cap = int(match[2]), int(match[3]), int(match[4] or 0)
    if max(weight, cap) >= 2**32 or lease_ms > 604_800_000 or 0 < cap < weight:
        return None
    return lease_ms / 1000
