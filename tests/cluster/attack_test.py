#!/usr/bin/env python3
"""A run on two hosts while a third one attacks its launcher: a stranger who reaches its ports, and a neighbour who may
read the run folder and so has a reader's certificate. Launcher and agents may take 1 GiB each.

    attack_test.py TRAINCTL LIBTORCH

Skipped (exit code 77) where hosts cannot be made.
"""
import json
import os
import random
import resource
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE]
import cluster_case  # noqa: E402
import http2  # noqa: E402
from cluster_case import PATIENCE, Case, expect, expect_code, expect_nothing_left  # noqa: E402
from hosts import Hosts  # noqa: E402

SECONDS = 1  # of each attack
LIMIT_BYTES = 1 << 30
MOST_BYTES = 300 << 20
STATUS = b"/trainctl.v1.Admin/Status"
STOP = b"/trainctl.v1.Admin/Stop"
ENROLL = b"/trainctl.v1.Agents/Enroll"


# ---- the attackers, each a process of its own ----------------------------------------------------

reached = 0  # connections that came as far as the attack needs: a TCP connection, or a handshake


def connect(address):
    global reached
    connection = socket.create_connection(address, timeout=5)
    reached += 1
    return connection


def connect_http2(address, context):
    """Connects, as far as a client can tell: with TLS 1.3, the client's handshake completes before the server has seen
    its certificate."""
    global reached
    connection = http2.Connection(address, context)
    reached += 1
    return connection


def until_the_end(attack):
    """Repeats the attack for SECONDS seconds and returns `reached`. The attackers expect the other end to hang up."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            attack()
        except (OSError, ValueError):
            pass
    return reached


def idle_connections(address, access):
    held = []

    def attack():
        held.append(connect(address))
        if len(held) > 900:  # of the 1,024 files that a process may have open
            held.pop(0).close()

    return until_the_end(attack)


def half_a_handshake(address, access):
    def attack():
        with connect(address) as connection:
            connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + random.randbytes(100))

    return until_the_end(attack)


def garbage(address, access):
    def attack():
        with connect(address) as connection:
            connection.sendall(random.choice([http2.PREFACE, b"GET / HTTP/1.1\r\n\r\n", b""]) + random.randbytes(100000))
            connection.recv(1)

    return until_the_end(attack)


def many_streams(address, access):
    context = http2.context_of(access)

    def attack():
        with connect_http2(address, context) as connection:
            for stream in range(1, 20001, 2):
                connection.open_stream(stream, STATUS if access else ENROLL)

    return until_the_end(attack)


def calls_that_never_come(address, access):
    context = http2.context_of(access)
    held = []

    def attack():
        connection = connect_http2(address, context)
        held.append(connection)
        connection.open_stream(1, STATUS if access else ENROLL)
        if len(held) > 500:
            held.pop(0).close()

    return until_the_end(attack)


def endless_headers(address, access):
    context = http2.context_of(access)

    def attack():
        with connect_http2(address, context) as connection:
            connection.send(http2.frame(http2.HEADERS, 0, 1, http2.call_headers(STATUS)))
            piece = http2.frame(http2.CONTINUATION, 0, 1, http2.literal(b"x", b"y" * 100) * 150)
            for _ in range(1200):  # 19 MiB
                connection.send(piece)

    return until_the_end(attack)


def large_messages(address, access):
    context = http2.context_of(access)
    message = b"\0" + (40 << 20).to_bytes(4, "big") + b"x" * (40 << 20)

    def attack():
        with connect_http2(address, context) as connection:
            for stream in range(1, 16, 2):
                connection.open_stream(stream, STOP if access else ENROLL)
                connection.send_data(stream, message[:-1])  # the last byte never comes

    return until_the_end(attack)


ATTACKS = {attack.__name__: attack for attack in (
    idle_connections, half_a_handshake, garbage, many_streams, calls_that_never_come, endless_headers, large_messages)}


# ---- the run -------------------------------------------------------------------------------------

def peak_bytes(pid):
    with open("/proc/%d/status" % pid) as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))


class Answers:
    """Calls by the launcher's own user during the attacks, with their count and slowest time."""

    def __init__(self, case):
        self.case = case
        self.count = 0
        self.slowest = 0.0

    def ask(self, *arguments):
        begin = time.monotonic()
        result = self.case.run(*arguments, timeout=PATIENCE)
        self.slowest = max(self.slowest, time.monotonic() - begin)
        self.count += 1
        expect_code(result, 0)
        expect("cannot be reached" not in result.stdout, result.stdout)


