// Generates the manifest of a Kubernetes job: a Secret, a headless Service, a NetworkPolicy and an Indexed
// Job, as YAML for `kubectl apply -f -`. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cluster/kubernetes_job.h"

namespace trainctl::cluster {

// The contents of the files that the pods get from the Secret.
struct KubernetesSecret {
  std::string authority_pem;  // visible to all pods, as are the next two fields
  std::string bootstrap_certificate_pem;
  std::string bootstrap_key_pem;
  std::vector<std::string> keys;  // keys by pod index; each is visible only to its pod
};

struct KubernetesJob {
  KubernetesConfig config;           // complete and valid settings
  KubernetesSecret secret;           // secret with one key per pod
  std::vector<std::string> command;  // command that every pod runs
  int64_t gpus_per_pod = 0;
  // Number of times a pod is restarted after its own failure.
  int64_t max_restarts = 3;
  absl::Duration stop_timeout;  // launch.stop_timeout
};

// Returns the manifest, or UsageError if the Secret would be larger than Kubernetes allows.
absl::StatusOr<std::string> KubernetesManifest(const KubernetesJob& job);

}  // namespace trainctl::cluster
