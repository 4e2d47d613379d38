#!/usr/bin/env python3
"""The proxy that makes a bad network does what it says, and loses nothing that it should keep.

    tcp_proxy_test.py [FILTER]
"""
import os
import random
import select
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tcp_proxy import DOWN, HELD_BYTES, UP, TcpProxy  # noqa: E402

FILTER = sys.argv[1] if len(sys.argv) > 1 else ""
PATIENCE = 60  # seconds, for anything that is waited for
FAILURES = []
CASES = []


def case(function):
    if FILTER in function.__name__:
        CASES.append(function)
    return function


def expect(true, *words):
    if not true:
        raise AssertionError(" ".join(str(word) for word in words))


def wait(what, ready):
    deadline = time.monotonic() + PATIENCE
    while not ready():
        if time.monotonic() > deadline:
            raise RuntimeError("not seen in %d s: %s" % (PATIENCE, what))
        time.sleep(0.001)


def receive(connection, count):
    data = bytearray()
    while len(data) < count:
        part = connection.recv(count - len(data))
        expect(part, "the end after", bytes(data[-100:]))
        data += part
    return bytes(data)


def is_silent(connection):
    return not select.select([connection], [], [], 0)[0]


class Line:
    """A client, the proxy, and the server's end of the connection."""

    def __init__(self, seed=0):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.proxy = TcpProxy(*self.listener.getsockname(), seed=seed)
        self.client, self.server = self.connect()

    def connect(self):
        client = socket.create_connection(("127.0.0.1", self.proxy.port), PATIENCE)
        server, _ = self.listener.accept()
        for one in (client, server):
            one.settimeout(PATIENCE)
        return client, server

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.proxy.close()
        for one in (self.client, self.server, self.listener):
            one.close()


