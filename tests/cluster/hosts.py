"""A small cluster on this machine: hosts with a network, processes, /tmp and a name of their own, and a real sshd on
each. What is in `hosts.dir` is shared by all of them, as on a cluster's file system. Needs root.

    with Hosts(4) as hosts:  # node1 .. node4
        hosts["node1"].run("hostname")
        hosts["node1"].run("ssh", "node2", "hostname")
        hosts.run("ssh", "-F", hosts.ssh_config, "node2", "hostname")  # from outside
        hosts.blackhole("node1", to="node2")  # one way, without a word
        hosts["node3"].kill()  # loses its power

Each host is a set of namespaces. The bridge between them has one as well, so all that this machine itself sees is the
link from it to the hosts. close() leaves nothing, and nothing is left when the process that made the hosts is killed.

Each start of a host has a boot id of its own. Clocks of real hosts do not count from the same moment, so
CLOCK_MONOTONIC differs between hosts where the kernel lets it. CLOCK_REALTIME is that of this machine. Memory, cores
and GPUs are not divided. A lock (flock) is seen by all hosts, as on a file system of a cluster that shares locks.
"""
import contextlib
import ctypes
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid

PROGRAMS = ("ip", "ssh", "sshd", "ssh-keygen")
START_SECONDS = 30
END_SECONDS = 30
OUTSIDE = "outside"  # names this machine in blackhole() and heal()

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SUBNETS = range(1, 250)
OUTSIDE_NUMBER = 254
DEAD_DNS_NUMBER = 253
NOWHERE = "02:4d:ff:ff:ff:ff"  # nobody has this MAC
CLOCK_SECONDS = 100000  # between the clocks of one host and the next

CLONE_NEWTIME, CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x80, 0x20000, 0x4000000, 0x8000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


class CannotStart(RuntimeError):
    """This machine cannot have such hosts; says why."""


def _call(name, *arguments):
    """A function of libc; bytes for strings."""
    if getattr(_libc, name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, "%s: %s" % (name, os.strerror(error)))


def _mount(source, target, kind=None, flags=0, options=None):
    _call("mount", source.encode(), target.encode(), kind and kind.encode(), ctypes.c_ulong(flags),
          options and options.encode())


def _die_with_parent():
    _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def _children_in(pidfd):
    """Children that this thread starts meanwhile are processes of that host, and still its own children."""
    own = os.pidfd_open(os.getpid())
    try:
        _call("setns", pidfd, CLONE_NEWPID)
        try:
            yield
        finally:
            _call("setns", own, CLONE_NEWPID)
    finally:
        os.close(own)


# ---- inside a host ---------------------------------------------------------------------------


def _run_host():
    """The first process of a host: makes its namespaces, reaps, and lasts until its standard input ends."""
    # No death signal from who made the hosts: that comes when a thread of it ends. Its end ends our input.
    settings = json.loads(sys.stdin.readline())
    try:
        _call("unshare", CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET)
        has_clock = _unshare_clock(settings["clock"])
        pid = os.fork()
        if pid != 0:
            os.waitpid(pid, 0)
            return
        _die_with_parent()
        # Before the new /proc: the number that this process has outside.
        pid = int(os.readlink("/proc/self"))
        _mount_folders(settings)
        socket.sethostname(settings["name"])
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
        answer = {"pid": pid, "has_clock": has_clock}
    except OSError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
    sys.stdin.read()


def _unshare_clock(seconds):
    try:
        _call("unshare", CLONE_NEWTIME)
        with open("/proc/self/timens_offsets", "w") as offsets:
            offsets.write("monotonic %d 0\nboottime %d 0\n" % (seconds, seconds))
        return True
    except OSError:
        return False


def _closed_ancestor(path):
    """The first folder on the way to path that only its owner may enter, such as /root."""
    parts = path.strip("/").split("/")
    for n in range(1, len(parts)):
        ancestor = "/" + "/".join(parts[:n])
        if not os.stat(ancestor).st_mode & 0o001:
            return ancestor
    return None


