"""IDs of requests, and of their permits."""

from __future__ import annotations

import os
import re
import secrets
import socket
from typing import Optional

# The readable part of the client. The rest is random.
_HOST = re.sub(r"[^\w.-]", "-", socket.gethostname(), flags=re.ASCII)[:60]
_ID = re.compile(r"P:([\w.-]{1,100}):([1-9][0-9]{0,9}):([1-9][0-9]{0,8}):[\w-]{16,64}", re.ASCII)


def new_client() -> str:
    """Returns a new client, which is a part of its IDs and of its channel."""
    return f"{_HOST}.{os.getpid()}.{secrets.token_hex(8)}"


def new(client: str, weight: int, lease_ms: int) -> str:
    return f"P:{client}:{weight}:{lease_ms}:{secrets.token_urlsafe(16)}"


def lease_of(client: str, request_id: str) -> Optional[float]:
    """Returns the lease in an ID of this client in seconds, or None if it is no such ID."""
    match = _ID.fullmatch(request_id)
    if match is None or match[1] != client or int(match[2]) >= 2**32 or int(match[3]) > 604_800_000:
        return None
    return int(match[3]) / 1000
