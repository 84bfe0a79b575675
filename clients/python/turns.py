#!/usr/bin/env python3
"""Acquires permits, one after another, and prints when it held them.

    turns.py NAME LIMIT COUNT HOLD_MS LEASE_MS        (REDIS_URL names the server)
"""

import os
import sys
import time

from redis_lease_semaphore import SemaphoreClient


def tell(*words: object) -> None:
    print(*words, flush=True)


def microseconds() -> int:
    return time.time_ns() // 1000


def main(name: str, limit: str, count: str, hold_ms: str, lease_ms: str) -> None:
    with SemaphoreClient(os.environ.get("REDIS_URL", "redis://127.0.0.1")) as client:
        semaphore = client.semaphore(name, limit=int(limit), lease=int(lease_ms) / 1000)
        for _ in range(int(count)):
            with semaphore.acquire() as permit:
                tell("held", permit.fencing_token, microseconds())
                time.sleep(int(hold_ms) / 1000)
                tell("released", microseconds())


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    main(*sys.argv[1:])
