import textwrap
import unittest

from support import URL, Keys, new_name, run_program, until

# A parent process connects, and its forked processes use the client.
PARENT = """
client = redis_lease_semaphore.SemaphoreClient(sys.argv[1], heartbeat_timeout=600)
client.connect()
semaphore = client.semaphore(sys.argv[2], limit=1)

def in_children(work, count=1):
    for _ in range(count):
        if os.fork() == 0:
            try:
                work()
                sys.stdout.flush()
                os._exit(0)
            except BaseException as error:
                print(repr(error), flush=True)
                os._exit(1)
    return [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(count)]
"""
ASYNCIO_PARENT = """
client = redis_lease_semaphore.asyncio.SemaphoreClient(sys.argv[1], heartbeat_timeout=600)
loop = asyncio.new_event_loop()
loop.run_until_complete(client.connect())
semaphore = client.semaphore(sys.argv[2], limit=1)
"""


class Forks(unittest.TestCase):
    def setUp(self):
        self.name = new_name()
        self.keys = Keys(URL, self.name)
        self.addCleanup(self.keys.close)

    def run_in(self, head, program):
        done = run_program(head + textwrap.dedent(program), self.name)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        return done.stdout

    def test_forked_processes_go_on_and_are_clients_of_their_own(self):
        told = self.run_in(PARENT, """
            held = semaphore.acquire()

            def work():
                for _ in range(50):
                    with semaphore.acquire(timeout=30):  # another process releases it, and a message grants it
                        pass

            def release_later():
                time.sleep(0.1)
                held.release()

            thread = threading.Thread(target=release_later)
            thread.start()
            print(in_children(work, 3))
            thread.join()
            with semaphore.acquire(timeout=30):  # the parent continues, too
                print(in_children(lambda: print(semaphore.try_acquire())))
            client.close()
        """)
        self.assertEqual(told, "[0, 0, 0]\nNone\n[0]\n")
        self.assertTrue(self.keys.are_empty())

    def test_a_process_forked_while_other_threads_use_the_client_goes_on(self):
        told = self.run_in(PARENT, """
            is_over = threading.Event()

            def busy():
                while not is_over.is_set():
                    with semaphore.acquire():
                        pass

            threads = [threading.Thread(target=busy) for _ in range(4)]
            for thread in threads:
                thread.start()

            def work():
                with semaphore.acquire(timeout=30):
                    pass

            for _ in range(10):
                for status in in_children(work, 2):
                    assert status == 0
            is_over.set()
            for thread in threads:
                thread.join()
            client.close()
        """)
        self.assertEqual(told, "")

    def test_a_permit_of_the_parent_is_not_the_childs(self):
        told = self.run_in(PARENT, """
            permit = semaphore.acquire()

            def work():
                try:
                    permit.release()
                except redis_lease_semaphore.Closed as error:
                    print("parent process" in str(error), client.close())
                try:
                    semaphore.try_acquire()
                except redis_lease_semaphore.Closed:
                    print("closed")

            in_children(work)
            with permit:
                pid = os.fork()  # the child also leaves the block, and ends normally
            if pid:
                os.wait()
            print("parent" if pid else "child", permit.is_lost, flush=True)
        """)
        self.assertEqual(told, "True None\nclosed\nchild False\nparent False\n")

    def test_a_child_that_drops_the_permit_of_its_parent_releases_nothing(self):
        self.run_in(PARENT, """
            permit = semaphore.acquire()

            def work():
                global permit
                del permit
                assert semaphore.try_acquire() is None

            assert in_children(work) == [0]
            assert permit.release()
            client.close()
        """)

    def test_a_child_may_connect_by_itself_and_close(self):
        self.run_in(PARENT, """
            def work():
                client.connect()
                with client.semaphore(sys.argv[2], limit=1).acquire(timeout=30):
                    pass
                client.close()

            assert in_children(work, 2) == [0, 0]
            semaphore.acquire().release()
            client.close()
            assert in_children(work) == [1]  # the client was closed before
        """)

    def test_with_asyncio_a_child_goes_on_in_a_loop_of_its_own(self):
        told = self.run_in(ASYNCIO_PARENT, """
            permit = loop.run_until_complete(semaphore.acquire())

            async def child():
                try:
                    await permit.release()
                except redis_lease_semaphore.Closed:
                    print("of the parent process")
                print(await semaphore.try_acquire(), flush=True)
                await semaphore.acquire(timeout=30)

            if os.fork() == 0:
                asyncio.run(child())
                os._exit(0)
            while not redis_lease_semaphore.scripts.redis.Redis.from_url(sys.argv[1]).zcard("sem:{" + sys.argv[2] + "}:queue"):
                time.sleep(0.01)
            assert loop.run_until_complete(permit.release())
            print(os.wait()[1])
            loop.run_until_complete(client.close())
        """)
        self.assertEqual(told, "of the parent process\nNone\n0\n")
        self.assertTrue(self.keys.are_empty())  # the end of its loop released the child's permit

    def test_with_asyncio_the_loop_of_the_parent_is_not_the_childs(self):
        told = self.run_in(ASYNCIO_PARENT, """
            async def fork():
                pid = os.fork()
                if pid:
                    return os.wait()
                for call in (semaphore.acquire, semaphore.try_acquire, client.connect):
                    try:
                        await call()
                    except redis_lease_semaphore.Closed as error:
                        print("asyncio.run()" in str(error), flush=True)
                print(await client.close(), flush=True)
                os._exit(0)

            loop.run_until_complete(fork())
            loop.run_until_complete(loop.run_until_complete(semaphore.acquire()).release())
            loop.run_until_complete(client.close())
        """)
        self.assertEqual(told, "True\nTrue\nTrue\nNone\n")

    def test_a_client_that_connects_after_forks_is_another_one_in_each_process(self):
        done = run_program("""
            client = redis_lease_semaphore.SemaphoreClient(sys.argv[1], heartbeat_timeout=600)
            for _ in range(2):
                if os.fork() == 0:
                    client.connect()
                    semaphore = client.semaphore(sys.argv[2], limit=1)
                    for _ in range(50):
                        with semaphore.acquire(timeout=30):  # the other process releases it, and a message grants it
                            pass
                    client.close()
                    os._exit(0)
            print(os.wait()[1], os.wait()[1])
        """, self.name)
        self.assertEqual(done.stdout, "0 0\n", done.stderr)

    def test_a_pool_of_multiprocessing(self):
        self.run_in(PARENT, """
            import multiprocessing

            def work(_):
                with semaphore.acquire(timeout=30):
                    return 1

            with semaphore.acquire():
                pool = multiprocessing.get_context("fork").Pool(3)
                result = pool.map_async(work, range(60))
            assert sum(result.get()) == 60
            pool.close()
            pool.join()
            client.close()
        """)
        until(self.keys.are_empty)


if __name__ == "__main__":
    unittest.main()