def _mount_folders(settings):
    os.chdir("/")
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    # Held open, so that they can be bound when what is above them is hidden.
    shared = [(path, os.open(path, os.O_PATH)) for path in settings["shared"]]
    files = [(path, os.open(file, os.O_PATH)) for path, file in settings["files"].items()]
    boot_id = os.open(settings["boot_id"], os.O_PATH)
    cgroup = os.open("/sys/fs/cgroup", os.O_PATH) if os.path.ismount("/sys/fs/cgroup") else None
    closed = sorted({_closed_ancestor(path) for path, _ in shared} - {None}) if settings["for_all_users"] else []
    for path, mode in [("/tmp", "1777"), ("/dev/shm", "1777"), ("/run", "755")] + [(path, "755") for path in closed]:
        _mount("tmpfs", path, "tmpfs", 0, "mode=" + mode)
    os.mkdir("/run/sshd", 0o755)
    _mount("sysfs", "/sys", "sysfs")  # /sys/class/net shows the network of who mounts it
    if cgroup is not None:
        _mount("/proc/self/fd/%d" % cgroup, "/sys/fs/cgroup", None, MS_BIND | MS_REC)
    for path, file in shared:
        os.makedirs(path, exist_ok=True)
        _mount("/proc/self/fd/%d" % file, path, None, MS_BIND | MS_REC)
    for path, file in files:
        path = os.path.realpath(path)
        if path.startswith("/run/"):  # a link there; that is empty now
            os.makedirs(os.path.dirname(path), exist_ok=True)
            open(path, "w").close()
        if os.path.exists(path):
            _mount("/proc/self/fd/%d" % file, path, None, MS_BIND)
    _mount("proc", "/proc", "proc")
    _mount("/proc/self/fd/%d" % boot_id, "/proc/sys/kernel/random/boot_id", None, MS_BIND)


# ---- outside ---------------------------------------------------------------------------------


