"""As much of HTTP/2 as it takes to misuse it, over TLS."""
import socket
import ssl
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, WINDOW_UPDATE, CONTINUATION = 0, 1, 4, 8, 9
END_HEADERS = 4
INITIAL_WINDOW = 65535
INITIAL_WINDOW_SIZE = 4  # a setting


def context_of(access=None):
    """Shows the key and the certificate in files of that name, if any; believes every server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if access is not None:
        context.load_cert_chain(access + ".crt", access + ".key")
    return context


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name, value):
    """Encodes a header field without indexing; name and value are at most 126 bytes each."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def call_headers(method):
    return b"".join(literal(name, value) for name, value in (
        (b":method", b"POST"), (b":scheme", b"https"), (b":path", method), (b":authority", b"trainctl"),
        (b"te", b"trailers"), (b"content-type", b"application/grpc")))


class Connection:
    """An HTTP/2 client connection that raises OSError once the peer closes it. Reads only when it waits for room."""

    def __init__(self, address, context):
        self._initial = INITIAL_WINDOW
        self._windows = {0: INITIAL_WINDOW}
        self._received = b""
        raw = socket.create_connection(address, timeout=5)
        try:
            self.socket = context.wrap_socket(raw)
        except OSError:
            raw.close()
            raise
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, *frames):
        self.socket.sendall(b"".join(frames))

    def open_stream(self, stream, method):
        self._windows[stream] = self._initial
        self.send(frame(HEADERS, END_HEADERS, stream, call_headers(method)))

    def send_data(self, stream, data):
        """Sends `data` as the peer's flow-control windows allow."""
        at = 0
        while at < len(data):
            count = min(self._windows[0], self._windows[stream], 16384, len(data) - at)
            if count <= 0:
                self._read_frame()
                continue
            self._windows[0] -= count
            self._windows[stream] -= count
            self.send(frame(DATA, 0, stream, data[at:at + count]))
            at += count

    def _read_frame(self):
        head = self._receive(9)
        kind, stream = head[3], struct.unpack(">I", head[5:])[0]
        payload = self._receive(struct.unpack(">I", b"\0" + head[:3])[0])
        if kind == WINDOW_UPDATE:
            self._windows[stream] = self._windows.get(stream, self._initial) + struct.unpack(">I", payload)[0]
        elif kind == SETTINGS:
            for at in range(0, len(payload), 6):
                setting, value = struct.unpack(">HI", payload[at:at + 6])
                if setting == INITIAL_WINDOW_SIZE:
                    for each in self._windows:
                        self._windows[each] += value - self._initial if each else 0
                    self._initial = value

    def _receive(self, count):
        while len(self._received) < count:
            piece = self.socket.recv(65536)
            if not piece:
                raise OSError("closed")
            self._received += piece
        data, self._received = self._received[:count], self._received[count:]
        return data
