#!/usr/bin/env python3
"""Jobs of Kubernetes without Kubernetes: the printed manifest is checked against the published schema, and its command
is then run as pods would run it.

    kubernetes_test.py TRAINCTL LIBTORCH [FILTER]

Skipped (exit code 77) where pods cannot be made, or the schema cannot be had.
"""
import os
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SKIPPED = 77
packages = subprocess.run([os.path.join(ROOT, "third_party", "test_packages.sh")], capture_output=True, text=True)
if packages.returncode != 0:
    print("skipped:", packages.stderr.strip())
    sys.exit(SKIPPED)
sys.path[:0] = [HERE, packages.stdout.strip()]
import kubernetes_validate  # noqa: E402
import yaml  # noqa: E402

import cluster_case  # noqa: E402
from cluster_case import PATIENCE, expect, expect_code, expect_nothing_left  # noqa: E402
from hosts import Hosts  # noqa: E402
from pods import Job  # noqa: E402

TRAINCTL = os.path.abspath(sys.argv[1])
LIBTORCH = os.path.abspath(sys.argv[2])
FILTER = sys.argv[3] if len(sys.argv) > 3 else ""
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"  # no profile of this machine

VERSIONS = ("1.31", "1.35")  # backoffLimitPerIndex is on by default from 1.29 on
BACKEND = """
backend = "kubernetes"
[launch.kubernetes]
name = "{name}"
image = "registry.example/trainctl:1"
claim = "shared"
mount = "{mount}"
"""


class Case(cluster_case.Case):
    straight_metrics = {}  # by steps, replicas and shards

    def __init__(self, name, hosts):
        super().__init__(name, hosts, TRAINCTL)
        self.name = name

    def recipe_of_two(self, steps, every=1000000):
        return self.recipe_of(2, 1, 4, steps, every)

    def recipe_of(self, nodes, replicas, shards, steps, every=1000000):
        return self.recipe("pods.toml", nodes, 2, replicas, shards, steps, every,
                           backend=BACKEND.format(name=self.name, mount=self.dir))

    def straight(self, steps, replicas=1, shards=4):
        """The metrics of the same run on one machine, which is run once."""
        if (steps, replicas, shards) not in Case.straight_metrics:
            recipe = self.recipe("one.toml", 1, replicas * shards, replicas, shards, steps)
            expect_code(self.run("launch", recipe, "--run-dir", "one"), 0)
            Case.straight_metrics[steps, replicas, shards] = self.metrics("one")
        return Case.straight_metrics[steps, replicas, shards]

    def print(self, *arguments):
        """(exit code, standard output, standard error)"""
        process = self.hosts["node1"].popen([TRAINCTL, "launch", *arguments, "--dry-run"], cwd=self.dir, text=True,
                                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, err

    def manifest(self, recipe, *arguments):
        code, out, err = self.print(recipe, "--run-dir", self.dir + "/run", *arguments)
        expect(code == 0, "exit code %s:\n%s" % (code, err))
        return out

    def job(self, recipe):
        job = Job(self.hosts, TRAINCTL, self.manifest(recipe))
        self.pods = job.pods
        return job

    def start(self):
        for pod in self.pods:
            pod.start()

    def expect_codes(self, *codes):
        found = tuple(pod.wait(PATIENCE) for pod in self.pods)
        expect(found == codes, "exit codes %s, not %s:\n%s" % (found, codes, self.output()))

    def output(self):
        return "\n".join("---- %s\n%s" % (pod.name, pod.output()) for pod in self.pods)

    def wait_for_steps(self, count):
        def are_there():
            expect(all(pod.is_running() for pod in self.pods), self.output())
            return self.steps("run") >= count

        self.wait("step %d" % count, are_there)


def a_manifest_is_what_kubernetes_takes(hosts):
    case = Case("valid", hosts)
    recipe = case.recipe_of_two(steps=5)
    text = case.manifest(recipe, "--set", "train.steps=6")
    documents = list(yaml.safe_load_all(text))
    expect([document["kind"] for document in documents] == ["Secret", "Service", "NetworkPolicy", "Job"], text)
    for document in documents:
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)
    secret, service, policy, job = documents
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    container, = pod["containers"]
    expect((spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 2), spec)
    rules = spec["podFailurePolicy"]["rules"]
    expect([rule["action"] for rule in rules] == ["Ignore", "Ignore", "FailJob"], rules)
    expect([rule.get("onExitCodes", {}).get("values") for rule in rules] == [None, [75], [2, 3, 6, 7, 130]], rules)
    expect(pod["restartPolicy"] == "Never" and pod["subdomain"] == service["metadata"]["name"] == "valid", pod)
    expect(service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True, service)
    expect(pod["terminationGracePeriodSeconds"] == 60, pod)  # launch.stop_timeout is 30 s
    expect(container["command"] == ["trainctl", "launch", recipe, "--run-dir", case.dir + "/run", "--or-resume", "--set",
                                    "train.steps=6"], container)
    expect("resources" not in container, container)
    keys = secret["stringData"]
    expect(sorted(keys) == ["bootstrap-certificate.pem", "bootstrap-key.pem", "ca.pem", "key-0", "key-1"], text)
    expect("PRIVATE KEY" not in keys["ca.pem"] + keys["key-1"] + keys["bootstrap-certificate.pem"], text)
    # The Job's controller gives its pods the label by which the policy knows them.
    selector = {"matchLabels": {"batch.kubernetes.io/job-name": job["metadata"]["name"]}}
    expect(policy["spec"] == {"podSelector": selector, "policyTypes": ["Ingress"],
                              "ingress": [{"from": [{"podSelector": selector}]}]}, policy)
    expect(pod["securityContext"]["runAsNonRoot"] is True and
           pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == 1000, pod)
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    expect(volumes["secret"]["secret"] == {"secretName": "valid", "defaultMode": 0o400}, volumes)
    expect(volumes["shared"]["persistentVolumeClaim"] == {"claimName": "shared"}, volumes)
    expect(volumes["shm"]["emptyDir"] == {"medium": "Memory"} and volumes["tmp"]["emptyDir"] == {}, volumes)
    # Nobody finds in the command or the environment what the files keep.
    rest = text[text.index("\n---\n"):]
    expect(all(value not in rest for value in keys.values()), rest)
    # Each print has keys of its own.
    expect(yaml.safe_load(case.manifest(recipe).split("---\n")[0])["stringData"]["key-1"] != keys["key-1"], "same key")
    expect(not os.path.exists(case.dir + "/run"), "a dry run made the folder")


