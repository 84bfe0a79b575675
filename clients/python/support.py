"""The shared part of the tests: servers, other processes, and waits for a condition."""

import asyncio
import contextlib
import os
import pathlib
import shutil
import signal
import socket
import socketserver
import ssl
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import uuid

import redis

from redis_lease_semaphore import scripts

URL = os.environ.get("REDIS_URL", "redis://127.0.0.1")
TURNS = pathlib.Path(__file__).with_name("turns.py")
DEADLINE = 60.0  # enough for any busy machine
HUGE = 10**5000  # larger than any float, and too long for Python to print


def new_name():
    return f"test-{uuid.uuid4()}"


def until(condition, deadline=DEADLINE):
    """Waits until the condition returns a true value, and returns that value."""
    end = time.monotonic() + deadline
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline} s")
        time.sleep(0.005)


async def until_async(condition, deadline=DEADLINE):
    end = time.monotonic() + deadline
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline} s")
        await asyncio.sleep(0.005)


class Keys:
    """The data of one semaphore on the server."""

    def __init__(self, url, name):
        self.connection = redis.Redis.from_url(url, decode_responses=True)
        self.permits, self.queue, self.clients, self.state = scripts.keys("sem", name)[:4]

    def ends(self):
        """Returns the expiries of the leases by permit ID."""
        return dict(self.connection.zrangebyscore(self.permits, "(0", "+inf", withscores=True))

    def held(self):
        return len(self.ends())

    def queued(self):
        return self.connection.zcard(self.queue)

    def are_empty(self):
        return self.held() + self.queued() == 0

    def close(self):
        self.connection.connection_pool.disconnect()


def _free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return port < 55000 and port  # nodes of a cluster also use the port 10,000 above it


class Server:
    """A private server, which tests stop, kill and inspect."""

    def __init__(self, *options, program=None):
        program = program or os.environ.get("REDIS_SERVER_BIN") or shutil.which("redis-server")
        if program is None:
            raise RuntimeError("no redis-server: set REDIS_SERVER_BIN")
        self._folder = tempfile.TemporaryDirectory()
        self._options = [program, "--save", "", "--dir", self._folder.name, *options]
        self.port = until(_free_port)
        self.start()
        while self.process.poll() is not None:  # another process has taken the port in the meantime
            self.port = until(_free_port)
            self.start()
        self.url = f"redis://127.0.0.1:{self.port}"

    def start(self):
        self.process = subprocess.Popen([*self._options, "--port", str(self.port)], stdout=subprocess.DEVNULL)
        self.connection = redis.Redis.from_url(f"redis://127.0.0.1:{self.port}", decode_responses=True)
        until(lambda: self._answers() or self.process.poll() is not None)

    def _answers(self):
        try:
            return self.connection.ping()
        except redis.ConnectionError:
            return False
        except redis.ResponseError:  # the server does not know a command of the handshake
            return True

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.connection.connection_pool.disconnect()
        self.kill()
        self._folder.cleanup()

    def script_calls(self):
        return self.connection.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]


class LastReply(bytes):
    """A reply of a Peer, which closes the connection afterwards."""


class Peer:
    """A server that is not Redis. It sends `reply(request)` after each request, and closes if that is None.

    With a name such as "DNS:other.test", it uses TLS, with a certificate of this name: the file `certificate`.
    """

    def __init__(self, reply, name=None):
        self._folder = tempfile.TemporaryDirectory()
        context = None
        if name is not None:
            self.certificate, key = (f"{self._folder.name}/{file}" for file in ("certificate", "key"))
            words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -addext".split()
            words += [f"subjectAltName={name}", "-keyout", key, "-out", self.certificate]
            subprocess.run(words, check=True, stderr=subprocess.DEVNULL)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate, key)

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                with contextlib.suppress(OSError):  # including a handshake that the client has ended
                    stream = context.wrap_socket(self.request, server_side=True) if context else self.request
                    with stream:
                        while (request := stream.recv(65536)) and (answer := reply(request)) is not None:
                            stream.sendall(answer)
                            if isinstance(answer, LastReply):
                                break

        class Listening(socketserver.ThreadingTCPServer):
            daemon_threads, request_queue_size = True, 100

        self._server = Listening(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._folder.cleanup()


class Turns:
    """The program turns.py in a separate process."""

    def __init__(self, url, name, limit=1, count=1, hold_ms=0, lease_ms=30_000):
        words = (str(word) for word in (name, limit, count, hold_ms, lease_ms))
        self.process = subprocess.Popen(
            [sys.executable, TURNS, *words],
            env={**os.environ, "REDIS_URL": url},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self):
        return self.process.stdout.readline().split()

    def kill(self):
        """Ends the process like a crash."""
        self.process.kill()
        self.finish()

    def finish(self):
        """Returns the lines that it printed, and its exit status."""
        output, self.errors = self.process.communicate(timeout=DEADLINE)
        return [line.split() for line in output.splitlines()], self.process.returncode


def run_program(program, *arguments, url=URL):
    """Runs a program in a separate process. `sys.argv` has the URL and the arguments."""
    head = "import asyncio, contextlib, logging, os, signal, socket, sys, threading, time, redis_lease_semaphore\n"
    head += "import redis_lease_semaphore.asyncio\n"
    words = [sys.executable, "-c", head + textwrap.dedent(program), url, *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=2 * DEADLINE)


class Proxy:
    """A proxy between a client and a server, which can lose or delay replies."""

    def __init__(self, port):
        self.port = port
        self.lose = None  # an ID: the reply to the next request with it is lost
        self.is_cutting = True  # closes the connection with that reply; otherwise it stays silent
        self.lost = 0
        self.delay = 0.0  # the delay of each reply
        self._tasks, self._writers = [], []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._tasks)

    async def _serve(self, reader, writer):
        self._tasks.append(asyncio.current_task())
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers += (writer, server_writer)
        is_losing = False

        async def requests():
            nonlocal is_losing
            while data := await reader.read(65536):
                if self.lose is not None and self.lose in data:
                    self.lose, is_losing = None, True
                server_writer.write(data)
            server_writer.close()

        async def replies():
            while data := await server_reader.read(65536):
                if is_losing:
                    self.lost += 1
                    if self.is_cutting:
                        break
                    continue
                await asyncio.sleep(self.delay)
                writer.write(data)
            writer.close()
            server_writer.close()

        await asyncio.gather(requests(), replies())
