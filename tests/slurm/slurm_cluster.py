"""A Slurm of one's own for a test: a real slurmctld and real slurmds (as many nodes as wanted, all on this machine)
with a munged between them, in a scratch folder and on ports that were free. Ends only what it started.

    with SlurmCluster({"all": 4, "other": 2}) as slurm:  # nodes of each partition
        slurm.run("srun", "--nodes=4", "hostname")
"""
import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "scontrol", "sinfo", "squeue")
START_SECONDS = 60
END_SECONDS = 30


def missing_programs():
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class CannotStart(RuntimeError):
    """Slurm is there and does not come up; says why."""


class SlurmCluster:
    def __init__(self, partitions):
        self.dir = tempfile.mkdtemp(prefix="trainctl-slurm-")
        names = iter("n%d" % (i + 1) for i in range(sum(partitions.values())))
        self.partitions = {name: [next(names) for _ in range(count)] for name, count in partitions.items()}
        self.nodes = sum(self.partitions.values(), [])
        self.processes = []
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
        self.env["PATH"] = self.env.get("PATH", "") + ":/usr/sbin:/sbin"
        self.env["SLURM_CONF"] = self.dir + "/slurm.conf"

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def _start(self):
        os.chmod(self.dir, 0o755)
        os.mkdir(self.dir + "/state")
        with open(self.dir + "/munge.key", "wb") as key:
            key.write(os.urandom(128))
        os.chmod(self.dir + "/munge.key", 0o400)
        with open(self.dir + "/slurm.conf", "w") as file:
            file.write(self._configuration())
        # GPUs are made up: Slurm gives them to jobs, and nothing can compute on them. It wants a file for each.
        for gpu in range(2):
            open("%s/gpu%d" % (self.dir, gpu), "w").close()
        with open(self.dir + "/gres.conf", "w") as file:
            file.write("Name=gpu File=%s/gpu[0-1]\n" % self.dir)
        # Below two switches in turn, so that neighbours by name are none in the network.
        with open(self.dir + "/topology.conf", "w") as file:
            file.write("SwitchName=odd Nodes=%s\nSwitchName=even Nodes=%s\nSwitchName=top Switches=odd,even\n"
                       % (",".join(self.nodes[::2]), ",".join(self.nodes[1::2])))
        names = ["key-file=munge.key", "socket=munge.socket", "pid-file=munge.pid", "log-file=munge.log", "seed-file=munge.seed"]
        # --force: the folder above ours (/tmp) may be written by everybody.
        self._spawn("munge.out", "munged", "--foreground", "--force",
                    *("--%s=%s/%s" % (name.split("=")[0], self.dir, name.split("=")[1]) for name in names))
        self._spawn("slurmctld.out", "slurmctld", "-D")
        for node in self.nodes:
            self._spawn("slurmd-%s.out" % node, "slurmd", "-D", "-N", node)
        idle = ""
        deadline = time.monotonic() + START_SECONDS
        while idle != str(len(self.nodes)):
            for process in self.processes:
                if process.poll() is not None:
                    raise CannotStart("%s ended with %d\n%s" % (process.args[0], process.returncode, self.logs()))
            if time.monotonic() > deadline:
                raise CannotStart("no %d idle nodes after %d s\n%s" % (len(self.nodes), START_SECONDS, self.logs()))
            time.sleep(0.1)
            idle = self.run("sinfo", "--noheader", "--states=idle", "--format=%D").stdout.strip()

    def _configuration(self):
        control, *ports = free_ports(1 + len(self.nodes))
        user = pwd.getpwuid(os.getuid()).pw_name
        lines = [
            "ClusterName=test", "SlurmctldHost=localhost", "SlurmctldPort=%d" % control, "SlurmUser=" + user,
            "SlurmdUser=" + user, "AuthType=auth/munge", "AuthInfo=socket=%s/munge.socket" % self.dir,
            "StateSaveLocation=%s/state" % self.dir, "SlurmdSpoolDir=%s/spool-%%n" % self.dir,
            "SlurmctldPidFile=%s/slurmctld.pid" % self.dir, "SlurmdPidFile=%s/slurmd-%%n.pid" % self.dir,
            "SlurmctldLogFile=%s/slurmctld.log" % self.dir, "SlurmdLogFile=%s/slurmd-%%n.log" % self.dir,
            "ProctrackType=proctrack/linuxproc", "SelectType=select/cons_tres", "SelectTypeParameters=CR_Core",
            "ReturnToService=1", "SlurmdParameters=config_overrides",
            "GresTypes=gpu", "SchedulerParameters=batch_sched_delay=0,sched_interval=1", "TopologyPlugin=topology/tree",
        ]
        for node, port in zip(self.nodes, ports):
            lines.append("NodeName=%s NodeHostname=localhost NodeAddr=127.0.0.1 Port=%d CPUs=2 Gres=gpu:2 State=UNKNOWN" % (node, port))
        # The first one is the default, and makes room for what is urgent.
        first = next(iter(self.partitions))
        lines += ["PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE"]
        for name, nodes in self.partitions.items():
            lines.append("PartitionName=%s Nodes=%s Default=%s MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=60"
                         % (name, ",".join(nodes), "YES" if name == first else "NO"))
        lines.append("PartitionName=urgent Nodes=%s MaxTime=INFINITE State=UP PriorityTier=9"
                     % ",".join(self.partitions[first]))
        return "\n".join(lines) + "\n"

    def _spawn(self, output, *command):
        with open(self.dir + "/" + output, "wb") as file:
            self.processes.append(subprocess.Popen(command, env=self.env, cwd=self.dir, stdin=subprocess.DEVNULL,
                                                   stdout=file, stderr=file))

    def run(self, *command, cwd=None, timeout=120):
        return subprocess.run(command, env=self.env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=timeout)

    def job(self, job):
        """What scontrol shows of a job: JobState, Reason, Restarts ..."""
        return dict(word.split("=", 1) for word in self.run("scontrol", "--oneliner", "show", "job", job).stdout.split()
                    if "=" in word)

    def is_completing(self, job):
        """Processes of an ended job are still there."""
        return "CG" in self.run("squeue", "--noheader", "--jobs=" + job, "--states=all", "--format=%t").stdout

    def has_traces(self, job):
        """Of a job that ended: a step's daemon, or its files on a node."""
        return any(glob.glob("%s/spool-%s/job%05d" % (self.dir, node, int(job))) for node in self.nodes) or any(
            "[%s." % job in command for command in self._steps())

    @staticmethod
    def _steps():
        """How the daemons of steps call themselves."""
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(path, "rb") as file:
                    line = file.read().decode(errors="replace")
            except OSError:
                continue  # gone
            if line.startswith("slurmstepd"):
                yield line

    def logs(self):
        texts = []
        for name in sorted(os.listdir(self.dir)):
            if name.endswith((".log", ".out")):
                with open(self.dir + "/" + name, errors="replace") as file:
                    texts.append("%s: %s" % (name, file.read()[-2000:]))
        return "\n".join(texts)

    def close(self):
        if self.processes and self.processes[-1].poll() is None:
            # Jobs first: their processes are children of the slurmds, and outlive them.
            self.run("scancel", "--user=%d" % os.getuid(), "--signal=KILL", "--full")
            deadline = time.monotonic() + END_SECONDS
            while self.run("squeue", "--noheader").stdout.strip() and time.monotonic() < deadline:
                time.sleep(0.1)
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in self._left():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.dir, ignore_errors=True)

    def _left(self):
        """Processes of this cluster: they have its SLURM_CONF."""
        mark = ("SLURM_CONF=" + self.dir).encode()
        found = []
        for path in glob.glob("/proc/[0-9]*"):
            try:
                with open(path + "/environ", "rb") as environ:
                    if mark in environ.read():
                        found.append(int(path.split("/")[2]))
            except OSError:
                pass  # gone, or of another user
        return found
