#include "base/lock_owner.h"

#include <unistd.h>

#include <array>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/files.h"

namespace trainctl {
namespace {

constexpr char kUnknown[] = "-";
constexpr size_t kMaxBytes = 1024;

// A word of the line.
std::string Word(absl::string_view text) {
  return text.empty() ? kUnknown : absl::StrReplaceAll(text, {{" ", "_"}, {"\n", "_"}, {"\t", "_"}});
}

}  // namespace

std::string HostName() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

LockOwner ThisProcessAsOwner() {
  LockOwner owner;
  owner.pid = ::getpid();
  owner.host = Word(HostName());
  const absl::StatusOr<std::string> boot_id = ReadFile("/proc/sys/kernel/random/boot_id", kMaxBytes);
  owner.boot_id = boot_id.ok() ? Word(absl::StripAsciiWhitespace(*boot_id)) : kUnknown;
  std::array<char, 64> space{};
  const ssize_t num_bytes = ::readlink("/proc/self/ns/pid", space.data(), space.size() - 1);
  owner.pid_namespace = num_bytes > 0 ? space.data() : kUnknown;
  owner.since = absl::Now();
  return owner;
}

std::string FormatLockOwner(const LockOwner& owner) {
  if (owner.host.empty()) return absl::StrCat(owner.pid, "\n");
  return absl::StrCat(owner.pid, " ", Word(owner.host), " ", Word(owner.boot_id), " ",
                      Word(owner.pid_namespace), " ",
                      absl::FormatTime(absl::RFC3339_sec, owner.since, absl::UTCTimeZone()), "\n");
}

LockOwner ParseLockOwner(absl::string_view text) {
  LockOwner owner;
  const std::vector<std::string> words = absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  if (words.empty() || !absl::SimpleAtoi(words[0], &owner.pid) || owner.pid < 0) return LockOwner();
  if (words.size() < 5) return owner;
  owner.host = words[1];
  owner.boot_id = words[2];
  owner.pid_namespace = words[3];
  absl::Time since;
  if (absl::ParseTime(absl::RFC3339_full, words[4], &since, nullptr)) owner.since = since;
  return owner;
}

LockOwner ReadLockOwner(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxBytes);
  return text.ok() ? ParseLockOwner(*text) : LockOwner();
}

bool HasSameKernel(const LockOwner& a, const LockOwner& b) {
  return a.boot_id == b.boot_id && (a.boot_id != kUnknown || a.host == b.host);
}

bool HasSurelyEnded(const LockOwner& owner, const LockOwner& self) {
  return owner.host.empty() || owner.host == self.host || HasSameKernel(owner, self);
}

}  // namespace trainctl
