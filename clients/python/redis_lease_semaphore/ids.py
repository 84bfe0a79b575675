"""IDs: each names a request, and then the permit that it becomes."""

from __future__ import annotations

import os
import re
import secrets
import socket
from typing import Optional

# People see who holds and who waits. Nobody can guess the rest.
_HOST = re.sub(r"[^\w.-]", "-", socket.gethostname(), flags=re.ASCII)[:60]
_ID = re.compile(r"P:([\w.-]{1,100}):([1-9][0-9]{0,9}):([1-9][0-9]{0,8}):[\w-]{16,64}", re.ASCII)


def new_client() -> str:
    """What the IDs of a process have in common, and its channel."""
    return f"{_HOST}.{os.getpid()}.{secrets.token_hex(8)}"


def new(client: str, weight: int, lease_ms: int) -> str:
    return f"P:{client}:{weight}:{lease_ms}:{secrets.token_urlsafe(16)}"


def lease_of(client: str, request_id: str) -> Optional[float]:
    """The lease in an ID of this client, in seconds; None where it is none."""
    match = _ID.fullmatch(request_id)
    if match is None or match[1] != client or int(match[2]) >= 2**32 or int(match[3]) > 604_800_000:
        return None
    return int(match[3]) / 1000
