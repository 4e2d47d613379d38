"""Runs a real, headless browser and returns a page's final document, its picture and its error messages."""
import os
import re
import shutil
import signal
import struct
import subprocess
import zlib

SKIPPED = 77  # ctest's word for a test that could not run
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TIMEOUT_S = 120


def find():
    for name in NAMES:
        path = shutil.which(name)
        if path:
            return path
    return None


def skip():
    print(f"skipped: none of {', '.join(NAMES)} is installed; ./dev setup as root installs chromium")
    return SKIPPED


def _run(program, page, profile, size, dark, *options):
    command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
               "--no-first-run", "--disable-extensions", "--disable-background-networking", "--hide-scrollbars",
               "--enable-logging=stderr", "--window-size=" + size,
               "--blink-settings=preferredColorScheme=" + ("0" if dark else "1"),
               "--user-data-dir=" + profile, *options, "file://" + page]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, f"the browser did not end within {TIMEOUT_S} s"
    finally:
        # The browser's own helpers end with it; nothing of its group may stay.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return out.decode(errors="replace"), err.decode(errors="replace")


def dom_of(program, page, profile, size, dark=False):
    """Returns the document after its scripts have run, and the browser's stderr."""
    return _run(program, page, profile, size, dark, "--virtual-time-budget=2000", "--dump-dom")


def screenshot(program, page, profile, size, path, dark=False):
    """Writes a PNG of the window and returns the browser's stderr."""
    # With virtual time the browser takes the picture before it has painted all of the window.
    return _run(program, page, profile, size, dark, "--screenshot=" + path)[1]


def complaints(err):
    """Returns the page's console messages, including errors of scripts and of the policy."""
    return [line for line in err.splitlines() if ":CONSOLE" in line]


def attribute(dom, name):
    found = re.search(rf'<html[^>]*\sdata-{name}="([^"]*)"', dom)
    return found.group(1) if found else None


def colors_of(path):
    """How often each color, as 0xrrggbb, is in a PNG with 8 bits per channel."""
    with open(path, "rb") as file:
        content = file.read()
    if content[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError(path + " is not a PNG")
    at, packed = 8, b""
    while at < len(content):
        length, kind = struct.unpack(">I4s", content[at:at + 8])
        body = content[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, color_type = struct.unpack(">IIBB", body[:10])
        elif kind == b"IDAT":
            packed += body
        at += length + 12
    channels = {2: 3, 6: 4}[color_type]
    if depth != 8:
        raise ValueError(path + " has not 8 bits per channel")
    raw, stride = zlib.decompress(packed), width * channels
    above, counts = bytearray(stride), {}
    for y in range(height):
        start = y * (stride + 1)
        how, row = raw[start], bytearray(raw[start + 1:start + 1 + stride])
        for i in range(stride if how else 0):
            left = row[i - channels] if i >= channels else 0
            if how == 1:
                predicted = left
            elif how == 2:
                predicted = above[i]
            elif how == 3:
                predicted = (left + above[i]) >> 1
            else:
                corner = above[i - channels] if i >= channels else 0
                guess = left + above[i] - corner
                distances = abs(guess - left), abs(guess - above[i]), abs(guess - corner)
                nearest = min(distances)
                predicted = left if distances[0] == nearest else above[i] if distances[1] == nearest else corner
            row[i] = (row[i] + predicted) & 255
        for i in range(0, stride, channels):
            color = row[i] << 16 | row[i + 1] << 8 | row[i + 2]
            counts[color] = counts.get(color, 0) + 1
        above = row
    return counts
