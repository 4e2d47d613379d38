#!/usr/bin/env python3
"""Networks that fail while a run over several machines goes on: what is lost is named, and nothing else is lost.

    partition_test.py TRAINCTL LIBTORCH [--all] [FILTER]

Without --all or a filter the long cases are left out; without --all there are fewer repetitions. Skipped (exit code 77)
where hosts cannot be had. node1 and node2 have a worker each; where nothing else is said, node3 launches and takes no
part.

After each case: exit codes, what was said, the run's events, no process, no folder of an agent, and metrics that are
those of an undisturbed run, to the byte.
"""
import json
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cluster_case  # noqa: E402
from cluster_case import PATIENCE, expect, expect_code, expect_nothing_left, left_on  # noqa: E402
from hosts import Hosts  # noqa: E402

WORDS = [word for word in sys.argv[1:] if word != "--all"]
TRAINCTL = os.path.abspath(WORDS[0])
LIBTORCH = os.path.abspath(WORDS[1])
FILTER = WORDS[2] if len(WORDS) > 2 else ""
IS_LONG = "--all" in sys.argv
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"  # no profile of this machine

FOR_EVER = 1000000  # steps: a case ends its run when it has seen enough
DETECT = 3  # seconds; a connection that broke has half of it
COORDINATOR = 6
SHORT = 'collective_timeout = "60s"\nstop_timeout = "10s"\ncoordinator_timeout = "%ds"\n' % COORDINATOR