def write_credential(case, name, access):
    for key, suffix in (("certificate", ".crt"), ("key", ".key")):
        with open("%s/%s%s" % (case.dir, name, suffix), "w") as file:
            file.write(access[key])
    return case.dir + "/" + name


def a_run_goes_on_whatever_strangers_and_neighbours_do(hosts, trainctl):
    case = Case("attack", hosts, trainctl)
    recipe = case.recipe("two.toml", 2, 1, 1, 2, steps=1000000)
    launch = case.popen("launch", recipe, "--run-dir", "run")
    case.wait("a few steps", lambda: case.steps("run") >= 3 or launch.poll() is not None)
    expect(launch.poll() is None, case.output())
    agents = [pid for name in ("node1", "node2") for pid in hosts[name].pids("trainctl agent")]
    guarded = [launch.pid] + agents
    for pid in guarded:
        resource.prlimit(pid, resource.RLIMIT_DATA, (LIMIT_BYTES, LIMIT_BYTES))
    with open(case.dir + "/run/reader.json") as file:
        access = json.load(file)
    reader = write_credential(case, "reader", access)
    agents_port, admin_port = case.launcher_ports("run", launch.pid)
    address = hosts["node1"].address
    answers = Answers(case)
    plan = [(name, agents_port, "none") for name in ATTACKS] + \
           [(name, agents_port, reader) for name in ("many_streams", "large_messages")] + \
           [(name, admin_port, reader) for name in ATTACKS if name not in ("half_a_handshake", "garbage")]
    for name, port, credential in plan:
        # They have machines of their own, and take nothing of this one's cores.
        attackers = [hosts["node3"].popen(["nice", "-n", "19", sys.executable, os.path.abspath(__file__), "--attack", name,
                                           address, str(port), credential], stdout=subprocess.PIPE, text=True)
                     for _ in range(2)]
        while any(attacker.poll() is None for attacker in attackers):
            answers.ask("status", "run")
            time.sleep(0.2)
        expect(launch.poll() is None, "exit code %s: %s" % (launch.poll(), case.output()[-3000:]))
        tries = sum(int(attacker.stdout.read()) for attacker in attackers)
        peaks = [peak_bytes(pid) >> 20 for pid in guarded]
        print("  %s at the %s port%s: %d tries, launcher and agents at most %d MiB" % (
            name, "admin" if port == admin_port else "agents'", "" if credential == "none" else ", as a reader", tries,
            max(peaks)), flush=True)
        expect(tries > 0 and launch.poll() is None, case.output())
        expect(max(peaks) << 20 < MOST_BYTES, "%s: %s MiB" % (name, peaks))
    answers.ask("save", "run")
    answers.ask("stop", "run")
    code = launch.wait(PATIENCE)
    expect(code == 75, "exit code %s:\n%s" % (code, case.output()))
    expect("restarting" not in case.output(), case.output())
    print("  %d answers, the slowest after %.2f s" % (answers.count, answers.slowest))
    expect_nothing_left(hosts)
    # The same steps, undisturbed.
    steps = case.steps("run")
    one = case.recipe("one.toml", 1, 2, 1, 2, steps=1000000)
    expect_code(case.run("launch", one, "--run-dir", "one", "--stop-after", str(steps)), 75)
    expect(case.metrics("run") == case.metrics("one"), "the run that was attacked has other losses")


def main():
    trainctl, libtorch = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    with Hosts(3, shared=[os.path.dirname(trainctl), libtorch]) as hosts:
        case = a_run_goes_on_whatever_strangers_and_neighbours_do
        return cluster_case.run_all([(case.__name__, lambda: case(hosts, trainctl))], hosts)


if __name__ == "__main__":
    if sys.argv[1] == "--attack":
        kind, host, at, certificate = sys.argv[2:]
        print(ATTACKS[kind]((host, int(at)), None if certificate == "none" else certificate))
        sys.exit(0)
    sys.exit(cluster_case.exit_code_of(main))