@case
def much_data_passes_both_ways_and_so_do_the_ends():
    with Line() as line:
        data = random.Random(1).randbytes(8 << 20)
        answer = random.Random(2).randbytes(8 << 20)

        def send(one, what):
            one.sendall(what)
            one.shutdown(socket.SHUT_WR)

        threads = [threading.Thread(target=send, args=pair) for pair in ((line.client, data), (line.server, answer))]
        got = {}
        threads += [threading.Thread(target=lambda one=one, name=name, count=count: got.update({name: receive(one, count)}))
                    for one, name, count in ((line.server, UP, len(data)), (line.client, DOWN, len(answer)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expect(got == {UP: data, DOWN: answer}, "other data")
        expect(line.client.recv(1) == b"" and line.server.recv(1) == b"", "no end")
        wait("the end of the connection", lambda: line.proxy.connections() == 0)


@case
def one_end_may_close_before_the_other():
    with Line() as line:
        line.client.shutdown(socket.SHUT_WR)
        expect(line.server.recv(1) == b"", "no end")
        line.server.sendall(b"answer")
        expect(receive(line.client, 6) == b"answer", "no answer")
        expect(line.proxy.connections() == 1, "closed too early")


@case
def a_delay_is_at_least_that_long_in_its_direction():
    with Line() as line:
        line.proxy.delay(up_ms=120, down_ms=60)
        for source, sink, seconds in ((line.client, line.server, 0.12), (line.server, line.client, 0.06)):
            start = time.monotonic()
            source.sendall(b"x")
            receive(sink, 1)
            expect(time.monotonic() - start >= seconds, "only", time.monotonic() - start)


@case
def what_is_lost_comes_later_and_in_order():
    with Line(seed=3) as line:
        line.proxy.lose(1, 150, UP)
        start = time.monotonic()
        line.client.sendall(b"x")
        receive(line.server, 1)
        expect(time.monotonic() - start >= 0.15, "only", time.monotonic() - start)
        line.proxy.lose(0.3, 20)
        text = b"".join(b"%05d" % i for i in range(200))
        for start in range(0, len(text), 5):
            line.client.sendall(text[start:start + 5])
        expect(receive(line.server, len(text)) == text, "another order")


@case
def a_stall_holds_one_direction_until_it_is_resumed():
    with Line() as line:
        line.proxy.stall(UP)
        line.client.sendall(b"held")
        wait("that it is held", lambda: line.proxy.held_bytes(UP) == 4)
        line.server.sendall(b"back")
        expect(receive(line.client, 4) == b"back", "the other direction")
        expect(is_silent(line.server), "it arrived")
        line.proxy.resume()
        expect(receive(line.server, 4) == b"held", "lost")
        expect(line.proxy.held_bytes(UP) == 0, "still held")


@case
def a_sender_has_to_wait_when_much_is_held():
    with Line() as line:
        line.proxy.stall()
        data = random.Random(1).randbytes(2 << 20)
        sender = threading.Thread(target=line.client.sendall, args=(data,))
        sender.start()
        wait("that it is full", lambda: line.proxy.held_bytes(UP) >= HELD_BYTES)
        pipe = line.proxy._connections[0][0]
        expect(not pipe.may_read(), "more is read")
        pipe.sink.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)  # takes parts of chunks
        line.proxy.resume()
        expect(receive(line.server, len(data)) == data, "other data")
        sender.join()


@case
def a_connection_that_is_half_open_says_nothing_of_it():
    with Line() as line:
        line.proxy.swallow(UP)
        line.client.sendall(b"gone")
        wait("that it is swallowed", lambda: line.proxy.swallowed_bytes(UP) == 4)
        line.server.sendall(b"back")
        expect(receive(line.client, 4) == b"back", "the other direction")
        line.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        line.client.close()  # by RST
        wait("the RST", lambda: line.proxy._connections[0][0].is_read)
        for _ in range(3):
            line.server.sendall(b"more")
            wait("that it is lost", lambda: line.proxy.held_bytes(DOWN) == 0)
        expect(is_silent(line.server), "the server hears of it")
        expect(line.proxy.connections() == 1, "it is not open")
        # A later connection swallows as well, until it is healed.
        client, server = line.connect()
        client.sendall(b"gone")
        wait("that it is swallowed", lambda: line.proxy.swallowed_bytes(UP) == 8)
        expect(is_silent(server), "it arrived")
        line.proxy.heal()
        client.sendall(b"here")
        expect(receive(server, 4) == b"here", "nothing arrives")
        client.close()
        server.close()


@case
def a_reset_reaches_both_ends_and_later_connections_work():
    with Line() as line:
        line.proxy.reset()
        for one in (line.client, line.server):
            try:
                expect(one.recv(1) is None, "a clean end")
            except ConnectionResetError:
                pass
        expect(line.proxy.connections() == 0, "still there")
        client, server = line.connect()
        client.sendall(b"again")
        expect(receive(server, 5) == b"again", "nothing arrives")
        client.close()
        server.close()


@case
def an_end_that_dies_is_heard_of_at_the_other():
    with Line() as line:
        line.server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        line.server.close()
        try:
            expect(line.client.recv(1) is None, "a clean end")
        except ConnectionResetError:
            pass


@case
def a_target_that_is_not_there_resets():
    free = socket.create_server(("127.0.0.1", 0))
    address = free.getsockname()
    free.close()
    with TcpProxy(*address) as proxy:
        try:
            with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE) as client:
                expect(client.recv(1) is None, "a clean end")
        except ConnectionResetError:
            pass


@case
def the_thread_sleeps_when_there_is_nothing_to_do():
    with Line() as line:
        line.proxy.stall(UP)
        line.client.sendall(b"held")
        line.client.shutdown(socket.SHUT_WR)
        wait("that it is held", lambda: line.proxy.held_bytes(UP) == 4)
        wait("the end", lambda: line.proxy._connections[0][0].is_read)
        poll, timeout = line.proxy._interests()
        wait("that it is awake no more", lambda: poll.poll(0) == [])
        expect(timeout is None, "it wakes up in", timeout)


@case
def as_a_program_it_takes_commands():
    listener = socket.create_server(("127.0.0.1", 0))
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tcp_proxy.py")
    with subprocess.Popen([sys.executable, program, "127.0.0.1", str(listener.getsockname()[1])], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as process:
        client = socket.create_connection(("127.0.0.1", int(process.stdout.readline())), PATIENCE)
        server, _ = listener.accept()
        for command in ("lose 0.5 20", "delay 1 1", "stall up", "resume", "swallow up", "heal", "reset"):
            process.stdin.write(command + "\n")
            process.stdin.flush()
            expect(process.stdout.readline() == "ok\n", command)
        for one in (client, server):
            try:
                expect(one.recv(1) is None, "no reset")
            except ConnectionResetError:
                pass
            one.close()
        process.stdin.close()
        expect(process.wait(PATIENCE) == 0, process.returncode)
    listener.close()


def main():
    for function in CASES:
        start = time.monotonic()
        try:
            function()
        except Exception as error:  # the other cases run all the same
            FAILURES.append(function.__name__)
            print("FAILED %s: %r" % (function.__name__, error), flush=True)
        print("%s: %.1f s" % (function.__name__, time.monotonic() - start), flush=True)
    return 1 if FAILURES else 0


sys.exit(main())
