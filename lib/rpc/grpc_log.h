// Internal to lib/rpc: silences gRPC's own log lines on stderr, and logs refused callers.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace trainctl::rpc {

// Keeps gRPC's own log lines off the user's terminal. gRPC logs every failed handshake, so a port scan would
// flood the terminal, while errors of our own calls are returned as a status anyway. Failed gRPC assertions
// are still shown, and so is every line if the environment sets GRPC_VERBOSITY. Idempotent; thread-safe.
void QuietGrpc();

// Logs refused callers at a limited rate. The first refusal of a kind is logged as a warning; later ones are
// counted and summed up at most once per kInterval. Thread-safe.
class RefusalLog {
 public:
  static constexpr absl::Duration kInterval = absl::Minutes(10);
  enum class Kind {
    kConnection,  // connection over the limit
    kUser,        // process of another user on a Unix socket
    kCertificate,
    kHandshake,  // failed TLS handshake, for example because the peer does not speak TLS
    kEnrolment,
    kAgent,     // rejected agent
    kCall,      // call whose certificate does not allow it
    kToken,     // call without a known token
    kRole,      // call that the known caller's role does not allow
    kImpostor,  // worker that claims to be another one
    kLaunch,    // message from another job or term
  };

  explicit RefusalLog(const Clock& clock) : clock_(clock) {}
  // Logs the refusals that were counted but not yet logged.
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

// While it exists, counts this process's failed TLS handshakes as refusals. gRPC reports these failures only
// in its log. Setting GRPC_VERBOSITY in the environment therefore disables the count, and failures of this
// process's own clients are counted too. Requires QuietGrpc. Thread-safe.
class HandshakeWatch {
 public:
  // `refusals` must outlive it.
  explicit HandshakeWatch(RefusalLog* refusals);
  ~HandshakeWatch();
  HandshakeWatch(const HandshakeWatch&) = delete;
  HandshakeWatch& operator=(const HandshakeWatch&) = delete;

 private:
  RefusalLog* const refusals_;
};

}  // namespace trainctl::rpc
