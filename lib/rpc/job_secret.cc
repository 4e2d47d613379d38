#include "rpc/job_secret.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/json.h"
#include "base/secret_file.h"
#include "base/status.h"

namespace trainctl::rpc {
namespace {

constexpr char kJobSecretSchema[] = "trainctl.job-secret.v1";
constexpr size_t kKeyBytes = 32;
constexpr int64_t kMaxSecretBytes = 64 << 10;

// HMAC-SHA256, in hexadecimal. Parts hold no line end, so what they are is told by where they stand; the last
// one may.
std::string Mac(absl::string_view key, absl::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned num_bytes = 0;
  TRAINCTL_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                      reinterpret_cast<const unsigned char*>(text.data()), text.size(), bytes.data(),
                      &num_bytes) != nullptr);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(bytes.data()), num_bytes));
}

}  // namespace

absl::StatusOr<JobSecret> MakeJobSecret(absl::string_view name, const Clock& clock) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::unique_ptr<JobAuthority> authority, JobAuthority::Create(name, clock));
  JobSecret secret;
  TRAINCTL_ASSIGN_OR_RETURN(secret.authority, authority->Export());
  TRAINCTL_ASSIGN_OR_RETURN(secret.key, RandomHex(kKeyBytes));
  return secret;
}

std::string FormatJobSecret(const JobSecret& secret) {
  const Json json = {{"schema", kJobSecretSchema},
                     {"authority", secret.authority.ca_pem},
                     {"authority_key", secret.authority.key_pem},
                     {"key", secret.key}};
  return FormatJson(json);
}

absl::StatusOr<JobSecret> ParseJobSecret(const std::string& text) {
  const std::string where = "the job's secret";
  TRAINCTL_ASSIGN_OR_RETURN(const Json json, ParseJson(text, where));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string schema, JsonString(json, "schema", where));
  if (schema != kJobSecretSchema) {
    return UsageError(absl::StrCat(where, " is a ", schema, ", this launcher reads ", kJobSecretSchema));
  }
  JobSecret secret;
  TRAINCTL_ASSIGN_OR_RETURN(secret.authority.ca_pem, JsonString(json, "authority", where));
  secret.authority.cert_pem = secret.authority.ca_pem;
  TRAINCTL_ASSIGN_OR_RETURN(secret.authority.key_pem, JsonString(json, "authority_key", where));
  TRAINCTL_ASSIGN_OR_RETURN(secret.key, JsonString(json, "key", where));
  if (secret.key.size() != 2 * kKeyBytes) return UsageError(absl::StrCat(where, " holds no key"));
  return secret;
}

std::string NodeKey(const JobSecret& secret, absl::string_view node) {
  return Mac(secret.key, absl::StrCat("trainctl.node-key.v1\n", node));
}

std::string EnrolmentProof(absl::string_view node_key, absl::string_view node, absl::string_view nonce,
                           absl::string_view csr_pem) {
  return Mac(node_key, absl::StrCat("trainctl.enrolment.v1\n", node, "\n", nonce, "\n", csr_pem));
}

absl::StatusOr<std::string> ReadSecret(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return ErrnoError("read the job's secret", path, errno);
  if ((info.st_mode & (S_IRWXO | S_IWGRP)) != 0) {
    return EnvironmentError(absl::StrCat("the job's secret ", path,
                                         " can be read or changed by others; mount it with mode 0400"));
  }
  TRAINCTL_ASSIGN_OR_RETURN(std::string text, ReadFile(path, kMaxSecretBytes));
  if (text.empty()) return EnvironmentError(absl::StrCat("the job's secret ", path, " is empty"));
  return text;
}

}  // namespace trainctl::rpc
