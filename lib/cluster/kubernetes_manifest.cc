#include "cluster/kubernetes_manifest.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/json.h"
#include "base/status.h"

namespace trainctl::cluster {
namespace {

constexpr size_t kMaxSecretBytes = 1 << 20;  // of Kubernetes
// From the signal to the end of the workers is launch.stop_timeout; then the launcher's disk and its agents.
constexpr absl::Duration kGraceBeyondStop = absl::Seconds(30);

// Exit codes that starting again does not mend: command line and recipe, no room, bad data, a failed check,
// stopped at once by hand.
constexpr ExitCode kFinal[] = {ExitCode::kUsage, ExitCode::kInfeasible, ExitCode::kBadData,
                               ExitCode::kCheckFailed, ExitCode::kStoppedUnsaved};

// A string of JSON is one of YAML, but for this one character.
std::string Quoted(absl::string_view text) {
  const std::string json = FormatAsciiJson(Json(std::string(text)));
  return absl::StrReplaceAll(json, {{"\x7f", "\\u007f"}});
}

// Kubernetes puts a variable's value in the place of "$(NAME)", and "$" in that of "$$".
std::string QuotedCommand(const std::vector<std::string>& words) {
  return absl::StrJoin(words, ", ", [](std::string* out, const std::string& word) {
    out->append(Quoted(absl::StrReplaceAll(word, {{"$", "$$"}})));
  });
}

std::string FinalCodes() {
  return absl::StrJoin(kFinal, ", ",
                       [](std::string* out, ExitCode code) { absl::StrAppend(out, static_cast<int>(code)); });
}

std::string Metadata(const KubernetesConfig& config) {
  return absl::StrCat(
      "metadata:\n  name: ", Quoted(config.name), "\n",
      config.name_space.empty() ? "" : absl::StrCat("  namespace: ", Quoted(config.name_space), "\n"),
      "  labels: {app.kubernetes.io/name: trainctl, app.kubernetes.io/instance: ", Quoted(config.name),
      "}\n");
}

// Names and contents of the files that the Secret has for all pods.
std::vector<std::pair<std::string, std::string>> FilesOfAllPods(const KubernetesSecret& secret) {
  return {{kAuthorityFile, secret.authority_pem},
          {kBootstrapCertificateFile, secret.bootstrap_certificate_pem},
          {kBootstrapKeyFile, secret.bootstrap_key_pem}};
}

std::string SecretDocument(const KubernetesJob& job) {
  std::string text = absl::StrCat(
      "# Lets pods join the job. Pipe this to kubectl; do not store it in a file or repository.\napiVersion: "
      "v1\nkind: Secret\n",
      Metadata(job.config), "type: Opaque\nimmutable: true\nstringData:\n");
  for (const auto& [file, content] : FilesOfAllPods(job.secret)) {
    absl::StrAppend(&text, "  ", file, ": ", Quoted(content), "\n");
  }
  for (size_t i = 0; i < job.secret.keys.size(); ++i) {
    absl::StrAppend(&text, "  ", kKeyFile, "-", i, ": ", Quoted(job.secret.keys[i]), "\n");
  }
  return text;
}

std::string ServiceDocument(const KubernetesConfig& config) {
  return absl::StrCat("# Gives pods the names ", PodName(config.name, 0), ".", config.name,
                      ", ... before they are ready.\n"
                      "apiVersion: v1\nkind: Service\n",
                      Metadata(config),
                      "spec:\n"
                      "  clusterIP: None\n"
                      "  publishNotReadyAddresses: true\n"
                      "  selector: {batch.kubernetes.io/job-name: ",
                      Quoted(config.name),
                      "}\n"
                      "  ports:\n"
                      "  - {name: launcher, port: ",
                      kLauncherPort, "}\n");
}

// Collectives are neither encrypted nor authenticated, and choose their ports: only pods of the job reach
// them.
std::string NetworkPolicyDocument(const KubernetesConfig& config) {
  const std::string pods =
      absl::StrCat("podSelector: {matchLabels: {batch.kubernetes.io/job-name: ", Quoted(config.name), "}}\n");
  return absl::StrCat(
      "# Only the job's own pods can reach its pods.\napiVersion: networking.k8s.io/v1\nkind: "
      "NetworkPolicy\n",
      Metadata(config), "spec:\n  ", pods,
      "  policyTypes: [Ingress]\n"
      "  ingress:\n"
      "  - from:\n"
      "    - ",
      pods);
}

// The security context of a pod. Its group makes the Secret's files readable and a new claim writable.
std::string PodSecurity(int64_t user) {
  if (user == 0) {
    return "      securityContext: {runAsUser: 0, runAsGroup: 0, seccompProfile: {type: RuntimeDefault}}\n";
  }
  return absl::StrCat(
      "      securityContext:\n"
      "        runAsNonRoot: true\n"
      "        runAsUser: ",
      user, "\n        runAsGroup: ", user, "\n        fsGroup: ", user,
      "\n"
      "        fsGroupChangePolicy: OnRootMismatch\n"
      "        seccompProfile: {type: RuntimeDefault}\n");
}

std::string SecretMounts(const KubernetesSecret& secret) {
  std::string text;
  for (const auto& [file, content] : FilesOfAllPods(secret)) {
    absl::StrAppend(&text,
                    "        - {name: secret, mountPath: ", Quoted(absl::StrCat(kSecretFolder, "/", file)),
                    ", subPath: ", file, ", readOnly: true}\n");
  }
  return text;
}

std::string JobDocument(const KubernetesJob& job) {
  const KubernetesConfig& config = job.config;
  const size_t num_pods = job.secret.keys.size();
  const std::string gpus =
      job.gpus_per_pod == 0
          ? "        # resources: {requests: {cpu: ..., memory: ...}}\n"
          : absl::StrCat("        resources:\n          limits: {nvidia.com/gpu: ", job.gpus_per_pod, "}\n");
  return absl::StrCat(
      "apiVersion: batch/v1\nkind: Job\n", Metadata(config),
      "spec:\n"
      "  completionMode: Indexed\n"
      "  completions: ",
      num_pods, "\n  parallelism: ", num_pods, "\n  backoffLimitPerIndex: ", job.max_restarts,
      "\n  maxFailedIndexes: 0  # no pod can train without the others\n  podReplacementPolicy: Failed\n  "
      "podFailurePolicy:\n    rules:\n    - action: Ignore  # evicted or preempted, its node drained or "
      "gone\n      onPodConditions:\n      - {type: DisruptionTarget, status: \"True\"}\n    - action: "
      "Ignore  # stopped on request, or the launcher was lost: the same command continues\n      "
      "onExitCodes: {containerName: trainctl, operator: In, values: [",
      static_cast<int>(ExitCode::kStoppedResumable),
      "]}\n    - action: FailJob  # errors that a restart cannot fix: docs/reference/exit-codes.md\n      "
      "onExitCodes: {containerName: trainctl, operator: In, values: [",
      FinalCodes(),
      "]}\n"
      "  template:\n"
      "    metadata:\n"
      "      labels: {app.kubernetes.io/name: trainctl, app.kubernetes.io/instance: ",
      Quoted(config.name),
      "}\n"
      "    spec:\n"
      "      restartPolicy: Never\n"
      "      subdomain: ",
      Quoted(config.name), "\n      terminationGracePeriodSeconds: ",
      absl::ToInt64Seconds(absl::Ceil(job.stop_timeout, absl::Seconds(1)) + kGraceBeyondStop),
      "\n"
      "      automountServiceAccountToken: false\n"
      "      enableServiceLinks: false\n",
      PodSecurity(config.user),
      "      containers:\n"
      "      - name: trainctl\n"
      "        image: ",
      Quoted(config.image), "\n        # Pod 0 runs the launch; the others wait for it.\n        command: [",
      QuotedCommand(job.command), "]\n        workingDir: ", Quoted(config.mount),
      "\n"
      "        env:\n"
      "        - {name: ",
      kLauncherVariable,
      ", value: ", Quoted(absl::StrCat(PodName(config.name, 0), ".", config.name, ":", kLauncherPort)),
      "}\n"
      "        - {name: ",
      kPodsVariable, ", value: ", Quoted(absl::StrCat(num_pods)),
      "}\n"
      "        - {name: ",
      kAddressVariable,
      ", valueFrom: {fieldRef: {fieldPath: status.podIP}}}\n"
      "        - {name: ",
      kSecretVariable, ", value: ", Quoted(kSecretFolder), "}\n", gpus,
      "        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]",
      // Without this capability, root could not access files that other users own.
      config.user == 0 ? ", add: [DAC_OVERRIDE]" : "",
      "}}\n"
      "        volumeMounts:\n"
      "        - {name: shared, mountPath: ",
      Quoted(config.mount),
      "}\n"
      "        - {name: shm, mountPath: /dev/shm}\n"
      "        - {name: tmp, mountPath: /tmp}\n",
      SecretMounts(job.secret),
      "        # Each pod sees only its own key.\n        - {name: secret, mountPath: ",
      Quoted(absl::StrCat(kSecretFolder, "/", kKeyFile)), ", subPathExpr: ", kKeyFile, "-$(", kIndexVariable,
      "), readOnly: true}\n"
      "      volumes:\n"
      "      - name: shared\n"
      "        persistentVolumeClaim: {claimName: ",
      Quoted(config.claim),
      "}\n"
      "      - name: shm\n"
      "        emptyDir: {medium: Memory}\n"
      "      - name: tmp\n"
      "        emptyDir: {}\n"
      "      - name: secret\n"
      "        secret: {secretName: ",
      Quoted(config.name), ", defaultMode: ", 0400, "}  # 0400\n");
}

}  // namespace

absl::StatusOr<std::string> KubernetesManifest(const KubernetesJob& job) {
  size_t num_bytes = 0;
  for (const auto& [file, content] : FilesOfAllPods(job.secret)) num_bytes += content.size();
  for (const std::string& key : job.secret.keys) num_bytes += key.size();
  if (num_bytes > kMaxSecretBytes) {
    return UsageError(absl::StrCat("cluster.nodes = ", job.secret.keys.size(),
                                   " needs more keys than one Kubernetes Secret can hold (", kMaxSecretBytes,
                                   " bytes); use fewer, larger pods"));
  }
  return absl::StrCat(SecretDocument(job), "---\n", ServiceDocument(job.config), "---\n",
                      NetworkPolicyDocument(job.config), "---\n", JobDocument(job));
}

}  // namespace trainctl::cluster
