#include "rpc/grpc_log.h"

#include <grpc/support/log.h>
#include <stdlib.h>

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/logging.h"

namespace trainctl::rpc {
namespace {

void ShowAssertions(gpr_log_func_args* args) {
  if (absl::StartsWith(args->message, "assertion failed")) {
    LogError(absl::StrCat("gRPC: ", args->file, ":", args->line, ": ", args->message));
  }
}

}  // namespace

void QuietGrpc() {
  static const bool is_quiet = [] {
    if (::getenv("GRPC_VERBOSITY") != nullptr) return false;
    gpr_set_log_function(ShowAssertions);
    return true;
  }();
  (void)is_quiet;
}

RefusalLog::~RefusalLog() {
  int64_t untold = 0;
  for (const auto& [kind, count] : counts_) untold += count.num_untold;
  if (untold > 0) LogWarning(absl::StrCat(untold, " more calls and connections were refused"));
}

void RefusalLog::Add(Kind kind, absl::string_view what) {
  std::lock_guard lock(mutex_);
  Count& count = counts_[kind];
  const absl::Duration now = clock_.Monotonic();
  if (now < count.next) {
    ++count.num_untold;
    return;
  }
  count.next = now + kInterval;
  const int64_t untold = std::exchange(count.num_untold, 0);
  LogWarning(untold == 0 ? std::string(what) : absl::StrCat(what, " (and ", untold, " more before)"));
}

}  // namespace trainctl::rpc
