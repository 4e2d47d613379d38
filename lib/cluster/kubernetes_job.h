// A job of Kubernetes: what its recipe says of it, what its pods are called, and which of them this process
// is in. One Indexed Job with a pod per node; the pod of index 0 launches, the others wait for it. Pure;
// thread safe.
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

// What `launch.backend = "kubernetes"` reads: launch.kubernetes.
struct KubernetesConfig {
  std::string name;        // of the Job, its Service and its Secret
  std::string name_space;  // empty: that of kubectl's context
  std::string image;
  std::string claim;              // a PersistentVolumeClaim that all pods can write
  std::string mount = "/shared";  // where pods see it
  int64_t user = 1000;            // user and group of the pods' processes; 0: root
};

// UsageErrors that start with the field; `nodes`: cluster.nodes. An empty field is in order: it may be given
// later.
absl::Status CheckKubernetesName(absl::string_view name, int64_t nodes);
absl::Status CheckKubernetesNamespace(absl::string_view name_space);
absl::Status CheckKubernetesImage(absl::string_view image);
absl::Status CheckKubernetesClaim(absl::string_view claim);
absl::Status CheckKubernetesMount(absl::string_view mount);

// The launcher listens there; each pod has addresses of its own.
inline constexpr int kLauncherPort = 29650;
// How long a job waits for its pods, and a pod for the launcher: images are pulled meanwhile.
inline constexpr absl::Duration kPodTimeout = absl::Minutes(15);

// What the manifest tells each pod.
inline constexpr char kLauncherVariable[] = "TRAINCTL_LAUNCHER";  // "NAME-0.SERVICE:29650"
inline constexpr char kPodsVariable[] = "TRAINCTL_PODS";
inline constexpr char kAddressVariable[] = "TRAINCTL_ADDRESS";    // of the pod
inline constexpr char kSecretVariable[] = "TRAINCTL_SECRET";      // a folder
inline constexpr char kIndexVariable[] = "JOB_COMPLETION_INDEX";  // of Kubernetes
// Files of that folder: the certificate of the job's authority, the certificate and key that an agent shows
// until it has its own, and this pod's own key.
inline constexpr char kSecretFolder[] = "/run/trainctl";
inline constexpr char kAuthorityFile[] = "ca.pem";
inline constexpr char kBootstrapCertificateFile[] = "bootstrap-certificate.pem";
inline constexpr char kBootstrapKeyFile[] = "bootstrap-key.pem";
inline constexpr char kKeyFile[] = "key";

// The pod's host name: "NAME-3".
std::string PodName(absl::string_view job, int64_t index);

struct KubernetesPod {
  std::string job;  // its name
  int64_t index = 0;
  int64_t count = 0;    // of the job's pods
  std::string address;  // its own, in the network of the pods
  std::string launcher;
  int port = 0;
  std::string secret_folder;
};
// The pod of such a job that this process is in, if any. UsageError: what the manifest tells it is wrong.
absl::StatusOr<std::optional<KubernetesPod>> FindKubernetesPod(const Environment& environment);

}  // namespace trainctl::cluster
