"""Permits that a program held or dropped when it ended."""

import time
import unittest

from support import URL, Keys, Server, new_name, run_program

BLOCKING = """
logging.basicConfig()
client = redis_lease_semaphore.SemaphoreClient(sys.argv[1], response_timeout=0.5)
client.connect()
semaphore = client.semaphore(sys.argv[2], limit=3)
"""
ASYNCIO = """
logging.basicConfig()
client = redis_lease_semaphore.asyncio.SemaphoreClient(sys.argv[1], response_timeout=0.5)
semaphore = client.semaphore(sys.argv[2], limit=3)
"""
GENERATOR = """
def pages():
    with semaphore.acquire():
        yield from range(10)
rows = pages()
next(rows)
"""
# Python calls __del__ of a global when it finalizes.
LATE = """
class Late:
    def __init__(self, *calls): self.calls = calls
    def __del__(self, Closed=redis_lease_semaphore.Closed, write=os.write):
        for call in self.calls:
            try:
                result = call()
            except Closed as error:
                result = f"Closed: {error}"
            write(1, f"{result}\\n".encode())
"""
ENDS = {
    "held by a global": (BLOCKING, "permit = semaphore.acquire()"),
    "dropped": (BLOCKING, "semaphore.acquire()"),
    "dropped by a function": (BLOCKING, "def work(): permit = semaphore.acquire()\nwork()"),
    "an error": (BLOCKING, "permit = semaphore.acquire()\n1 / 0"),
    "other clients whose loops were stopped": (BLOCKING, """
others = [redis_lease_semaphore.SemaphoreClient(sys.argv[1]) for _ in range(5)]
for other in others:
    other.connect()
    other._loop.call_soon_threadsafe(other._loop.stop)
    other._thread.join()
permit = semaphore.acquire()
"""),
    "an error with a permit in its frame": (BLOCKING, "def work():\n permit = semaphore.acquire()\n 1 / 0\nwork()"),
    "exit": (BLOCKING, "permit = semaphore.acquire()\nsys.exit(3)"),
    "an interrupt": (BLOCKING, "permit = semaphore.acquire()\nsignal.raise_signal(signal.SIGINT)"),
    "exit of a thread": (BLOCKING, """
def work():
    permits.append(semaphore.acquire())
    sys.exit(3)
permits = []
threading.Thread(target=work).start()
"""),
    "a daemon thread waits": (BLOCKING, """
permits = [semaphore.acquire() for _ in range(3)]
threading.Thread(target=semaphore.acquire, daemon=True).start()
while not client._core._semaphores[sys.argv[2]]._waits:
    time.sleep(0.01)
"""),
    "closed while it was held": (BLOCKING, "permit = semaphore.acquire()\nclient.close()"),
    "an interrupt of close": (BLOCKING, """
async def close():
    os.kill(os.getpid(), signal.SIGINT)
    while not is_interrupted: await asyncio.sleep(0.01)
    await go_on()
signal.signal(signal.SIGINT, signal.default_int_handler)
permit, is_interrupted, go_on, client._core.close = semaphore.acquire(), False, client._core.close, close
try:
    client.close()
finally:
    is_interrupted = True
"""),
    "a child of multiprocessing": (BLOCKING, """
import multiprocessing
def work():
    global permit
    permit = semaphore.acquire()
process = multiprocessing.get_context("fork").Process(target=work)
process.start()
process.join()
"""),
    "a child of multiprocessing with idle threads of an executor": (BLOCKING, """
import concurrent.futures, multiprocessing
def work():
    global permit, executor
    permit, executor = semaphore.acquire(), concurrent.futures.ThreadPoolExecutor()
    executor.submit(int).result()
process = multiprocessing.get_context("fork").Process(target=work)
process.start()
process.join()
assert process.exitcode == 0
"""),
    "a child of multiprocessing whose other thread works longer": (BLOCKING, """
import multiprocessing
def work_longer():
    threading.main_thread().join()
    assert permits.pop().release()
    permits.append(semaphore.acquire())
def work():
    global permits
    permits = [semaphore.acquire(), semaphore.acquire()]
    threading.Thread(target=work_longer).start()
process = multiprocessing.get_context("fork").Process(target=work)
process.start()
process.join()
assert process.exitcode == 0
"""),
    "a spawned child of multiprocessing with idle threads of an executor": (BLOCKING, """
import multiprocessing, pathlib, tempfile
with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "spawned.py").write_text('''if True:
        import concurrent.futures, redis_lease_semaphore
        def work(url, name):
            global permit, executor
            client = redis_lease_semaphore.SemaphoreClient(url)
            client.connect()
            permit, executor = client.semaphore(name, limit=3).acquire(), concurrent.futures.ThreadPoolExecutor()
            executor.submit(int).result()
    ''')
    sys.path.insert(0, folder)
    import spawned
    process = multiprocessing.get_context("spawn").Process(target=spawned.work, args=sys.argv[1:])
    process.start()
    process.join()
assert process.exitcode == 0
"""),
    "a block of a generator that is never finished": (BLOCKING, GENERATOR),
    "a block of a generator that a signal's handler keeps": (
        BLOCKING, GENERATOR + "signal.signal(signal.SIGTERM, lambda *_: rows)"),
    "a block of a client in a generator that is never finished": (BLOCKING, """
def pages():
    with redis_lease_semaphore.SemaphoreClient(sys.argv[1]) as other:
        with other.semaphore(sys.argv[2], limit=3).acquire():
            yield from range(10)
rows = pages()
next(rows)
"""),
    "a context manager that is never left": (BLOCKING, """
@contextlib.contextmanager
def hold():
    with semaphore.acquire():
        yield
manager = hold()
manager.__enter__()
"""),
    "released by __del__": (BLOCKING, LATE + "late = Late(semaphore.acquire().release)"),
    "closed by __del__": (BLOCKING, LATE + "permit, late = semaphore.acquire(), Late(client.close)"),
    "closed by __del__, while a daemon thread connects": (BLOCKING, LATE + """
silent = socket.create_server(("127.0.0.1", 0))
other = redis_lease_semaphore.SemaphoreClient(f"redis://127.0.0.1:{silent.getsockname()[1]}", response_timeout=600)
threading.Thread(target=other.connect, daemon=True).start()
accepted = silent.accept()
late = Late(other.close)
"""),
    "a forked child": (BLOCKING, "pid = os.fork()\npermit = semaphore.acquire()\nif pid: os.wait()"),
    "main of asyncio holds": (ASYNCIO, """
async def main():
    await client.connect()
    permit = await semaphore.acquire()
asyncio.run(main())
"""),
    "a global of asyncio": (ASYNCIO, """
async def main():
    global permit
    await client.connect()
    permit = await semaphore.acquire()
asyncio.run(main())
assert permit.is_lost
"""),
    "an error with asyncio": (ASYNCIO, """
async def main():
    await client.connect()
    permit = await semaphore.acquire()
    1 / 0
asyncio.run(main())
"""),
    "exit with asyncio, in a task": (ASYNCIO, """
async def work():
    async with semaphore.acquire():
        await asyncio.sleep(60)
async def main():
    await client.connect()
    tasks = [asyncio.create_task(work()) for _ in range(5)]
    while len(semaphore._permits) < 3: await asyncio.sleep(0.01)
    sys.exit(3)
asyncio.run(main())
"""),
    "dropped after the client of asyncio was closed": (ASYNCIO, """
async def main():
    await client.connect()
    permit = await semaphore.acquire()
    await client.close()
asyncio.run(main())
"""),
    "a permit and a client of asyncio that are dropped": (ASYNCIO, """
async def main():
    async with redis_lease_semaphore.asyncio.SemaphoreClient(sys.argv[1]) as client:
        permit = await client.semaphore(sys.argv[2], limit=3).acquire()
asyncio.run(main())
"""),
    "released in the background after the client of asyncio was closed": (ASYNCIO, """
async def main():
    await client.connect()
    permit = await semaphore.acquire()
    await client.close()
    asyncio.ensure_future(permit.release())
asyncio.run(main())
"""),
    "dropped by asyncio while the semaphore has no other work": (ASYNCIO, """
async def main():
    await client.connect()
    permit = await client.semaphore(sys.argv[2], limit=3, lease=10, max_hold=10).acquire()
    while client._active: await asyncio.sleep(0.01)
semaphore = None
client = redis_lease_semaphore.asyncio.SemaphoreClient(sys.argv[1])
asyncio.run(main())
"""),
    "a release whose task is cancelled": (ASYNCIO, """
async def main():
    await client.connect()
    asyncio.create_task((await semaphore.acquire()).release())
asyncio.run(main())
"""),
}


