#include "base/process_limits.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <latch>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/units.h"

namespace trainctl {
namespace {

std::optional<int64_t> LimitOf(__rlimit_resource resource) {
  rlimit limit;
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return static_cast<int64_t>(limit.rlim_cur);
}

absl::Status CheckAtLeast(__rlimit_resource resource, const char* option, int64_t least,
                          absl::string_view user, absl::string_view what) {
  const std::optional<int64_t> limit = LimitOf(resource);
  if (!limit.has_value() || *limit >= least) return absl::OkStatus();
  return EnvironmentError(absl::StrCat("ulimit ", option, ": ", FormatBytes(*limit), "; ", user,
                                       " needs more than ", FormatBytes(least), " of ", what,
                                       ". Raise the limit: ulimit ", option, " unlimited"));
}

absl::Status CheckStack(absl::string_view user) {
  return CheckAtLeast(RLIMIT_STACK, "-s", kLeastStackBytes, user, "stack");
}

absl::Status TryFiles(int64_t count, absl::string_view user) {
  std::vector<int> files;
  int error_number = 0;
  while (error_number == 0 && static_cast<int64_t>(files.size()) < count) {
    const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0) error_number = errno;
    if (fd >= 0) files.push_back(fd);
  }
  for (const int fd : files) ::close(fd);
  if (error_number != EMFILE && error_number != ENFILE) return absl::OkStatus();
  return EnvironmentError(
      absl::StrCat(user, " needs ", count, " more open files, but the system allows only ", files.size(),
                   " (", std::strerror(error_number), "; ", LimitsText(),
                   error_number == EMFILE ? "). Raise the limit: ulimit -n 4096" : "). Raise fs.file-max"));
}

absl::Status TryMemory(int64_t bytes, absl::string_view user) {
  if (bytes == 0) return absl::OkStatus();
  void* const memory =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NoMemoryError(bytes, absl::StrCat("for ", user));
  ::munmap(memory, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

absl::Status TryThreads(int64_t count, absl::string_view user) {
  std::vector<std::thread> threads;
  std::latch done(1);
  std::string why;
  try {
    threads.reserve(static_cast<size_t>(count));
    while (static_cast<int64_t>(threads.size()) < count) threads.emplace_back([&done] { done.wait(); });
  } catch (const std::exception& error) {  // a thread, or the memory for it
    why = error.what();
  }
  const size_t num_started = threads.size();
  done.count_down();
  for (std::thread& thread : threads) thread.join();
  if (why.empty()) return absl::OkStatus();
  const std::optional<int64_t> stack_bytes = LimitOf(RLIMIT_STACK);
  return EnvironmentError(absl::StrCat(
      user, " needs ", count, " more threads",
      stack_bytes.has_value() ? absl::StrCat(" with stacks of ", FormatBytes(*stack_bytes), " (ulimit -s)")
                              : "",
      ", but the system allows only ", num_started, " (", why, "; ", LimitsText(),
      "). Raise the limit that is too low (-u counts threads; -d and -v count their stacks)"));
}

}  // namespace

std::string LimitsText() {
  struct Limit {
    __rlimit_resource resource;
    const char* option;
    bool is_bytes;
  };
  std::vector<std::string> limits;
  for (const Limit& limit :
       {Limit{RLIMIT_AS, "-v", true}, Limit{RLIMIT_DATA, "-d", true}, Limit{RLIMIT_FSIZE, "-f", true},
        Limit{RLIMIT_NPROC, "-u", false}, Limit{RLIMIT_NOFILE, "-n", false}}) {
    const std::optional<int64_t> number = LimitOf(limit.resource);
    if (!number.has_value()) continue;
    limits.push_back(absl::StrCat("ulimit ", limit.option, ": ",
                                  limit.is_bytes ? FormatBytes(*number) : absl::StrCat(*number)));
  }
  return limits.empty() ? "no limit is set here; see the control group" : absl::StrJoin(limits, ", ");
}

std::optional<absl::Status> RefusedResource(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return EnvironmentError(
        absl::StrCat("the system gives this process no more memory (", LimitsText(), ")"));
  if (dynamic_cast<const std::filesystem::filesystem_error*>(&error) != nullptr) {
    return EnvironmentError(error.what());
  }
  if (dynamic_cast<const std::system_error*>(&error) != nullptr) {
    return EnvironmentError(
        absl::StrCat("the system refuses this process a resource: ", error.what(), " (", LimitsText(), ")"));
  }
  return std::nullopt;
}

absl::Status NoMemoryError(int64_t bytes, absl::string_view purpose) {
  return EnvironmentError(absl::StrCat("the system gives this process no ", FormatBytes(bytes), " ", purpose,
                                       " (", LimitsText(), ")"));
}

absl::Status CheckWorkerLimits() {
  TRAINCTL_RETURN_IF_ERROR(CheckAtLeast(RLIMIT_AS, "-v", kLeastAddressBytes, "each worker",
                                        "address space, mostly for LibTorch and its threads"));
  TRAINCTL_RETURN_IF_ERROR(CheckAtLeast(RLIMIT_DATA, "-d", kLeastDataBytes, "each worker",
                                        "data segment, mostly for the stacks of LibTorch's threads"));
  return CheckStack("each worker");
}

absl::Status TryResources(const ResourceNeeds& needs, absl::string_view user) {
  TRAINCTL_RETURN_IF_ERROR(CheckStack(user));
  TRAINCTL_RETURN_IF_ERROR(TryFiles(needs.num_files, user));
  TRAINCTL_RETURN_IF_ERROR(TryMemory(needs.bytes, user));
  return TryThreads(needs.num_threads, user);
}

void ReportFileSizeLimit() { ::signal(SIGXFSZ, SIG_IGN); }

}  // namespace trainctl