class Run:
    """A run of two workers, each on a node of its own, and what is known of it."""

    undisturbed = []  # metrics of the run that nobody disturbed, as far as they were needed

    def __init__(self, name, hosts, launcher="node3", nodes=("node1", "node2"), every=20, launch=SHORT, detect=DETECT):
        self.hosts = hosts
        self.case = cluster_case.Case(name, hosts, TRAINCTL, launcher)
        self.detect = detect
        recipe = self.case.recipe("run.toml", 1, 2 // len(nodes), 1, 2, steps=FOR_EVER, every=every, launch=launch)
        self.arguments = [recipe, "--run-dir", "run", "--set=launch.backend=ssh", "--set=cluster.nodes=%d" % len(nodes),
                          "--set=launch.ssh.hosts=" + json.dumps(nodes), "--set=launch.detect_timeout=%ds" % detect]
        self.process = None

    def start(self, env=None):
        self.process = self.case.popen("launch", *self.arguments, env=env)
        return self

    def resume(self, *arguments):
        self.process = self.case.popen("resume", "run", *arguments)

    def steps(self):
        return self.case.steps("run")

    def wait(self, what, ready):
        """Until it is ready; the launch must go on meanwhile."""
        self.case.wait(what, lambda: self.process.poll() is not None or ready())
        expect(self.process.poll() is None, "the launch ended before %s:\n%s" % (what, self.case.output()))

    def wait_for_steps(self, more):
        wanted = self.steps() + more
        self.wait("step %d" % wanted, lambda: self.steps() >= wanted)

    def wait_until_heard(self):
        """Until the launcher knows of all workers that they have come as far as they are now."""
        wanted = self.steps()

        def is_heard():
            status = self.case.run("status", "run", "--json")
            return status.returncode == 0 and all(worker.get("step", 0) >= wanted
                                                  for worker in json.loads(status.stdout).get("workers", [{}]))

        self.wait("word of step %d of all workers" % wanted, is_heard)

    def wait_for_words(self, words):
        self.wait("'%s'" % words, lambda: words in self.case.output())

    def wait_for_no_worker(self, *names):
        self.wait("the end of the workers of " + ", ".join(names),
                  lambda: not any(self.hosts[name].pids("trainctl-worker") for name in names))

    def end(self):
        """Saves and stops."""
        self.process.send_signal(signal.SIGTERM)
        self.expect_code(75)
        expect_nothing_left(self.hosts)

    def expect_code(self, code):
        ended = self.process.wait(PATIENCE)
        expect(ended == code, "exit code %s, not %s:\n%s" % (ended, code, self.case.output()))

    def events(self, kind=None):
        told = self.case.run("events", "run", "--json")
        expect_code(told, 0)
        events = [json.loads(line) for line in told.stdout.splitlines()]
        return [event for event in events if kind in (None, event["event"])]

    def expect_events(self, kind, *words):
        """As many of this kind as there are words, each with its own in the message."""
        told = [event.get("message", "") for event in self.events(kind)]
        expect(len(told) == len(words) and all(part in text for part, text in zip(words, told)),
               "%s: %s, not %s" % (kind, told, words))

    def expect_undisturbed(self):
        """Nothing was restarted, lost or named."""
        for word in ("restarting", "lost", "failed", "did not come back"):
            expect(word not in self.case.output(), self.case.output())
        for kind in ("worker_exit", "restart"):
            self.expect_events(kind)
        expect([event["generation"] for event in self.events("generation")] == [1], self.events())

    def expect_same_metrics(self):
        seen = self.case.metrics("run")
        expect(len(seen) > 0, "no step was done")
        Run.lengthen_undisturbed(self.hosts, len(seen))
        for step, (one, other) in enumerate(zip(seen, Run.undisturbed), 1):
            expect(one == other, "step %d: %s, undisturbed %s" % (step, one, other))

    @staticmethod
    def lengthen_undisturbed(hosts, steps):
        """On one machine."""
        if len(Run.undisturbed) >= steps:
            return
        until = ["--stop-after", str(steps)]
        if Run.undisturbed:
            expect_code(hosts["node3"].run(TRAINCTL, "resume", "undisturbed/run", *until, timeout=PATIENCE), 75)
        else:
            case = cluster_case.Case("undisturbed", hosts, TRAINCTL, "node3")
            recipe = case.recipe("one.toml", 1, 2, 1, 2, steps=FOR_EVER)
            expect_code(case.run("launch", recipe, "--run-dir", "run", *until), 75)
        with open(hosts.dir + "/undisturbed/run/metrics.jsonl") as file:
            Run.undisturbed = [json.loads(line) for line in file]


def cut(hosts, a, b):
    hosts.blackhole(a, to=b)
    hosts.blackhole(b, to=a)


# ---- a node ----------------------------------------------------------------------------------


def lose_and_take_again(run, disturb):
    """node2 is away for longer than its launcher waits, and then its workers wait. The same node is taken again."""
    run.start()
    run.wait("a checkpoint", lambda: run.case.checkpoints("run"))
    disturb()
    run.wait_for_words("lost with its node node2: no word from its agent for ")
    run.wait_for_no_worker("node2")  # by themselves: the network is still away
    run.hosts.heal()
    run.wait("a second generation", lambda: len(run.events("generation")) == 2)
    run.wait_for_steps(5)
    run.end()
    expect("rank 1 on node2 failed in step " in run.case.output() and "rank 0 on node1 failed" not in run.case.output(), run.case.output())
    run.expect_events("worker_exit", "lost with its node node2: no word from its agent for ")
    run.expect_events("restart", "restarting all workers (1 of 3)")
    run.expect_same_metrics()


def a_node_that_is_not_heard_is_named_and_taken_again(hosts):
    """What it says is lost; what is said to it arrives. Its workers reach each other."""
    lose_and_take_again(Run("unheard", hosts), lambda: hosts.blackhole("node2", to="node3"))


def a_node_that_hears_nothing_is_named_and_taken_again(hosts):
    lose_and_take_again(Run("deaf", hosts), lambda: hosts.blackhole("node3", to="node2"))


def a_node_that_is_cut_off_is_named_and_taken_again(hosts):
    """From the launcher, which trains as well, and so from the other worker."""
    lose_and_take_again(Run("cut", hosts, launcher="node1"), lambda: cut(hosts, "node1", "node2"))


def a_node_that_stays_away_ends_the_launch_and_resume_goes_on(hosts):
    run = Run("gone", hosts).start()
    run.wait("a checkpoint", lambda: run.case.checkpoints("run"))
    cut(hosts, "node2", "node3")
    run.expect_code(5)
    expect("not all nodes were ready within 2m: node2: " in run.case.output(), run.case.output())
    expect_nothing_left(hosts)
    hosts.heal()
    run.resume()
    run.wait_for_steps(5)
    run.end()
    run.expect_same_metrics()


# ---- short ones ------------------------------------------------------------------------------


def retransmitted(*hosts):
    """Segments that they have sent again."""
    count = 0
    for host in hosts:
        titles, values = [line.split() for line in host.run("grep", "^Tcp:", "/proc/net/snmp").stdout.splitlines()]
        count += int(values[titles.index("RetransSegs")])
    return count


def agents_port(run):
    return ":%d" % run.case.launcher_ports("run", run.process.pid)[0]


def break_connection(hosts, run):
    """Of node2's agent with the launcher."""
    port = agents_port(run)
    command = ["ss", "--tcp", "--kill", "state", "established", "dport", "=", port]
    run.wait("a connection to break", lambda: port in hosts["node2"].run(*command).stdout)


def wait_until_connected(hosts, run):
    """Until each agent has a connection with the launcher: nothing is sent again to where there is none, so that the next
    hole would not be a short one."""
    port = agents_port(run)
    for name in ("node1", "node2"):
        command = ["ss", "-tnH", "state", "established", "dport", "=", port]
        run.wait("the agent of " + name, lambda: port in hosts[name].run(*command).stdout)


def hundreds_of_short_breaks_cost_nothing(hosts):
    """Holes of either direction or both, between agents and launcher or between workers, and broken connections. A
    hole lasts until a packet that it has swallowed was sent again."""
    run = Run("flaps", hosts, detect=12, launch='coordinator_timeout = "60s"\n').start()
    run.wait_for_steps(3)
    chooser = random.Random(1)
    roads = [("node2", "node3"), ("node3", "node2"), ("node1", "node2"), ("node1", "node3")]
    for _ in range(200 if IS_LONG else 30):
        way = chooser.choice(["one way", "both ways", "broken"])
        wait_until_connected(hosts, run)
        if way == "broken":
            break_connection(hosts, run)
        else:
            a, b = chooser.choice(roads)
            before = retransmitted(hosts[a], hosts[b])  # either may be silent
            hosts.blackhole(a, to=b)
            if way == "both ways":
                hosts.blackhole(b, to=a)
            run.wait("a packet that is lost", lambda: retransmitted(hosts[a], hosts[b]) > before)
            hosts.heal()
        run.wait_for_steps(1)
    # Away for seconds, as long as detect_timeout is not over: that is what it costs.
    hosts.blackhole("node1", to="node2")
    time.sleep(2.5)
    hosts.heal()
    run.wait_for_steps(3)
    run.end()
    run.expect_undisturbed()
    run.expect_same_metrics()


# ---- the launcher ----------------------------------------------------------------------------


def a_launcher_that_is_cut_off_from_all_nodes_names_them_and_resume_goes_on(hosts):
    run = Run("alone", hosts).start()
    run.wait("a checkpoint", lambda: run.case.checkpoints("run"))
    for name in ("node1", "node2"):
        cut(hosts, name, "node3")
    run.wait_for_words("no word from its agent for ")
    run.wait_for_no_worker("node1", "node2")  # which nobody told to end
    expect(not any("trainctl-worker" in line for name in ("node1", "node2") for line in left_on(hosts[name])), "workers")
    run.process.send_signal(signal.SIGTERM)  # it waits for its nodes
    run.expect_code(75)
    case = run.case
    case.wait("the end of the agents", lambda: not any(left_on(host) for host in hosts))
    expect_nothing_left(hosts)
    expect("lost with its node node" in case.output(), case.output())
    hosts.heal()
    run.resume()
    run.wait_for_steps(5)
    run.end()
    run.expect_same_metrics()


# ---- bad roads -------------------------------------------------------------------------------

# Hands the launcher's invitation to the test, which has it lead to a proxy.
SSH = """#!/bin/sh
case " $* " in *" -G "*) exec "%(ssh)s" "$@" ;; esac  # what does ssh's configuration say?
folder=$(mktemp -d "%(folder)s/XXXXXX")
cat > "$folder/invitation"
mv "$folder/invitation" "$folder/asked"
until [ -e "$folder/answer" ]; do sleep 0.02; done
exec "%(ssh)s" "$@" < "$folder/answer"
"""


class Proxies:
    """Between a run's agents and their launcher, a proxy for each."""

    def __init__(self, run):
        self.run = run
        self.host = run.case.launcher
        self.folder = run.case.dir + "/proxies"
        os.makedirs(self.folder + "/bin")
        path = self.folder + "/bin/ssh"
        ssh = subprocess.run(["sh", "-c", "command -v ssh"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        with open(path, "w") as file:
            file.write(SSH % {"folder": self.folder, "ssh": ssh})
        os.chmod(path, 0o755)
        self.env = dict(run.hosts.env, PATH=self.folder + "/bin:" + run.hosts.env["PATH"])
        self.proxies = {}  # by node
        self.ports = {}

    def serve(self, count):
        """Until so many agents were invited."""
        self.run.wait("invitations", lambda: len(self.asked()) == count)
        for path in self.asked():
            with open(path) as file:
                invitation = json.load(file)
            address, port = invitation["endpoints"][0].rsplit(":", 1)
            command = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "tcp_proxy.py")]
            proxy = self.host.popen(command + [address, port, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                    text=True)
            own = proxy.stdout.readline().strip()
            self.proxies[invitation["node"]], self.ports[invitation["node"]] = proxy, own
            invitation["endpoints"] = ["%s:%s" % (address, own)]
            with open(path + ".new", "w") as file:
                file.write(json.dumps(invitation) + "\n")
            os.rename(path + ".new", os.path.dirname(path) + "/answer")

    def asked(self):
        paths = [os.path.join(self.folder, name, "asked") for name in os.listdir(self.folder)]
        return [path for path in paths if os.path.exists(path)]

    def tell(self, command, *nodes):
        for node in nodes or self.proxies:
            proxy = self.proxies[node]
            proxy.stdin.write(command + "\n")
            proxy.stdin.flush()
            expect(proxy.stdout.readline() == "ok\n", command)

    def own_ports(self, node):
        """Of the connections that the agent has made; a new one has a new port."""
        command = ["ss", "-tnHO", "state", "established", "dport", "=", ":" + self.ports[node]]
        return set(line.split()[2] for line in self.run.hosts[node].run(*command).stdout.splitlines())

    def wait_for_another_connection(self, node):
        before = self.own_ports(node)
        self.run.wait("another connection of " + node, lambda: self.own_ports(node) - before)

    def close(self):
        for proxy in self.proxies.values():
            proxy.stdin.close()
            proxy.stdout.close()
            proxy.wait(PATIENCE)


def delays_pauses_and_resets_cost_nothing(hosts):
    """All that agents and launcher say goes through proxies. The timeouts are those of a recipe that names none."""
    run = Run("roads", hosts, launch="", detect=10)
    proxies = Proxies(run)
    run.start(proxies.env)
    proxies.serve(2)
    run.wait_for_steps(3)
    for delay_ms in (25, 50, 100) if IS_LONG else (100,):
        proxies.tell("delay %d %d" % (delay_ms, delay_ms))
        proxies.tell("lose 0.1 200")
        proxies.tell("reset")
        run.wait_until_heard()
        for direction in ("up", "down", "up down"):
            proxies.tell("stall " + direction)
            run.wait_for_steps(10)
            proxies.tell("resume")
            proxies.tell("reset", "node2")
            run.wait_until_heard()
    proxies.tell("heal")
    proxies.tell("stall", "node2")  # until it tries another one
    proxies.wait_for_another_connection("node2")
    proxies.tell("resume")
    run.wait_until_heard()
    proxies.tell("swallow", "node1")  # half-open: neither end hears that the connection is dead
    proxies.wait_for_another_connection("node1")
    proxies.tell("heal")
    run.wait_until_heard()
    proxies.tell("swallow", "node1")  # the next one after one that broke
    proxies.tell("reset", "node1")
    run.wait("another connection", lambda: proxies.own_ports("node1"))
    run.wait_for_steps(10)
    proxies.tell("heal")
    run.wait_until_heard()
    run.end()
    proxies.close()
    run.expect_undisturbed()
    run.expect_same_metrics()


# ---- the past --------------------------------------------------------------------------------

# What the run is; logs/ and timings.jsonl are of its processes.
STATE = ("checkpoints", "metrics.jsonl", "journal.jsonl", "report.json")


def snapshot(run):
    """{path: bytes}; what is half written is no part of it."""
    files = {}
    for name in STATE:
        top = os.path.join(run.case.dir, "run", name)
        paths = [os.path.join(folder, file) for folder, _, names in os.walk(top) for file in names if "/.tmp-" not in folder]
        for path in paths or [top]:
            try:
                with open(path, "rb") as file:
                    files[os.path.relpath(path, run.case.dir)] = file.read()
            except (FileNotFoundError, IsADirectoryError):
                pass  # removed meanwhile, or there is nothing
    return files


def differences(before, after):
    return sorted("%s: %s" % (path, "new" if path not in before else "removed" if path not in after else "changed")
                  for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def is_saving(run):
    folder = run.case.dir + "/run/checkpoints"
    return os.path.isdir(folder) and any(name.startswith(".tmp-") for name in os.listdir(folder))


def stop_workers(run, node, in_save):
    """In the middle of a save, or between two: none of them goes on."""
    def is_caught():
        deadline = time.monotonic() + PATIENCE
        while is_saving(run) != in_save and run.process.poll() is None and time.monotonic() < deadline:
            pass
        workers = run.hosts[node].pids("trainctl-worker")
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        if workers and is_saving(run) == in_save:
            return True
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
        return False

    run.wait("the moment to stop workers", is_caught)


def part(run, node):
    """Its launcher is killed, and the node does not hear of it. The run goes on on node3, with another learning rate,
    so that what the past adds is told from what is true. Returns the step after which it went on."""
    cut(run.hosts, run.case.launcher.name, node)
    run.process.kill()
    run.process.wait(PATIENCE)
    past = run.hosts[node].pids("trainctl-worker")
    expect(past, "no worker of the past")
    run.case.launcher = run.hosts["node3"]
    run.resume("--take-over", '--set=launch.ssh.hosts=["node3"]', "--set=optimizer.lr=0.01")
    generations = [event["generation"] for event in run.events("generation")]
    run.wait("a generation after %s" % generations, lambda: len(run.events("generation")) > len(generations))
    run.wait("checkpoints of it", lambda: 4 <= len(
        [event for event in run.events("checkpoint") if event["generation"] == run.events("generation")[-1]["generation"]]))
    return int(run.case.output().rsplit("resuming after step ", 1)[1].split()[0])


def one_node(name, hosts):
    """A run that node1 launches on node2, whose workers need nobody else to go on."""
    launch = 'coordinator_timeout = "120s"\nstop_timeout = "10s"\n'
    run = Run(name, hosts, launcher="node1", nodes=("node2",), every=5, launch=launch).start()
    run.wait("checkpoints", lambda: len(run.case.checkpoints("run")) >= 3)
    return run


def failures(run):
    """Lines with which workers say that they have failed."""
    folder = run.case.dir + "/run/logs/"
    return [line for name in sorted(os.listdir(folder)) for line in open(folder + name, errors="replace")
            if line.startswith("trainctl-worker: ")]


def wake_the_past(run, in_save):
    """Workers stop, the run goes on elsewhere and is stopped, they go on: what there is does not change."""
    hosts = run.hosts
    stop_workers(run, "node2", in_save)
    part(run, "node2")
    run.process.send_signal(signal.SIGTERM)
    run.expect_code(75)
    before, said = snapshot(run), failures(run)
    woken = hosts["node2"].pids("trainctl-worker")
    expect(len(woken) == 2, woken)
    for pid in woken:
        os.kill(pid, signal.SIGCONT)
    # They fail when they are refused. Where nobody refuses them, they train on until their retention removes what is
    # true.
    run.case.wait("the end of workers of the past", lambda: not hosts["node2"].pids("trainctl-worker")
                  or failures(run) != said or any(line.endswith(": removed") for line in differences(before, snapshot(run))))
    hosts.heal()
    run.case.wait("the end of the past", lambda: not any(left_on(host) for host in hosts))
    expect_nothing_left(hosts)
    changed = differences(before, snapshot(run))
    expect(not changed, "changed by the past: %s\n%s" % (changed, "".join(failures(run)[len(said):])))


def workers_of_the_past_that_wake_up_in_their_save_change_nothing(hosts):
    wake_the_past(one_node("in-save", hosts), in_save=True)


def workers_of_the_past_that_wake_up_between_saves_change_nothing(hosts):
    wake_the_past(one_node("between", hosts), in_save=False)


def a_generation_of_the_past_that_trains_on_changes_nothing(hosts):
    """For as long as its node hears nothing. What is true goes on beside it."""
    run = one_node("beside", hosts)
    after = part(run, "node2")
    hosts.heal()
    run.wait("the end of the past", lambda: not left_on(hosts["node2"]))
    run.end()
    # The same on one machine, alone.
    last = max(int(name.split("-")[1]) for name in run.case.checkpoints("run"))
    case = cluster_case.Case("alone-beside", hosts, TRAINCTL, "node3")
    recipe = case.recipe("one.toml", 1, 2, 1, 2, steps=FOR_EVER, every=5)
    expect_code(case.run("launch", recipe, "--run-dir", "run", "--stop-after", str(after)), 75)
    expect_code(case.run("resume", "run", "--stop-after", str(last), "--set=optimizer.lr=0.01"), 75)
    seen, alone = run.case.metrics("run"), case.metrics("run")
    expect(seen == alone, "after step %d: %d and %d steps, the first that differs: %s\n%s" %
           (after, len(seen), len(alone), next((pair for pair in zip(seen, alone) if pair[0] != pair[1]), None),
            run.case.output()))
    expect(sorted(run.case.checkpoints("run")) == sorted(case.checkpoints("run")), run.case.checkpoints("run"))
    for name in case.checkpoints("run"):
        for file in os.listdir("%s/run/checkpoints/%s" % (case.dir, name)):
            if file.endswith(".safetensors"):
                one, other = [open("%s/run/checkpoints/%s/%s" % (folder, name, file), "rb").read()
                              for folder in (case.dir, run.case.dir)]
                expect(one == other, "%s/%s is of the past" % (name, file))


CASES = [a_node_that_is_not_heard_is_named_and_taken_again, a_node_that_is_cut_off_is_named_and_taken_again,
         hundreds_of_short_breaks_cost_nothing, delays_pauses_and_resets_cost_nothing,
         a_launcher_that_is_cut_off_from_all_nodes_names_them_and_resume_goes_on,
         workers_of_the_past_that_wake_up_in_their_save_change_nothing,
         workers_of_the_past_that_wake_up_between_saves_change_nothing,
         a_generation_of_the_past_that_trains_on_changes_nothing]
LONG_CASES = [a_node_that_hears_nothing_is_named_and_taken_again,
              a_node_that_stays_away_ends_the_launch_and_resume_goes_on]


def main():
    with Hosts(3, shared=[os.path.dirname(TRAINCTL), LIBTORCH]) as hosts:
        return cluster_case.run_cases(CASES + (LONG_CASES if IS_LONG or FILTER else []), FILTER, hosts)


if __name__ == "__main__":
    sys.exit(cluster_case.exit_code_of(main))
