// Internal to lib/rpc: gRPC's own lines on stderr, and a log of refused callers.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace trainctl::rpc {

// Keeps gRPC's own lines from the user's terminal: it writes one for each handshake that fails, so a port
// scan would fill it. What we call it for comes back as a status. A failed assertion of gRPC is still shown,
// and all is where the environment sets GRPC_VERBOSITY. Idempotent; thread safe.
void QuietGrpc();

// Warns of the first refusal of a kind, then counts: at most one line per kInterval, however many come.
// Thread safe.
class RefusalLog {
 public:
  static constexpr absl::Duration kInterval = absl::Minutes(10);
  enum class Kind {
    kConnection,  // too many
    kUser,        // of a Unix socket's other end
    kCertificate,
    kHandshake,  // of what does not speak TLS, say
    kEnrolment,
    kAgent,     // one that is not wanted
    kCall,      // without a certificate that allows it
    kToken,     // without one that is known
    kRole,      // whose caller is known, and may not
    kImpostor,  // a worker that speaks as another
    kLaunch,    // of another job or term
  };

  explicit RefusalLog(const Clock& clock) : clock_(clock) {}
  // Tells what is left.
  ~RefusalLog();
  void Add(Kind kind, absl::string_view what);

 private:
  struct Count {
    absl::Duration next = -absl::InfiniteDuration();
    int64_t num_untold = 0;
  };

  const Clock& clock_;
  std::mutex mutex_;
  std::map<Kind, Count> counts_;
};

// While it lives, TLS handshakes that fail in this process are refusals. gRPC tells its log of them and
// nobody else: there are none where the environment sets GRPC_VERBOSITY, and one that fails at a client of
// this process counts, too. Needs QuietGrpc. Thread safe.
class HandshakeWatch {
 public:
  // `refusals` outlives it.
  explicit HandshakeWatch(RefusalLog* refusals);
  ~HandshakeWatch();
  HandshakeWatch(const HandshakeWatch&) = delete;
  HandshakeWatch& operator=(const HandshakeWatch&) = delete;

 private:
  RefusalLog* const refusals_;
};

}  // namespace trainctl::rpc