class Host:
    """One of Hosts. name, address, interface; dead_address: of the second interface, if there is one."""

    interface = "eth0"

    def __init__(self, hosts, number):
        self.hosts = hosts
        self.number = number
        self.name = "node%d" % number
        self.address = hosts.address_of(number)
        self.dead_address = hosts.dead_address_of(number) if hosts.dead_interface else None
        self.mac = "02:4d:00:00:00:%02x" % number
        self.port = "p%d" % number  # its end at the bridge
        self._init = None
        self._pidfd = None
        self._children = []

    def is_alive(self):
        return self._pidfd is not None

    def popen(self, command, cwd=None, env=None, **arguments):
        """A process of the host, as subprocess.Popen has it: signals reach it, wait() gives its exit code. It leads a
        session. Starts in the shared folder."""
        if not self.is_alive():
            raise RuntimeError(self.name + " is dead")
        pidfd, flags, cwd = self._pidfd, self._flags, cwd or self.hosts.dir

        def enter():
            _call("setns", pidfd, flags)
            os.chdir(cwd)

        arguments.setdefault("stdin", subprocess.DEVNULL)
        with _children_in(pidfd):
            process = subprocess.Popen(command, env=env or self.hosts.env, preexec_fn=enter, start_new_session=True,
                                       **arguments)
        self._children = [child for child in self._children if child.poll() is None] + [process]
        return process

    def run(self, *command, cwd=None, env=None, input=None, timeout=120):  # noqa: A002  (as subprocess.run has it)
        """Standard output and standard error together are stdout of the result."""
        process = self.popen(command, cwd, env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             errors="replace", stdin=subprocess.DEVNULL if input is None else subprocess.PIPE)
        with process:
            try:
                output, _ = process.communicate(input, timeout)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(command, process.returncode, output)

    def pids(self, part=""):
        """Processes of the host whose command lines contain `part`: {the pid that they have outside: command line}."""
        found = {}
        if not self.is_alive():
            return found
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink("/proc/%s/ns/pid" % pid) != self._namespace or int(pid) == self.pid:
                    continue
                with open("/proc/%s/cmdline" % pid, "rb") as file:
                    line = file.read().decode(errors="replace").rstrip("\0").replace("\0", " ")
                if line and part in line:
                    found[int(pid)] = line
            except OSError:
                pass  # gone
        return found

    def processes(self):
        """Command lines of what runs in the host, its first process left out."""
        return sorted(self.pids().values())

    def kill(self, silent=True):
        """The host loses its power: everything in it ends, and no peer hears of it. With silent=False its kernel still
        closes the connections, as when all its processes are killed."""
        if self._init is None:
            return
        if silent:
            self._unplug()
        if self._pidfd is not None:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            os.close(self._pidfd)
            self._pidfd = None
        self._init.stdin.close()
        deadline = time.monotonic() + END_SECONDS
        while self._init.poll() is None:  # which waits until all our children there are reaped
            if time.monotonic() > deadline:
                self._init.kill()
                raise RuntimeError("%s does not end" % self.name)
            for child in self._children:
                child.poll()
            time.sleep(0.002)
        for child in self._children:
            child.wait(END_SECONDS)
        self._init.stdout.close()
        self._init, self._children = None, []
        if not silent:
            self._unplug()

    def start(self):
        """Switches it on again after kill(): same name and address, nothing running."""
        self.hosts.start([self])

    def link_down(self):
        """The cable is pulled: no carrier; addresses stay."""
        self.hosts.ip_at_bridge(["link set %s down" % self.port])

    def link_up(self):
        self.hosts.ip_at_bridge(["link set %s up" % self.port])

    def log(self):
        """What its sshd has written."""
        with open(self._path("sshd.log"), errors="replace") as file:
            return file.read()

    # Steps of Hosts.start().

    def _path(self, name):
        return "%s/hosts/%s.%s" % (self.hosts.dir, self.name, name)

    def _begin(self):
        self._init = subprocess.Popen([sys.executable, "-I", "-S", os.path.abspath(__file__)], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True, start_new_session=True, cwd="/")
        with open(self._path("boot_id"), "w") as file:
            file.write("%s\n" % uuid.uuid4())
        settings = {"name": self.name, "boot_id": self._path("boot_id"), "clock": self.number * CLOCK_SECONDS,
                    "shared": self.hosts.shared, "for_all_users": self.hosts.for_all_users, "files": self._files()}
        self._init.stdin.write(json.dumps(settings) + "\n")
        self._init.stdin.flush()

    def _await_namespaces(self):
        line = self._init.stdout.readline()
        answer = json.loads(line) if line else {"error": "its first process ended"}
        if "error" in answer:
            raise CannotStart("no namespaces: " + answer["error"])
        self.pid = answer["pid"]
        self._pidfd = os.pidfd_open(self.pid)
        self._namespace = os.readlink("/proc/%d/ns/pid" % self.pid)
        self._flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET
        if answer["has_clock"]:
            self._flags |= CLONE_NEWTIME

    def _start_network(self):
        bits = self.hosts.prefix_bits
        lines = ["link set lo up", "addr add %s/%d dev eth0 %s" % (self.address, bits, self.hosts.address_flags),
                 "link set eth0 up"]
        if self.dead_address:
            lines.append("addr add %s/%d dev eth1 %s" % (self.dead_address, bits, self.hosts.address_flags))
        if self.hosts.dead_interface == "dead":
            lines.append("link set eth1 up")
        if self.hosts.names == "dead":
            dead = self.hosts.address_of(DEAD_DNS_NUMBER)
            lines.append("neigh replace %s lladdr %s dev eth0 nud permanent" % (dead, NOWHERE))
        self.ip(lines)

    def ip(self, lines):
        """Runs these commands of ip(8) in the host."""
        result = self.run("ip", "-batch", "-", input="\n".join(lines) + "\n")
        if result.returncode != 0:
            raise RuntimeError("%s: ip: %s" % (self.name, result.stdout.strip()))

    def _start_sshd(self):
        pid_file = self._path("sshd.pid")
        with contextlib.suppress(FileNotFoundError):
            os.remove(pid_file)
        with open(self._path("sshd.log"), "ab") as log:
            self._sshd = self.popen([shutil.which("sshd", path=self.hosts.env["PATH"]), "-D", "-e", "-f",
                                     self._path("sshd_config")], cwd="/", stdout=log, stderr=log)

    def _await_sshd(self):
        """Writes its number when it listens."""
        deadline = time.monotonic() + START_SECONDS
        while not os.path.exists(self._path("sshd.pid")):
            if self._sshd.poll() is not None or time.monotonic() > deadline:
                raise CannotStart("no sshd on %s: %s" % (self.name, self.log().strip()))
            time.sleep(0.005)

    def _write_files(self):
        """Once: what is in its /etc, and the keys of its sshd."""
        hosts = self.hosts
        lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
        own = {"address": self.address, "dead": self.dead_address}.get(hosts.own_name, hosts.own_name)
        if own:
            lines.append("%s %s" % (own, self.name))
        if hosts.names == "hosts":
            lines += ["%s %s" % (other.address, other.name) for other in hosts if other is not self]
        name_server = hosts.address_of(DEAD_DNS_NUMBER) if hosts.names == "dead" else "127.0.0.1"
        sshd = ["HostKey " + self._path("key"), "AuthorizedKeysFile %s/hosts/key.pub" % hosts.dir,
                "PidFile " + self._path("sshd.pid"), "PermitRootLogin prohibit-password", "PasswordAuthentication no",
                "KbdInteractiveAuthentication no", "StrictModes no", "UsePAM no", "UseDNS no", "PrintMotd no",
                "PrintLastLog no", "MaxStartups 1000", "MaxSessions 1000", "Subsystem sftp internal-sftp"]
        for name, text in (("hosts", lines), ("hostname", [self.name]), ("resolv.conf", ["nameserver " + name_server]),
                           ("sshd_config", sshd)):
            with open(self._path(name), "w") as file:
                file.write("\n".join(text) + "\n")

    def _files(self):
        shared = {name: "%s/hosts/%s" % (self.hosts.dir, name)
                  for name in ("nsswitch.conf", "passwd", "shadow", "ssh_config")}
        return {"/etc/hosts": self._path("hosts"), "/etc/hostname": self._path("hostname"),
                "/etc/resolv.conf": self._path("resolv.conf"), "/etc/nsswitch.conf": shared["nsswitch.conf"],
                "/etc/passwd": shared["passwd"], "/etc/shadow": shared["shadow"],
                "/etc/ssh/ssh_config": shared["ssh_config"]}

    def _unplug(self):
        self.hosts.ip_at_bridge(["link del " + self.port] + (["link del q%d" % self.number] if self.dead_address else []),
                                force=True)


