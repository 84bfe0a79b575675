"""The client for asyncio. Its names are those of the blocking client, which the package itself exports."""

from .permit import Permit
from .semaphore import Semaphore
from .client import SemaphoreClient

__all__ = ["Permit", "Semaphore", "SemaphoreClient"]
