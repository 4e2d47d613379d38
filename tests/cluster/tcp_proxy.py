"""A bad network for one TCP service: a proxy that delays, stalls, swallows and resets, as told while it runs.

    with TcpProxy("127.0.0.1", port) as proxy:
        connect(("127.0.0.1", proxy.port))
        proxy.delay(up_ms=50, down_ms=50)
        proxy.lose(0.1, ms=200)   # a tenth of what is sent comes that much later, and all after it, too
        proxy.stall("up")         # nothing goes up; resume() delivers it
        proxy.swallow("down")     # half-open: what is sent down is lost, its end as well, and nobody gets an error
        proxy.reset()             # RST to both ends of all connections
        proxy.heal()              # as at the start; what was swallowed stays lost

"up" is from who connects to the target, "down" is back; without a direction, both. All but reset() also holds for
connections that are made later.

As a program, for hosts of their own: prints its port, takes such commands from standard input ("delay 50 50", "stall
up") and answers each with "ok". Ends with its standard input.

    tcp_proxy.py TARGET_HOST TARGET_PORT [LISTEN_ADDRESS]
"""
import collections
import contextlib
import random
import select
import socket
import struct
import sys
import threading
import time

UP, DOWN = "up", "down"
BOTH = (UP, DOWN)
HELD_BYTES = 1 << 20  # of one direction of a connection; the sender has to wait when there is more
READ_BYTES = 1 << 16
COMMANDS = ("delay", "lose", "stall", "resume", "swallow", "reset", "heal")


class _Road:
    """What happens to one direction of all connections."""

    def __init__(self):
        self.heal()
        self.swallowed_bytes = 0

    def heal(self):
        self.delay_s = 0.0
        self.loss = 0.0
        self.loss_s = 0.0
        self.is_stalled = False
        self.is_swallowed = False


class _Pipe:
    """One direction of one connection."""

    def __init__(self, road, source, sink):
        self.road = road
        self.source = source
        self.sink = sink
        self.chunks = collections.deque()  # (when it is due, data; empty: the end)
        self.held_bytes = 0
        self.is_read = False  # to its end
        self.is_done = False  # the end has been passed on

    def may_read(self):
        return not self.is_read and self.held_bytes < HELD_BYTES

    def is_due(self, now):
        return bool(self.chunks) and not self.road.is_stalled and self.chunks[0][0] <= now


