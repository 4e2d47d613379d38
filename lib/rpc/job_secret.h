// Lets agents join without an invitation by proving that they hold their node's key. Each agent has the key
// from the start (from a Kubernetes Secret, for example) and uses it to sign its certificate request. The
// launcher has the job's authority and the key from which all node keys are derived. Does not use gRPC.
// Thread-safe.
//
//   // Once per job:
//   TRAINCTL_ASSIGN_OR_RETURN(const JobSecret secret, MakeJobSecret("llm", clock));
//   FormatJobSecret(secret);                                // for the launcher
//   secret.authority.ca_pem; NodeKey(secret, "llm-1");      // for the agent of llm-1
//
//   // For each enrolment, in the agent and then in the launcher:
//   EnrolmentProof(node_key, "llm-1", nonce, csr_pem);
//   JobAuthority::Open(launch_id, secret, clock)->EnrollWithKey(...);
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "rpc/job_authority.h"

namespace trainctl::rpc {

struct JobSecret {
  Credential authority;  // the job's authority, including its key
  std::string key;       // master key from which the node keys are derived
};

// Creates an authority with the given name and a key of 256 random bits.
absl::StatusOr<JobSecret> MakeJobSecret(absl::string_view name, const Clock& clock);

// Formats a secret as one line of JSON, or parses it. ParseJobSecret returns UsageError if `text` is not a
// secret.
std::string FormatJobSecret(const JobSecret& secret);
absl::StatusOr<JobSecret> ParseJobSecret(const std::string& text);

// Derives the key of the node's agent. The key reveals nothing about other nodes' keys.
std::string NodeKey(const JobSecret& secret, absl::string_view node);

// Computes a proof that the holder of the node's key requests a certificate for the key in `csr_pem`. An
// intercepted proof is useless without the matching private key.
std::string EnrolmentProof(absl::string_view node_key, absl::string_view node, absl::string_view nonce,
                           absl::string_view csr_pem);

// Reads a secret file. Returns EnvironmentError if the file is missing or empty, or if users other than its
// owner and group can read it. Group access is allowed because the files of a Kubernetes Secret belong to
// root and the pod's group.
absl::StatusOr<std::string> ReadSecret(const std::string& path);

}  // namespace trainctl::rpc