def what_pods_could_not_run_is_not_printed(hosts):
    case = Case("refused", hosts)
    recipe = case.recipe_of_two(steps=5)
    for arguments, words in (([recipe], "--run-dir RUN --or-resume --dry-run"),
                             ([recipe, "--run-dir", "/tmp/elsewhere"], "launch.kubernetes.mount"),
                             ([recipe, "--run-dir", case.dir + "/run", "--stop-after", "3"], "--stop-after"),
                             ([recipe, "--run-dir", case.dir + "/run", "--set", "launch.kubernetes.image=default"],
                              "launch.kubernetes.image")):
        code, out, err = case.print(*arguments)
        expect(code == 2 and out == "" and words in err, "%s: %s\n%s\n%s" % (arguments, code, out, err))
    started = case.run("launch", recipe, "--run-dir", "run")
    expect_code(started, 5)
    expect("--dry-run | kubectl apply -f -" in started.stdout, started.stdout)
    expect(not os.path.exists(case.dir + "/run"), "the folder was made")


def pods_compute_what_one_machine_does(hosts):
    """Eight workers in four pods. Pod 1 is there before the launcher, and before anybody knows the launcher's name."""
    for name, replicas, shards in (("zero3", 1, 8), ("hsdp", 2, 4)):
        case = Case(name, hosts)
        expected = case.straight(6, replicas, shards)
        job = case.job(case.recipe_of(4, replicas, shards, steps=6))
        case.pods[1].start()
        waits = "%s-1 is waiting for the launcher at %s-0.%s:" % (name, name, name)
        case.wait("pod 1 to wait", lambda: waits in case.pods[1].output())
        job.tell_names()
        for pod in case.pods:
            if pod is not case.pods[1]:
                pod.start()
        case.expect_codes(0, 0, 0, 0)
        expect(case.metrics("run") == expected, "%s\n%s" % (expected, case.metrics("run")))
        nodes = "[%s]" % ",".join('"%s"' % pod.name for pod in case.pods)
        with open(case.dir + "/run/journal.jsonl") as journal:
            expect(nodes in journal.read().replace(" ", ""), "the journal does not name the pods")
        expect_nothing_left(hosts)
    # Whichever pod is started again, nothing is left to do.
    case.start()
    case.expect_codes(0, 0, 0, 0)


