"""A fair counting semaphore in Redis, shared by processes in any language.

This is the blocking client, for threads. The client for asyncio is redis_lease_semaphore.asyncio.
"""

from .blocking import Permit, Semaphore, SemaphoreClient
from .errors import (
    AcquireTimeout,
    Closed,
    MissingPermission,
    PermitLost,
    Rejected,
    SemaphoreError,
    TooHeavy,
    Unavailable,
)
from .group import Group

__all__ = [
    "AcquireTimeout",
    "Closed",
    "Group",
    "MissingPermission",
    "Permit",
    "PermitLost",
    "Rejected",
    "Semaphore",
    "SemaphoreClient",
    "SemaphoreError",
    "TooHeavy",
    "Unavailable",
]