class TcpProxy:
    """Listens on a free port of `listen`. The seed decides what lose() picks."""

    def __init__(self, target_host, target_port, listen="127.0.0.1", seed=0):
        self.target = (target_host, int(target_port))
        self._random = random.Random(seed)
        self._roads = {UP: _Road(), DOWN: _Road()}
        self._connections = []  # pairs of pipes: up, down
        self._lock = threading.Lock()
        self._is_open = True
        self._listener = socket.create_server((listen, 0), family=_family(listen), backlog=1000)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._waker, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- commands ----------------------------------------------------------------------------

    def delay(self, up_ms=0, down_ms=0):
        with self._change():
            self._roads[UP].delay_s, self._roads[DOWN].delay_s = float(up_ms) / 1000, float(down_ms) / 1000

    def lose(self, part, ms=200, *directions):
        with self._change():
            for road in self._of(directions):
                road.loss, road.loss_s = float(part), float(ms) / 1000

    def stall(self, *directions):
        with self._change():
            for road in self._of(directions):
                road.is_stalled = True

    def resume(self, *directions):
        with self._change():
            for road in self._of(directions):
                road.is_stalled = False

    def swallow(self, *directions):
        """What is held of it is lost as well."""
        with self._change():
            for road in self._of(directions):
                road.is_swallowed = True
                for pipe in self._pipes():
                    if pipe.road is road:
                        self._drop(pipe)

    def reset(self):
        with self._change():
            for connection in list(self._connections):
                self._reset(connection)

    def heal(self):
        with self._change():
            for road in self._roads.values():
                road.heal()

    def close(self):
        if not self._thread.is_alive():
            return
        with self._change():
            self._is_open = False
        self._thread.join()
        for connection in list(self._connections):
            self._close(connection)
        for one in (self._listener, self._waker, self._woken):
            one.close()

    # ---- for tests that wait for something ---------------------------------------------------

    def connections(self):
        with self._lock:
            return len(self._connections)

    def held_bytes(self, direction):
        """Read from the sender and not yet passed on."""
        with self._lock:
            return sum(pipe.held_bytes for pipe in self._pipes() if pipe.road is self._roads[direction])

    def swallowed_bytes(self, direction):
        with self._lock:
            return self._roads[direction].swallowed_bytes

    # ---- the thread --------------------------------------------------------------------------

    @contextlib.contextmanager
    def _change(self):
        with self._lock:
            yield
        self._waker.send(b"x")

    def _of(self, directions):
        return [self._roads[direction] for direction in directions or BOTH]

    def _pipes(self):
        return [pipe for connection in self._connections for pipe in connection]

    def _work(self):
        while True:
            with self._lock:
                if not self._is_open:
                    return
                poll, timeout = self._interests()
            events = dict(poll.poll(timeout))
            with self._lock:
                if self._woken.fileno() in events:
                    self._woken.recv(4096)
                if self._listener.fileno() in events:
                    self._accept()
                for connection in list(self._connections):
                    self._serve(connection, events)

    def _interests(self):
        wanted = {self._woken.fileno(): select.POLLIN, self._listener.fileno(): select.POLLIN}
        now = time.monotonic()
        timeout = None
        for pipe in self._pipes():
            if pipe.may_read():
                wanted[pipe.source.fileno()] = wanted.get(pipe.source.fileno(), 0) | select.POLLIN
            if pipe.is_due(now):
                wanted[pipe.sink.fileno()] = wanted.get(pipe.sink.fileno(), 0) | select.POLLOUT
            elif pipe.chunks and not pipe.road.is_stalled:
                until = pipe.chunks[0][0] - now
                timeout = until if timeout is None else min(timeout, until)
        poll = select.poll()
        for number, events in wanted.items():
            poll.register(number, events)
        # Rounded up: a poll that ends too early would only be done again.
        return poll, None if timeout is None else int(timeout * 1000) + 1

    def _accept(self):
        try:
            client, _ = self._listener.accept()
        except OSError:
            return  # has gone again
        target = socket.socket(_family(self.target[0]))
        for one in (client, target):
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        target.connect_ex(self.target)  # what comes of it is seen when it is read
        self._connections.append((_Pipe(self._roads[UP], client, target), _Pipe(self._roads[DOWN], target, client)))

    def _serve(self, connection, events):
        for pipe in connection:
            if connection not in self._connections:
                return
            try:
                if pipe.may_read() and events.get(pipe.source.fileno(), 0) & ~select.POLLOUT:
                    self._read(pipe)
            except BlockingIOError:
                pass
            except OSError:
                self._fail(connection, pipe)
        now = time.monotonic()
        for pipe, back in zip(connection, reversed(connection)):
            if connection not in self._connections:
                return
            try:
                if pipe.is_due(now) and events.get(pipe.sink.fileno(), 0) & ~select.POLLIN:
                    self._write(pipe)
            except BlockingIOError:
                pass
            except OSError:
                self._fail(connection, back)
        if all(pipe.is_done for pipe in connection) and connection in self._connections:
            self._close(connection)

    def _read(self, pipe):
        road = pipe.road
        data = pipe.source.recv(READ_BYTES)
        pipe.is_read = not data
        if road.is_swallowed:
            road.swallowed_bytes += len(data)
            return
        due = time.monotonic() + road.delay_s
        if road.loss and self._random.random() < road.loss:
            due += road.loss_s
        pipe.chunks.append((due, data))  # and not before what is ahead of it
        pipe.held_bytes += len(data)

    @staticmethod
    def _write(pipe):
        due, data = pipe.chunks[0]
        if data:
            sent = pipe.sink.send(data)
            pipe.held_bytes -= sent
            if sent < len(data):
                pipe.chunks[0] = (due, data[sent:])
                return
        else:
            pipe.sink.shutdown(socket.SHUT_WR)
            pipe.is_done = True
        pipe.chunks.popleft()

    @staticmethod
    def _drop(pipe):
        pipe.road.swallowed_bytes += pipe.held_bytes
        pipe.chunks.clear()
        pipe.held_bytes = 0

    def _fail(self, connection, pipe):
        """The source of the pipe is broken."""
        if not pipe.road.is_swallowed:
            self._reset(connection)
            return
        # The other end must not hear of it.
        pipe.is_read = True
        back = connection[1] if pipe is connection[0] else connection[0]
        self._drop(back)
        back.is_done = True

    def _reset(self, connection):
        for pipe in connection:
            pipe.source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._close(connection)

    def _close(self, connection):
        self._connections.remove(connection)
        for pipe in connection:
            pipe.source.close()


def _family(host):
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def main(target_host, target_port, listen="127.0.0.1"):
    with TcpProxy(target_host, target_port, listen) as proxy:
        print(proxy.port, flush=True)
        for line in sys.stdin:
            name, *arguments = line.split()
            if name not in COMMANDS:
                sys.exit("tcp_proxy: no command " + name)
            getattr(proxy, name)(*arguments)
            print("ok", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