def a_request_to_stop_saves_and_the_same_command_goes_on(hosts):
    case = Case("stop", hosts)
    expected = case.straight(steps=60)
    case.job(case.recipe_of_two(steps=60)).tell_names()
    for steps, pod in ((3, 0), (20, 1)):  # the launcher's, an agent's
        case.start()
        case.wait_for_steps(steps)
        case.pods[pod].send(signal.SIGTERM)
        case.expect_codes(75, 75)
        expect_nothing_left(hosts)
    expect("stopped after saving step" in case.pods[0].output(), case.output())
    case.start()
    case.expect_codes(0, 0)
    expect(case.metrics("run") == expected, "the resumed run differs from the straight one")
    expect_nothing_left(hosts)


def a_pod_that_is_replaced_joins_again(hosts):
    case = Case("replaced", hosts)
    expected = case.straight(steps=60)
    case.job(case.recipe_of_two(steps=60, every=5)).tell_names()
    case.start()
    case.wait("a checkpoint", lambda: case.checkpoints("run"))
    case.pods[1].kill(PATIENCE)
    case.pods[1].start()
    case.expect_codes(0, 0)
    expect("lost with its node replaced-1" in case.pods[0].output(), case.output())
    expect(case.metrics("run") == expected, "the run differs from the straight one")
    # Neither the launcher nor anybody else asks for it: it is the Job that starts the other pods again.
    case = Case("launcher", hosts)
    case.job(case.recipe_of_two(steps=60, every=5)).tell_names()
    case.start()
    case.wait("a checkpoint", lambda: case.checkpoints("run"))
    case.pods[0].kill(PATIENCE)
    expect(case.pods[1].wait(PATIENCE) == 75, case.output())
    case.start()
    case.expect_codes(0, 0)
    expect(case.metrics("run") == expected, "the run differs from the straight one")


def a_pod_of_another_job_is_not_let_in(hosts):
    case = Case("stranger", hosts)
    recipe = case.recipe_of_two(steps=100000)
    strangers = [Job(hosts, TRAINCTL, case.manifest(recipe)) for _ in range(2)]
    job = case.job(recipe)
    job.tell_names()
    case.pods[0].start()
    # It has the right authority, but a key of another print.
    stranger = strangers[0]
    for file in ("ca.pem", "bootstrap-certificate.pem", "bootstrap-key.pem"):
        stranger.secret["stringData"][file] = job.secret["stringData"][file]
    stranger.pods[1].start()
    expect(stranger.pods[1].wait(PATIENCE) == 5, case.output())
    expect("the proof is not made with the key of node" in stranger.pods[1].output(), case.output())
    # It has never seen this launcher's authority, and so tells it nothing.
    stranger = strangers[1]
    stranger.pods[1].start()
    case.wait("it to wait", lambda: case.pods[1].output().count("is waiting for the launcher") == 2)
    stranger.pods[1].send(signal.SIGTERM)
    expect(stranger.pods[1].wait(PATIENCE) == 75, case.output())
    case.pods[1].start()
    case.wait_for_steps(2)
    case.pods[0].send(signal.SIGTERM)
    case.expect_codes(75, 75)
    expect_nothing_left(hosts)


def process_one_reaps_what_others_leave(hosts):
    case = Case("init", hosts)
    case.job(case.recipe_of_two(steps=100000)).tell_names()
    case.start()
    case.wait_for_steps(2)
    for pod in case.pods:
        # An orphan that ends at once: without a parent that waits for it, it stays.
        orphan = pod.run_inside("sh", "-c", "sleep 0.1 > /dev/null 2>&1 & echo $!").stdout.strip()
        expect(orphan.isdigit(), orphan)
        case.wait("process %s of %s to be reaped" % (orphan, pod.name),
                  lambda: pod.run_inside("test", "-e", "/proc/" + orphan).returncode == 1)
    case.pods[1].send(signal.SIGINT)
    case.expect_codes(75, 75)
    expect_nothing_left(hosts)


CASES = [a_manifest_is_what_kubernetes_takes, what_pods_could_not_run_is_not_printed, pods_compute_what_one_machine_does,
         a_request_to_stop_saves_and_the_same_command_goes_on, a_pod_that_is_replaced_joins_again,
         a_pod_of_another_job_is_not_let_in, process_one_reaps_what_others_leave]


def main():
    with Hosts(4, shared=[os.path.dirname(TRAINCTL), LIBTORCH], for_all_users=True) as hosts:
        return cluster_case.run_cases(CASES, FILTER, hosts)


if __name__ == "__main__":
    sys.exit(cluster_case.exit_code_of(main))
