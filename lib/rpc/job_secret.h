// What lets the agents of a job in that nobody invites: each has a key of its node from the start (a Secret
// of Kubernetes), and proves with it that a request for a certificate is its own. The launcher has the key
// from which all of these are derived, and the job's authority. Has no gRPC. Thread safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(const JobSecret secret, MakeJobSecret("llm", clock));  // once, for the job
//   secret.authority.ca_pem; FormatJobSecret(secret); NodeKey(secret, "llm-1");      // to whom each belongs
//
//   EnrolmentProof(node_key, "llm-1", nonce, csr_pem);                     // the agent, for each enrolment
//   JobAuthority::Open(launch_id, secret, clock)->EnrollWithKey(...);      // the launcher
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "rpc/job_authority.h"

namespace trainctl::rpc {

struct JobSecret {
  Credential authority;  // with its key
  std::string key;       // from which the nodes' keys are derived
};

// A new authority, called `name`, and a new key: 256 random bits.
absl::StatusOr<JobSecret> MakeJobSecret(absl::string_view name, const Clock& clock);

// One line of JSON, and back. UsageError for anything else.
std::string FormatJobSecret(const JobSecret& secret);
absl::StatusOr<JobSecret> ParseJobSecret(const std::string& text);

// That of the node's agent. Says nothing about another node's.
std::string NodeKey(const JobSecret& secret, absl::string_view node);

// Says that who has the node's key asks for a certificate for the key in `csr_pem`. A copy of it serves
// nobody who has not that key's private part, too.
std::string EnrolmentProof(absl::string_view node_key, absl::string_view node, absl::string_view nonce,
                           absl::string_view csr_pem);

// What the file holds. EnvironmentError when it is missing, empty, or when others than its owner and group
// can read it: a Secret's files belong to root and to the group of the pod.
absl::StatusOr<std::string> ReadSecret(const std::string& path);

}  // namespace trainctl::rpc
