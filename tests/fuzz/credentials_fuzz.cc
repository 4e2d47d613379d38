// Fuzzes what peers show: requests for certificates, PEM of certificates and keys, and the names in
// certificates. A request that is signed gives a certificate that fits its key's owner; a name that is taken
// is written as it was read.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/status.h"
#include "rpc/job_authority.h"

namespace trainctl::rpc {
namespace {

constexpr char kJob[] = "job";
constexpr char kNode[] = "node";

JobAuthority& Authority() {
  static const RealClock clock;
  static JobAuthority& authority = *JobAuthority::Create(kJob, clock)->release();
  return authority;
}

void FuzzRequest(absl::string_view bytes) {
  const std::string token = *Authority().MakeToken(kNode);
  const auto certificate = Authority().Enroll(kNode, token, bytes);
  if (!certificate.ok()) {
    TRAINCTL_CHECK(certificate.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  TRAINCTL_CHECK(bytes.size() <= kMaxPemBytes);
  TRAINCTL_CHECK(*Authority().Enroll(kNode, token, bytes) == *certificate);
}

// As they come, and written over a place of what is good.
void FuzzCredential(absl::string_view bytes) {
  static const Credential& good = *new Credential(*Authority().Issue({Role::kAdmin, "me"}));
  const std::string text(bytes);
  (void)CheckCredential({text, text, text});
  if (bytes.size() < 3) return;
  Credential changed = good;
  std::string* const parts[] = {&changed.key_pem, &changed.cert_pem, &changed.ca_pem};
  std::string& part = *parts[static_cast<uint8_t>(bytes[0]) % 3];
  const size_t at = (static_cast<uint8_t>(bytes[1]) * 256 + static_cast<uint8_t>(bytes[2])) % part.size();
  part.replace(at, bytes.size() - 3, text.substr(3));
  const absl::Status status = CheckCredential(changed);
  TRAINCTL_CHECK(status.ok() || status.code() == absl::StatusCode::kInvalidArgument);
}

void FuzzNames(absl::string_view bytes) {
  const std::vector<std::string> uris = absl::StrSplit(bytes, '\0');
  const auto identity = ParsePeer(uris, kJob);
  if (!identity.ok()) return;
  TRAINCTL_CHECK(uris[0] ==
                 absl::StrCat("trainctl://", kJob, "/", RoleName(identity->role), "/", identity->name));
}

}  // namespace
}  // namespace trainctl::rpc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  if (size_bytes == 0) return 0;
  const absl::string_view bytes(reinterpret_cast<const char*>(data + 1), size_bytes - 1);
  switch (data[0] % 3) {
    case 0:
      trainctl::rpc::FuzzRequest(bytes);
      break;
    case 1:
      trainctl::rpc::FuzzCredential(bytes);
      break;
    default:
      trainctl::rpc::FuzzNames(bytes);
      break;
  }
  return 0;
}