class Hosts:
    """Hosts node1 .. node<count>, started as a context manager.

    ip: 4, or 6: hosts with IPv6 addresses alone.
    names: what names resolve to. "hosts": each host knows all. "none": no name but localhost. "dead": the same, and
        the name server never answers, so each look-up takes its time.
    own_name: what the own name of a host resolves to there: "address" (where names are known), an address such as
        "127.0.1.1" (Debian's way), "dead" (that of the second interface), or None.
    dead_interface: a second interface eth1 with an address, listed first. "down": it is down. "dead": it looks well,
        and nothing that is sent there arrives.
    shared: folders that hosts see as well, where they lie in /tmp, /run or /dev/shm. The tree of this file is one.
    for_all_users: if true, all users of a host can reach the shared folders. A parent folder that only its owner may
        enter, such as /root, is hidden.

    Attributes: dir (shared by all), home (of root on all hosts, empty; run() and popen() have it as HOME, too),
    ssh_config, address (of this machine, as hosts see it), env.
    """

    def __init__(self, count, ip=4, names="hosts", own_name="address", dead_interface=None, shared=(),
                 for_all_users=False):
        assert ip in (4, 6) and names in ("hosts", "none", "dead") and dead_interface in (None, "down", "dead")
        assert 0 < count < DEAD_DNS_NUMBER and (own_name != "dead" or dead_interface)
        self.count = count
        self.version = ip
        self.names = names
        self.own_name = None if own_name == "address" and names != "hosts" else own_name
        self.dead_interface = dead_interface
        self.prefix_bits, self.address_flags = (24, "") if ip == 4 else (64, "nodad")
        self.env = dict(os.environ, PATH=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        self._wanted_shared = list(shared)
        self.for_all_users = for_all_users
        self._hosts = {}
        self._holes = set()  # (from, to)
        self._keeper = None
        self._old_term = None
        self.dir = None
        self.link = None

    def __enter__(self):
        self._check()
        # Also for SIGTERM, what has begun is ended.
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            self._old_term = signal.signal(signal.SIGTERM, _exit_for_signal)
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def __getitem__(self, name):
        return self._hosts[name]

    def __iter__(self):
        return iter(self._hosts.values())

    def __len__(self):
        return len(self._hosts)

    def address_of(self, number):
        return "10.77.%d.%d" % (self.subnet, number) if self.version == 4 else "fd77:0:0:%x::%x" % (self.subnet, number)

    def dead_address_of(self, number):
        return "10.78.%d.%d" % (self.subnet, number) if self.version == 4 else "fd78:0:0:%x::%x" % (self.subnet, number)

    def run(self, *command, cwd=None, env=None, timeout=120):
        """Here, outside of all hosts."""
        return subprocess.run(command, env=env or self.env, cwd=cwd or self.dir, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=timeout)

    def blackhole(self, name, to):
        """What `name` sends to `to` is lost from now on without an error, on open connections, too. The other way
        works. Either may be OUTSIDE."""
        self._holes.add((name, to))
        self._set_neighbours(name, to)

    def heal(self, name=None, to=None):
        """Ends a blackhole, or those of one host, or all."""
        for hole in [hole for hole in self._holes if name in (None, hole[0]) and to in (None, hole[1])]:
            self._holes.remove(hole)
            self._set_neighbours(*hole)

    def close(self):
        with contextlib.ExitStack() as stack:
            if self._old_term is not None:
                stack.callback(signal.signal, signal.SIGTERM, self._old_term)
                self._old_term = None
            if self._keeper is not None:
                stack.callback(self._end_keeper)
            if self.link is not None:
                # The namespace of the bridge goes a moment later; this machine's end of it shall go now.
                stack.callback(self.run, "ip", "link", "del", self.link, cwd="/")
            for host in self:
                stack.callback(host.kill, silent=False)

    def start(self, hosts):
        """Starts these; all steps of one after the other would take longer."""
        for host in hosts:
            host._begin()
        for host in hosts:
            host._await_namespaces()
        lines = []
        for host in hosts:
            if host.dead_address:
                lines += ["link add q%d type veth peer name eth1 netns %d" % (host.number, host.pid),
                          "link set q%d up" % host.number]  # on no bridge
            lines += ["link add %s type veth peer name eth0 address %s netns %d" % (host.port, host.mac, host.pid),
                      "link set %s master br0 up" % host.port]
        self.ip_at_bridge(lines)
        for host in hosts:
            host._start_network()
            host._start_sshd()
        for host in hosts:
            host._await_sshd()
        for hole in self._holes:
            self._set_neighbours(*hole)

    def ip_at_bridge(self, lines, force=False):
        """Runs these commands of ip(8) where the bridge is; with `force`, all of them, and errors are no matter."""
        keeper = self._keeper_pidfd
        result = subprocess.run(["ip"] + ["-force"] * force + ["-batch", "-"], input="\n".join(lines) + "\n", env=self.env,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                preexec_fn=lambda: _call("setns", keeper, CLONE_NEWNET))
        if result.returncode != 0 and not force:
            raise CannotStart("ip: " + result.stdout.strip())

    def _check(self):
        missing = [name for name in PROGRAMS if shutil.which(name, path=self.env["PATH"]) is None]
        if missing:
            raise CannotStart("not installed: " + ", ".join(missing))
        if os.geteuid() != 0:
            raise CannotStart("hosts need namespaces, and those need root")

    def _start(self):
        self.dir = tempfile.mkdtemp(prefix="trainctl-hosts-")
        os.chmod(self.dir, 0o755)
        os.mkdir(self.dir + "/hosts")
        self.home = self.env["HOME"] = self.dir + "/home"
        os.mkdir(self.home)
        self.shared = [ROOT, self.dir] + self._wanted_shared
        self._start_keeper()
        self._start_bridge()
        self.address = self.address_of(OUTSIDE_NUMBER)
        for number in range(1, self.count + 1):
            host = Host(self, number)
            self._hosts[host.name] = host
        self._write_files()
        self.start(list(self))

    def _start_keeper(self):
        """Holds the namespace of the bridge, and removes the folder when this process has gone, even by SIGKILL."""
        def enter():
            _call("unshare", CLONE_NEWNET)

        try:
            self._keeper = subprocess.Popen(["sh", "-c", 'echo; cat > /dev/null; exec rm -rf "$1"', "keeper", self.dir],
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", preexec_fn=enter,
                                            start_new_session=True)
        except subprocess.SubprocessError:
            shutil.rmtree(self.dir)
            raise CannotStart("no namespaces: this process may not make one") from None
        self._keeper.stdout.readline()
        self._keeper_pidfd = os.pidfd_open(self._keeper.pid)

    def _start_bridge(self):
        self.ip_at_bridge(["link add br0 type bridge forward_delay 0 mcast_snooping 0", "link set br0 up"])
        taken = "".join(self.run("ip", *command).stdout for command in (["addr"], ["-4", "route"], ["-6", "route"]))
        for self.subnet in SUBNETS:
            link = "tchosts%d" % self.subnet
            if any("10.%d.%d." % (net, self.subnet) in taken for net in (77, 78)) or "fd77:0:0:%x:" % self.subnet in taken:
                continue
            # The name is the lock: another one that takes the same subnet at this moment gets an error.
            result = self.run("ip", "link", "add", link, "type", "veth", "peer", "name", "p0", "netns",
                              str(self._keeper.pid))
            if result.returncode == 0:
                self.link = link
                break
            if "File exists" not in result.stdout:
                raise CannotStart("ip: " + result.stdout.strip())
        else:
            raise CannotStart("all of 10.77.0.0/16 is in use")
        self.ip_at_bridge(["link set p0 master br0 up"])
        for command in (["addr", "add", "%s/%d" % (self.address_of(OUTSIDE_NUMBER), self.prefix_bits), "dev", self.link]
                        + self.address_flags.split(), ["link", "set", self.link, "up"]):
            result = self.run("ip", *command)
            if result.returncode != 0:
                raise CannotStart("ip: " + result.stdout.strip())
        with open("/sys/class/net/%s/address" % self.link) as file:
            self._mac = file.read().strip()

    def _write_files(self):
        """Keys and settings; those of hosts, too."""
        folder = self.dir + "/hosts/"
        self.ssh_config = folder + "ssh_config"
        keys = [subprocess.Popen(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder + name],
                                 stdin=subprocess.DEVNULL, env=self.env)
                for name in ["key"] + [host.name + ".key" for host in self]]
        if any([key.wait() for key in keys]):
            raise CannotStart("ssh-keygen failed")
        lines = ["Host *", "  User root", "  IdentityFile %skey" % folder, "  IdentitiesOnly yes", "  BatchMode yes",
                 "  StrictHostKeyChecking yes", "  UserKnownHostsFile %sknown_hosts" % folder,
                 "  GlobalKnownHostsFile /dev/null", "  LogLevel ERROR",
                 "  KexAlgorithms curve25519-sha256"]  # the default one costs much more
        known = []
        for host in self:
            host._write_files()
            lines += ["Host " + host.name, "  HostName " + host.address]
            with open(folder + host.name + ".key.pub") as key:
                known.append("%s,%s %s" % (host.name, host.address, key.read().strip()))
        name_services = ["passwd: files", "group: files", "shadow: files",
                         "hosts: files" + (" dns" if self.names == "dead" else "")]
        with open("/etc/passwd") as file:
            accounts = [line for line in file.read().splitlines() if not line.startswith("root:")]
        # sshd without PAM refuses accounts that are locked.
        for name, text in (("ssh_config", lines), ("known_hosts", known), ("nsswitch.conf", name_services),
                           ("passwd", ["root:x:0:0:root:%s:%s" % (self.home, pwd.getpwuid(0).pw_shell)] + accounts),
                           ("shadow", ["root:*:19000:0:99999:7:::"])):
            with open(folder + name, "w") as file:
                file.write("\n".join(text) + "\n")

    def _set_neighbours(self, name, to):
        """A host that knows a wrong MAC of another one sends into the void; the other one then has to know the right
        MAC without asking."""
        for here, there in ((name, to), (to, name)):
            if (here, there) in self._holes:
                command = "replace %s lladdr %s nud permanent" % (self._end(there)[0], NOWHERE)
            elif (there, here) in self._holes:
                command = "replace %s lladdr %s nud permanent" % self._end(there)[:2]
            else:
                command = "del " + self._end(there)[0]
            command = "neigh %s dev %s" % (command, self._end(here)[2])
            if here == OUTSIDE:
                result = self.run("ip", *command.split())
                if result.returncode != 0:
                    raise RuntimeError("ip: " + result.stdout)
            elif self[here].is_alive():
                self[here].ip([command])

    def _end(self, name):
        if name == OUTSIDE:
            return self.address, self._mac, self.link
        return self[name].address, self[name].mac, Host.interface

    def _end_keeper(self):
        self._keeper.stdin.close()
        self._keeper.stdout.close()
        os.close(self._keeper_pidfd)
        self._keeper.wait(END_SECONDS)
        self._keeper = None


def _exit_for_signal(number, _):
    raise SystemExit(128 + number)


if __name__ == "__main__":
    _run_host()
