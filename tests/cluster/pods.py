"""What a kubelet makes of a pod of a printed manifest, on a host of hosts.py: the command as process 1 of namespaces of
its own and as the user that the manifest names, its environment, the files of its Secret, its host name, and cluster
DNS by way of /etc/hosts."""
import os
import signal
import subprocess

import yaml


class Job:
    """The documents of a manifest. Pod `index` runs on hosts["node<index + 1>"]."""

    def __init__(self, hosts, trainctl, manifest):
        self.hosts = hosts
        self.trainctl = trainctl
        self.secret, self.service, self.policy, self.job = yaml.safe_load_all(manifest)
        self.name = self.job["metadata"]["name"]
        self.spec = self.job["spec"]
        self.pod_spec = self.spec["template"]["spec"]
        self.container, = self.pod_spec["containers"]
        self.pods = [Pod(self, index) for index in range(self.spec["completions"])]

    def as_user(self):
        """The words before a command that make it run as the pods' user, without any capability."""
        user = str(self.pod_spec["securityContext"].get("runAsUser", 0))
        if user == "0":
            return []
        if not os.stat(self.trainctl).st_mode & 0o001:
            print("pods run as root: only its owner can run " + self.trainctl)
            return []
        return ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--inh-caps=-all", "--bounding-set=-all",
                "--no-new-privs"]

    def tell_names(self):
        """Cluster DNS knows the pods from now on."""
        for host in self.hosts:
            with open("%s/hosts/%s.hosts" % (self.hosts.dir, host.name), "a") as file:
                for pod in self.pods:
                    file.write("%s %s-%d.%s\n" % (pod.host.address, self.name, pod.index, self.pod_spec["subdomain"]))


class Pod:
    def __init__(self, job, index):
        self.job = job
        self.index = index
        self.host = job.hosts["node%d" % (index + 1)]
        self.name = "%s-%d" % (job.name, index)
        self.out = "%s/%s.out" % (job.hosts.dir, self.name)
        self.env = {"PATH": os.path.dirname(job.trainctl) + ":/usr/bin:/bin", "JOB_COMPLETION_INDEX": str(index),
                    "HOME": "/", "XDG_CONFIG_HOME": "/nonexistent"}
        fields = {"status.podIP": self.host.address}
        for entry in job.container["env"]:
            self.env[entry["name"]] = entry["value"] if "value" in entry else fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        self._process = None

    def start(self):
        self._mount_claim()
        self._mount_secret()
        # Process 1 of the pod is what `unshare` starts. Without it, nothing of the pod is left.
        command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "sh", "-c",
                   'hostname "$0" && exec "$@"', self.name, *self.job.as_user(),
                   *self.job.container["command"]]
        with open(self.out, "ab") as out:
            self._process = self.host.popen(command, cwd=self.job.container["workingDir"], env=self.env, stdout=out,
                                            stderr=subprocess.STDOUT)

    def is_running(self):
        return self._process is not None and self._process.poll() is None

    def wait(self, patience):
        """Its exit code; 128 + the signal that ended it."""
        code = self._process.wait(patience)
        return code if code >= 0 else 128 - code

    def pid(self):
        """Of its process 1, outside. None: it has ended."""
        try:
            with open("/proc/%d/task/%d/children" % (self._process.pid, self._process.pid)) as file:
                pids = file.read().split()
        except OSError:
            return None
        return int(pids[0]) if pids else None

    def send(self, number):
        """As the kubelet does: to process 1 alone."""
        pid = self.pid()
        if pid is not None:
            os.kill(pid, number)

    def kill(self, patience):
        """Without a word, and its file system goes with it."""
        self.send(signal.SIGKILL)
        self._process.wait(patience)
        self.host.run("sh", "-c", "rm -rf /tmp/trainctl-agent-*")

    def run_inside(self, *command):
        """As `kubectl exec` does."""
        return self.host.run("nsenter", "--target", str(self._pid_in_host()), "--pid", "--mount", "--", *command)

    def output(self):
        with open(self.out, errors="replace") as file:
            return file.read()

    def _pid_in_host(self):
        """Of its process 1, as its host numbers processes."""
        with open("/proc/%d/status" % self.pid()) as file:
            numbers = next(line for line in file if line.startswith("NSpid:")).split()
        return int(numbers[-2])

    def _mount_claim(self):
        """The group of the pods may write to it."""
        group = self.job.pod_spec["securityContext"].get("fsGroup", 0)
        claim = self.job.container["workingDir"]
        os.chmod(self.job.hosts.dir, 0o755)
        os.chown(claim, -1, group)
        os.chmod(claim, 0o2775)

    def _mount_secret(self):
        """Every subPath of the Secret, with the mode that the manifest asks for; its group may read it."""
        group = self.job.pod_spec["securityContext"].get("fsGroup", 0)
        volumes = {volume["name"]: volume for volume in self.job.pod_spec["volumes"]}
        for mount in self.job.container["volumeMounts"]:
            if "secret" not in volumes[mount["name"]]:
                continue
            key = mount.get("subPath") or mount["subPathExpr"]
            for name, value in self.env.items():
                key = key.replace("$(%s)" % name, value)
            mode = "%o" % (volumes[mount["name"]]["secret"]["defaultMode"] | (0o040 if group else 0))
            script = 'mkdir -p "${1%/*}" && rm -f "$1" && cat > "$1" && chmod "$2" "$1" && chgrp "$3" "$1"'
            result = self.host.run("sh", "-c", script, "sh", mount["mountPath"], mode, str(group),
                                   input=self.job.secret["stringData"][key])
            if result.returncode != 0:
                raise RuntimeError(result.stdout)
