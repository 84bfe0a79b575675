#!/usr/bin/env python3
"""Takes permits one after the other, and tells when it held them.

    turns.py NAME LIMIT COUNT HOLD_MS LEASE_MS        (REDIS_URL says which server)
"""

import os
import sys
import time

from redis_semaphore import Client


def tell(*words):
    print(*words, flush=True)


def microseconds():
    return time.time_ns() // 1000


def main(name, limit, count, hold_ms, lease_ms):
    with Client(os.environ.get("REDIS_URL", "redis://127.0.0.1")) as client:
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
