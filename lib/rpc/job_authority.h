// One job's certificate authority, and the identities in its certificates. The authority exists in the
// coordinator's memory from launch to end: its key is never written to disk, and no other job trusts it. The
// exception is a job whose agents exist before the launch. Its authority is created in advance and stored in
// the job's secret (job_secret.h). Does not use gRPC; tls.h makes connections with these credentials.
// Thread-safe.
//
//   // The coordinator:
//   TRAINCTL_ASSIGN_OR_RETURN(auto authority, rpc::JobAuthority::Create(job_id, clock));
//   TRAINCTL_ASSIGN_OR_RETURN(auto own, authority->Issue({Role::kCoordinator, "launch"}, {"10.0.0.1"}));
//   TRAINCTL_ASSIGN_OR_RETURN(auto token, authority->MakeToken("node-7"));
//   // ... passes the token and a {Role::kBootstrap, "agent"} credential to node-7 over a private channel.
//
//   // The agent of node-7, which connects with that credential and sends the token and mine.csr_pem:
//   TRAINCTL_ASSIGN_OR_RETURN(auto mine, rpc::MakeKeyAndRequest());
//
//   // The coordinator, when it receives them:
//   authority->Enroll("node-7", token, csr_pem);
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "rpc/identity.h"

namespace trainctl::rpc {

// The key and certificate of one end of a connection, and the authority that this end trusts, all in PEM.
struct Credential {
  std::string key_pem;
  std::string cert_pem;
  std::string ca_pem;
};

struct KeyAndRequest {
  std::string key_pem;
  std::string csr_pem;
};

// A name that only the coordinator's certificate contains. Clients verify this name rather than an address,
// because addresses differ between networks.
inline constexpr char kCoordinatorName[] = "trainctl-coordinator";

// PEM texts longer than this are rejected before parsing. Those we create are below 1 KiB.
inline constexpr size_t kMaxPemBytes = 16 << 10;
// Maximum lengths of names, which consist of letters, digits and "._-".
inline constexpr size_t kMaxJobIdBytes = 64;
inline constexpr size_t kMaxIdentityNameBytes = 253;  // maximum length of a host name

// A certificate is valid from a day before its creation, because a node's clock may be behind, and for longer
// than any run is expected to take. It is the end of the job, not this date, that makes certificates useless,
// because the authority no longer exists. A launch that outlives its certificates keeps its connections but
// cannot open new ones until it is stopped and resumed.
inline constexpr absl::Duration kCertificateBackdate = absl::Hours(24);
inline constexpr absl::Duration kCertificateLifetime = absl::Hours(400 * 24);

struct JobSecret;  // job_secret.h

class JobAuthority {
 public:
  // Creates a P-256 key and a self-signed certificate. Returns UsageError if `job_id` is not a valid name
  // (see kMaxJobIdBytes). `clock` must outlive the authority.
  static absl::StatusOr<std::unique_ptr<JobAuthority>> Create(absl::string_view job_id, const Clock& clock);
  // Opens the authority stored in a secret. Returns UsageError like Create, and if the key does not belong to
  // the authority.
  static absl::StatusOr<std::unique_ptr<JobAuthority>> Open(absl::string_view job_id, const JobSecret& secret,
                                                            const Clock& clock);
  ~JobAuthority();

  const std::string& job_id() const;
  // The certificate that the job's peers trust. It is not secret.
  const std::string& ca_pem() const;

  // Creates a key with a certificate. The coordinator's certificate is a server certificate that contains
  // `addresses` (IP addresses or host names) and kCoordinatorName; all others are client certificates without
  // addresses. Returns UsageError for a name or address that a certificate cannot contain.
  absl::StatusOr<Credential> Issue(const Identity& identity,
                                   absl::Span<const std::string> addresses = {}) const;

  // Returns the authority's own key and certificate, to be stored in a secret.
  absl::StatusOr<Credential> Export() const;

  // Creates a token with which the agent of `node` can obtain its certificate: 256 random bits in
  // hexadecimal. The token is valid for that node and one key. Calling this again for the same node, because
  // its agent is restarted, revokes the previous token, but not the certificates issued for it.
  absl::StatusOr<std::string> MakeToken(absl::string_view node);

  // Issues a certificate for the key in `csr_pem` with the identity {kAgent, node}; everything else in the
  // request is ignored. A request that is repeated with the same key, because the reply was lost, returns the
  // same certificate. Returns PermissionDenied if the token is wrong or was used with another key (the
  // message says which), and UsageError if `csr_pem` is not a signed request for a P-256 key.
  absl::StatusOr<std::string> Enroll(absl::string_view node, absl::string_view token,
                                     absl::string_view csr_pem);

  // Like Enroll, for an agent that holds its node's key. `proof` comes from EnrolmentProof in job_secret.h. A
  // nonce is valid for one key, so a restarted agent uses a new nonce; certificates issued for earlier nonces
  // stay valid. Returns PermissionDenied if the proof is wrong, if the nonce was used with another key, or if
  // the authority was not opened from a secret.
  absl::StatusOr<std::string> EnrollWithKey(absl::string_view node, absl::string_view nonce,
                                            absl::string_view proof, absl::string_view csr_pem);

 private:
  class Impl;
  explicit JobAuthority(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Creates a P-256 key and a certificate request for it. The request contains no name.
absl::StatusOr<KeyAndRequest> MakeKeyAndRequest();

// Parses the identity in a certificate's URIs. There must be exactly one URI, of the form "trainctl://<job
// id>/<role>/<name>" and with this job's ID; otherwise returns PermissionDenied. Does not check the
// certificate's signature.
absl::StatusOr<Identity> ParsePeer(absl::Span<const std::string> uris, absl::string_view job_id);

// Returns UsageError unless all parts can be parsed, the certificate matches the key, and the authority
// signed the certificate. gRPC itself would only log such an error.
absl::Status CheckCredential(const Credential& credential);

// Returns UsageError, with the dates in the message, if the authority's certificate or the peer's own is not
// valid at `now`. The usual cause is that this machine's clock or the launcher's is off by more than
// kCertificateBackdate. gRPC itself would only report that no address answers. The credential must have
// passed CheckCredential.
absl::Status CheckDates(const Credential& credential, absl::Time now);

}  // namespace trainctl::rpc
