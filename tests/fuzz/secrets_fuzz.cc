// Fuzzes what lets a process into a job: invitations, the secret of a job and the file of an admin. Each is
// refused with words, or written and read back as the same.

#include <cstdint>
#include <string>

#include "base/status.h"
#include "rpc/access_file.h"
#include "rpc/invitation.h"
#include "rpc/job_secret.h"

namespace trainctl::rpc {
namespace {

void CheckRefusal(const absl::Status& status) {
  TRAINCTL_CHECK(!status.message().empty());
  const ExitCode code = ExitCodeFor(status);
  TRAINCTL_CHECK(code == ExitCode::kUsage || code == ExitCode::kBadData);
}

void FuzzInvitation(const std::string& text) {
  const auto read = ReadInvitation(text);
  if (!read.ok()) return CheckRefusal(read.status());
  TRAINCTL_CHECK(!read->endpoints.empty());
  const std::string written = FormatInvitation(*read);
  TRAINCTL_CHECK(written.find('\n') == std::string::npos);
  TRAINCTL_CHECK(FormatInvitation(*ReadInvitation(written)) == written);
}

void FuzzJobSecret(const std::string& text) {
  const auto read = ParseJobSecret(text);
  if (!read.ok()) return CheckRefusal(read.status());
  const std::string written = FormatJobSecret(*read);
  TRAINCTL_CHECK(FormatJobSecret(*ParseJobSecret(written)) == written);
  TRAINCTL_CHECK(NodeKey(*read, "a") != NodeKey(*read, "b"));
}

void FuzzAdmin(const std::string& text) {
  const auto read = ParseAccess(text, "admin.json");
  if (!read.ok()) return CheckRefusal(read.status());
  TRAINCTL_CHECK(!read->endpoints.empty());
  const std::string written = FormatAccess(*read);
  TRAINCTL_CHECK(FormatAccess(*ParseAccess(written, "admin.json")) == written);
}

}  // namespace
}  // namespace trainctl::rpc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  const std::string text(reinterpret_cast<const char*>(data), size_bytes);
  trainctl::rpc::FuzzInvitation(text);
  trainctl::rpc::FuzzJobSecret(text);
  trainctl::rpc::FuzzAdmin(text);
  return 0;
}