class Ends(unittest.TestCase):
    def setUp(self):
        self.name = new_name()
        self.keys = Keys(URL, self.name)
        self.addCleanup(self.keys.close)

    def test_nothing_is_held_when_the_program_has_ended(self):
        for name, (head, program) in ENDS.items():
            with self.subTest(name):
                self.name = new_name()
                keys = Keys(URL, self.name)
                done = run_program(head + program, self.name)
                self.assertEqual((keys.held(), keys.queued()), (0, 0), done.stderr)
                for noise in ("never retrieved", "was destroyed", "Exception ignored", "Exception in thread"):
                    self.assertNotIn(noise, done.stderr)
                keys.close()

    def test_a_loop_that_is_closed_alone_causes_no_error_of_the_subscription(self):
        done = run_program(ASYNCIO + """
async def main():
    global permit
    await client.connect()
    permit = await semaphore.acquire()
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
""", self.name)
        self.assertNotIn("the subscription has failed", done.stderr)
        self.assertNotIn("ignored GeneratorExit", done.stderr)

    def test_a_permit_that_a_daemon_thread_works_with_is_left_to_its_lease(self):
        done = run_program(BLOCKING + """
def work():
    with semaphore.acquire():
        is_held.set()
        time.sleep(600)
is_held = threading.Event()
threading.Thread(target=work, daemon=True).start()
is_held.wait()
""", self.name)
        self.assertEqual(self.keys.held(), 1, done.stderr)

    def test_calls_while_python_finalizes_return_what_is_known(self):
        done = run_program(BLOCKING + LATE + """
other = redis_lease_semaphore.SemaphoreClient(sys.argv[1])
permit = semaphore.acquire()
late = Late(permit.release, client.close, client.close, permit.release, semaphore.acquire, other.connect, other.close)
""", self.name)
        expected = "False\nNone\nNone\nFalse\nClosed: the program ends\nClosed: the program ends\nNone\n"
        self.assertEqual(done.stdout, expected, done.stderr)

    def test_a_release_while_python_finalizes_of_a_permit_of_a_daemon_thread_raises_closed(self):
        done = run_program(BLOCKING + LATE + """
work = "permits.append(semaphore.acquire()); is_held.set(); is_over.wait()"
names = {"semaphore": semaphore, "permits": [], "is_held": threading.Event(), "is_over": threading.Event()}
threading.Thread(target=exec, args=[work, names], daemon=True).start()  # it keeps none of the globals below
names["is_held"].wait()
late = Late(names["permits"].pop().release)
""", self.name)
        self.assertRegex(done.stdout, "^Closed: the program ends, so P:.* is free when its lease expires$", done.stderr)
        self.assertEqual(self.keys.held(), 1)

    def test_the_end_is_bounded_while_the_server_is_silent(self):
        silence = "os.kill(int(sys.argv[3]), signal.SIGSTOP)"
        # It interrupts the program when this condition is true.
        interrupt = """
def interrupt():
    while not {}: time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Thread(target=interrupt, daemon=True).start()
"""
        for head, program in (
            (BLOCKING, f"permit = semaphore.acquire()\n{silence}"),
            (BLOCKING, f"permit = semaphore.acquire()\n{silence}\n{interrupt.format('client._is_exiting')}"),
            (BLOCKING, f"""
permit, other = semaphore.acquire(), semaphore.acquire()
{silence}
client._hand_over(other._core._release_in_background)
{interrupt.format("client._core._is_closed")}
with contextlib.suppress(KeyboardInterrupt):
    client.close()
"""),
            (ASYNCIO, f"""
async def main():
    global permit
    await client.connect()
    permit = await semaphore.acquire()
    {silence}
asyncio.run(main())
"""),
        ):
            server = Server()
            self.addCleanup(server.close)
            start = time.monotonic()
            done = run_program(head + program, self.name, str(server.process.pid), url=server.url)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertLess(time.monotonic() - start, 20)
            self.assertIn("before Redis confirmed all releases", done.stderr)
            self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main()
