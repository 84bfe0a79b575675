"""What a semaphore has asked the server for, and has no answer to yet."""

import asyncio
import math
import os
import re
import secrets
import socket
import time

_HOST = re.sub(r"[^\w.-]", "-", socket.gethostname(), flags=re.ASCII)


class Claim:
    """A request for a permit, from acquire() until it is granted, refused or given up."""

    def __init__(self, weight, place):
        # People see who holds and who waits. Nobody can guess the rest.
        self.id = f"{_HOST}:{os.getpid()}:{secrets.token_hex(16)}"
        self.weight = weight
        self.place = place  # "try", "wait" or the ticket
        self.ahead = 0  # requests in the queue before this one
        self.outcome = asyncio.get_running_loop().create_future()
        self.is_due = True  # to be asked for in the next pass
        # When the last request was sent that was answered "queued"; before, the first of all.
        self.asked_at = None
        self.queued_at = 0  # the server's time in that answer, ms
        self.answered_at = time.monotonic()

    @property
    def ticket(self):
        return self.place if isinstance(self.place, int) else math.inf


class Release:
    """An id that is being given back, until that is confirmed or does not matter any more."""

    def __init__(self, until):
        self.until = until
        self.tries = 0
        self.outcome = asyncio.get_running_loop().create_future()
