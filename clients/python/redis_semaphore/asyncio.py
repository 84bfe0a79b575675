"""The client for asyncio. Its names are those of the blocking one, which the package has itself."""

from .client import Client
from .permit import Permit
from .semaphore import Semaphore

__all__ = ["Client", "Permit", "Semaphore"]
