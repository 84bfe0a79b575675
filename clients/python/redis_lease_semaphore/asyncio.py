"""The client for asyncio. Its names are those of the blocking client, which the package itself exports."""

from .group import Group
from .permit import Permit
from .semaphore import Semaphore
from .client import SemaphoreClient

__all__ = ["Group", "Permit", "Semaphore", "SemaphoreClient"]
