#!/usr/bin/env python3
"""Two workers at a time, first with asyncio, then with threads.

    example.py        (REDIS_URL names the server)
"""

import asyncio
import os
import threading
import time

import redis_lease_semaphore
import redis_lease_semaphore.asyncio

URL = os.environ.get("REDIS_URL", "redis://127.0.0.1")


async def with_asyncio() -> None:
    async with redis_lease_semaphore.asyncio.SemaphoreClient(URL) as client:
        semaphore = client.semaphore("example-pages", limit=2)

        async def work(page: int) -> None:
            async with semaphore.acquire(timeout=10) as permit:
                print(f"page {page}, fencing token {permit.fencing_token}")
                job = asyncio.ensure_future(asyncio.sleep(0.1))
                lost = asyncio.ensure_future(permit.lost.wait())
                await asyncio.wait([job, lost], return_when=asyncio.FIRST_COMPLETED)
                job.cancel()  # if the permit is lost, another process may work on the page
                lost.cancel()

        await asyncio.gather(*(work(page) for page in range(6)))


def with_threads() -> None:
    with redis_lease_semaphore.SemaphoreClient(URL) as client:
        semaphore = client.semaphore("example-sheets", limit=2)

        def work(sheet: int) -> None:
            with semaphore.acquire(timeout=10) as permit:
                for _ in range(10):
                    permit.check()  # raises PermitLost, which ends the work
                    time.sleep(0.01)
                print(f"sheet {sheet}, fencing token {permit.fencing_token}")

        threads = [threading.Thread(target=work, args=[sheet]) for sheet in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    asyncio.run(with_asyncio())
    with_threads()
