"""The client for asyncio. Its names are those of the blocking one, which the package has itself."""

from .permit import Permit
from .semaphore import Semaphore
from .client import SemaphoreClient

__all__ = ["Permit", "Semaphore", "SemaphoreClient"]
