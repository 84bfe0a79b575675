"""A fair counting semaphore in Redis, shared by processes in any language.

This is the blocking client, for threads. The one for asyncio is redis_lease_semaphore.asyncio.
"""

from .blocking import Permit, Semaphore, SemaphoreClient
from .errors import (
    AcquireTimeout,
    Closed,
    MissingPermission,
    PermitLost,
    ProtocolError,
    SemaphoreError,
    TooHeavy,
    Unavailable,
)

__all__ = [
    "AcquireTimeout",
    "Closed",
    "MissingPermission",
    "Permit",
    "PermitLost",
    "ProtocolError",
    "Semaphore",
    "SemaphoreClient",
    "SemaphoreError",
    "TooHeavy",
    "Unavailable",
]
