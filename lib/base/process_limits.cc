#include "base/process_limits.h"

#include <signal.h>
#include <sys/resource.h>

#include <cstdint>
#include <new>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/units.h"

namespace trainctl {

std::string LimitsText() {
  struct Limit {
    int resource;
    const char* option;
    bool is_bytes;
  };
  std::vector<std::string> limits;
  for (const Limit& limit :
       {Limit{RLIMIT_AS, "-v", true}, Limit{RLIMIT_DATA, "-d", true}, Limit{RLIMIT_FSIZE, "-f", true},
        Limit{RLIMIT_NPROC, "-u", false}, Limit{RLIMIT_NOFILE, "-n", false}}) {
    rlimit value;
    if (::getrlimit(static_cast<__rlimit_resource>(limit.resource), &value) != 0) continue;
    if (value.rlim_cur == RLIM_INFINITY) continue;
    const auto number = static_cast<int64_t>(value.rlim_cur);
    limits.push_back(absl::StrCat("ulimit ", limit.option, ": ",
                                  limit.is_bytes ? FormatBytes(number) : absl::StrCat(number)));
  }
  return limits.empty() ? "no limit is set here; see the control group" : absl::StrJoin(limits, ", ");
}

std::optional<absl::Status> RefusedResource(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return EnvironmentError(
        absl::StrCat("the system gives this process no more memory (", LimitsText(), ")"));
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

void ReportFileSizeLimit() { ::signal(SIGXFSZ, SIG_IGN); }

}  // namespace trainctl
