// The certificate authority of one job, and who its certificates say that a peer is. It lives in the memory
// of the coordinator, from launch to end: its key is never written, and no other job trusts it. Where agents
// are there before the launch, the authority is older too, and comes from the job's secret (job_secret.h).
// Has no gRPC; tls.h makes connections of what is made here. Thread safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(auto authority, rpc::JobAuthority::Create(job_id, clock));
//   TRAINCTL_ASSIGN_OR_RETURN(const Credential own, authority->Issue({Role::kCoordinator, "launch"},
//   {"10.0.0.1"})); TRAINCTL_ASSIGN_OR_RETURN(const std::string token, authority->MakeToken("node-7"));
//   // to the agent of node-7, over a channel that others cannot read: the token and a credential of
//   // {Role::kBootstrap, "agent"}, without which it gets no connection
//
//   TRAINCTL_ASSIGN_OR_RETURN(const KeyAndRequest mine, rpc::MakeKeyAndRequest());  // there
//   authority->Enroll("node-7", token, mine.csr_pem);                               // here, for the call
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

// Key and certificate of one end of a connection, and the authority that it trusts; all in PEM.
struct Credential {
  std::string key_pem;
  std::string cert_pem;
  std::string ca_pem;
};

struct KeyAndRequest {
  std::string key_pem;
  std::string csr_pem;
};

// A name in the coordinator's certificate and in no other. Clients check it instead of an address, for
// addresses change from one network to the next.
inline constexpr char kCoordinatorName[] = "trainctl-coordinator";

// Longer ones are refused before they are parsed; ours are below 1 KiB.
inline constexpr size_t kMaxPemBytes = 16 << 10;
// Letters, digits and "._-", no more than this many of them.
inline constexpr size_t kMaxJobIdBytes = 64;
inline constexpr size_t kMaxIdentityNameBytes = 253;  // a host name

// Certificates count from a day before they are made, for nodes whose clocks are wrong, and for longer than
// any run is expected to take: the end of the job, not of a date, is what ends them, for the authority is
// gone by then. A launch that does last longer keeps its connections, but makes no new ones until it is
// stopped and resumed.
inline constexpr absl::Duration kCertificateBackdate = absl::Hours(24);
inline constexpr absl::Duration kCertificateLifetime = absl::Hours(400 * 24);

struct JobSecret;  // job_secret.h

class JobAuthority {
 public:
  // Makes a P-256 key and a certificate that it signs itself. UsageError for a job id of other characters
  // than above. `clock` outlives the authority.
  static absl::StatusOr<std::unique_ptr<JobAuthority>> Create(absl::string_view job_id, const Clock& clock);
  // That of a secret. UsageError also for a key that is not the authority's.
  static absl::StatusOr<std::unique_ptr<JobAuthority>> Open(absl::string_view job_id, const JobSecret& secret,
                                                            const Clock& clock);
  ~JobAuthority();

  const std::string& job_id() const;
  // What peers of the job trust. Public.
  const std::string& ca_pem() const;

  // A new key with a certificate. The coordinator's is for servers and carries `addresses` (IP addresses or
  // host names) and kCoordinatorName; the others are for clients and take no addresses. UsageError for a name
  // or an address that cannot be written down.
  absl::StatusOr<Credential> Issue(const Identity& identity,
                                   absl::Span<const std::string> addresses = {}) const;

  // The authority's own key and certificate, for a secret.
  absl::StatusOr<Credential> Export() const;

  // A secret with which the agent of `node` gets its certificate: 256 random bits in hexadecimal. It serves
  // that node and one key. Another call for the same node, for an agent that is started again, voids the last
  // token; certificates that were made for it stay valid.
  absl::StatusOr<std::string> MakeToken(absl::string_view node);

  // A certificate for the key in `csr_pem` with the identity {kAgent, node}; whatever else the request asks
  // for is ignored. Asked again with the same key, for an answer that was lost, it gives the same
  // certificate. PermissionDenied for a wrong token, and for one that was used with another key (the message
  // says which); UsageError for what is no signed request of a P-256 key.
  absl::StatusOr<std::string> Enroll(absl::string_view node, absl::string_view token,
                                     absl::string_view csr_pem);

  // The same for an agent with a key of its node: `proof` is that of job_secret.h. A nonce serves one key,
  // and an agent that is started again takes another one; certificates that were made for others stay valid.
  // PermissionDenied for a wrong proof, for a nonce that was used with another key, and where there is no
  // secret.
  absl::StatusOr<std::string> EnrollWithKey(absl::string_view node, absl::string_view nonce,
                                            absl::string_view proof, absl::string_view csr_pem);

 private:
  class Impl;
  explicit JobAuthority(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A new P-256 key and a request for its certificate, which names nobody.
absl::StatusOr<KeyAndRequest> MakeKeyAndRequest();

// Whose certificate it is, by its URIs: exactly one, "trainctl://<job id>/<role>/<name>", of this job. Says
// nothing about who signed it. PermissionDenied otherwise.
absl::StatusOr<Identity> ParsePeer(absl::Span<const std::string> uris, absl::string_view job_id);

// UsageError unless the parts can be read, the certificate is for the key and the authority signed it. gRPC
// itself would report that to its log only.
absl::Status CheckCredential(const Credential& credential);

// UsageError, naming the dates, if the authority's certificate or the peer's own is not valid at `now`. The
// usual cause is that this machine's clock or the launcher's is wrong by more than kCertificateBackdate. gRPC
// itself would report only that no address answers. Requires CheckCredential.
absl::Status CheckDates(const Credential& credential, absl::Time now);

}  // namespace trainctl::rpc
