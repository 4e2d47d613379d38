// A Kubernetes job: its settings in the recipe, the names of its pods, and the pod that this process is in.
// The job is an Indexed Job with one pod per node. The pod with index 0 runs the launcher, and the other pods
// wait for it. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cluster/batch_job.h"

namespace trainctl::cluster {

// The settings in launch.kubernetes, for `launch.backend = "kubernetes"`.
struct KubernetesConfig {
  // Name of the Job, its Service and its Secret.
  std::string name;
  // Namespace; if empty, that of kubectl's current context.
  std::string name_space;
  std::string image;
  // A PersistentVolumeClaim to which all pods can write.
  std::string claim;
  // Path at which the claim is mounted in the pods.
  std::string mount = "/shared";
  // User and group ID of the pods' processes; 0 for root.
  int64_t user = 1000;
};

// Check one field each. Return a UsageError that begins with the field's name if it is invalid. An empty
// field is valid, because it may be set later. `nodes` is cluster.nodes.
absl::Status CheckKubernetesName(absl::string_view name, int64_t nodes);
absl::Status CheckKubernetesNamespace(absl::string_view name_space);
absl::Status CheckKubernetesImage(absl::string_view image);
absl::Status CheckKubernetesClaim(absl::string_view claim);
absl::Status CheckKubernetesMount(absl::string_view mount);

// The port on which the launcher listens. A fixed port works because each pod has its own IP address.
inline constexpr int kLauncherPort = 29650;
// How long a job waits for its pods, and a pod for the launcher, while images are being pulled.
inline constexpr absl::Duration kPodTimeout = absl::Minutes(15);

// Environment variables that the manifest sets in each pod.
inline constexpr char kLauncherVariable[] = "TRAINCTL_LAUNCHER";  // "NAME-0.SERVICE:29650"
inline constexpr char kPodsVariable[] = "TRAINCTL_PODS";
inline constexpr char kAddressVariable[] = "TRAINCTL_ADDRESS";  // the pod's IP address
inline constexpr char kSecretVariable[] = "TRAINCTL_SECRET";    // path of the folder with the secret's files
inline constexpr char kIndexVariable[] = "JOB_COMPLETION_INDEX";  // set by Kubernetes
// The secret's folder and its files: the certificate of the job's authority, the certificate and key that an
// agent presents until it has its own, and this pod's key.
inline constexpr char kSecretFolder[] = "/run/trainctl";
inline constexpr char kAuthorityFile[] = "ca.pem";
inline constexpr char kBootstrapCertificateFile[] = "bootstrap-certificate.pem";
inline constexpr char kBootstrapKeyFile[] = "bootstrap-key.pem";
inline constexpr char kKeyFile[] = "key";

// Returns a pod's host name, for example "NAME-3".
std::string PodName(absl::string_view job, int64_t index);

struct KubernetesPod {
  std::string job;  // name of the job
  int64_t index = 0;
  int64_t count = 0;    // number of pods in the job
  std::string address;  // the pod's address in the pod network
  std::string launcher;
  int port = 0;
  std::string secret_folder;
};
// Returns the pod that this process runs in, if any. Returns UsageError if a variable set by the manifest has
// an invalid value.
absl::StatusOr<std::optional<KubernetesPod>> FindKubernetesPod(const Environment& environment);

}  // namespace trainctl::cluster
