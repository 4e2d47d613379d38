// The manifest of a job of Kubernetes: a Secret, a headless Service, a NetworkPolicy and an Indexed Job, as
// YAML for `kubectl apply -f -`. Pure; thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cluster/kubernetes_job.h"

namespace trainctl::cluster {

// What each pod's file holds; printed into the Secret.
struct KubernetesSecret {
  std::string authority_pem;  // all pods see this and the next two
  std::string bootstrap_certificate_pem;
  std::string bootstrap_key_pem;
  std::vector<std::string> keys;  // by index of the pod, which sees no other
};

struct KubernetesJob {
  KubernetesConfig config;           // complete and checked
  KubernetesSecret secret;           // a key for each pod
  std::vector<std::string> command;  // of every pod
  int64_t gpus_per_pod = 0;
  int64_t max_restarts = 3;     // of a pod, for a failure that is its own
  absl::Duration stop_timeout;  // launch.stop_timeout
};

// UsageError: the Secret would be larger than Kubernetes stores.
absl::StatusOr<std::string> KubernetesManifest(const KubernetesJob& job);

}  // namespace trainctl::cluster
