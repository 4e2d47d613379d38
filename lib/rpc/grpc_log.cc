#include "rpc/grpc_log.h"

#include <grpc/support/log.h>
#include <stdlib.h>

#include <set>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/logging.h"

namespace trainctl::rpc {
namespace {

// Who is told of handshakes that fail. Never destroyed: gRPC's threads may outlive main().
struct Watchers {
  std::mutex mutex;
  std::set<RefusalLog*> refusals;
};
Watchers& GetWatchers() {
  static Watchers& watchers = *new Watchers;
  return watchers;
}

// "Handshake failed with fatal error SSL_ERROR_SSL: error:1417C086:SSL routines:...:certificate verify
// failed."
void TellOfHandshake(absl::string_view message) {
  const absl::string_view reason = absl::StripSuffix(message.substr(message.rfind(':') + 1), ".");
  const bool is_certificate = absl::StrContains(reason, "certificate");
  const bool is_missing = absl::StrContains(reason, "did not return a certificate");
  const std::string what = absl::StrCat(
      "a connection from another machine was refused: ",
      is_missing       ? "it presented no certificate"
      : is_certificate ? "its certificate belongs to another job or is outside its validity period"
                       : "its TLS handshake failed",
      " (", absl::StripAsciiWhitespace(reason), ")");
  Watchers& watchers = GetWatchers();
  std::lock_guard lock(watchers.mutex);
  for (RefusalLog* const refusals : watchers.refusals) {
    refusals->Add(is_certificate ? RefusalLog::Kind::kCertificate : RefusalLog::Kind::kHandshake, what);
  }
}

void HearGrpc(gpr_log_func_args* args) {
  if (absl::StartsWith(args->message, "assertion failed")) {
    LogError(absl::StrCat("gRPC: ", args->file, ":", args->line, ": ", args->message));
  } else if (absl::StartsWith(args->message, "Handshake failed")) {
    TellOfHandshake(args->message);
  }
}

}  // namespace

void QuietGrpc() {
  static const bool is_quiet = [] {
    if (::getenv("GRPC_VERBOSITY") != nullptr) return false;
    gpr_set_log_function(HearGrpc);
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

HandshakeWatch::HandshakeWatch(RefusalLog* refusals) : refusals_(refusals) {
  std::lock_guard lock(GetWatchers().mutex);
  GetWatchers().refusals.insert(refusals_);
}

HandshakeWatch::~HandshakeWatch() {
  std::lock_guard lock(GetWatchers().mutex);
  GetWatchers().refusals.erase(refusals_);
}

}  // namespace trainctl::rpc
