// A worker's channel to its agent. lib/rpc implements it over gRPC, and tests use their own implementations.
// Thread-safe. Only Fail may block the training step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trainctl {

enum class DirectiveKind {
  kNone,
  // Sent once per request, and only to rank 0. Poll never returns this kind; it counts the request in
  // Directive::saves_asked.
  kSave,
  kStopAfterSave,
  kAbort,
};

struct Directive {
  DirectiveKind kind = DirectiveKind::kNone;
  std::string reason;       // reason for kAbort
  int64_t saves_asked = 0;  // number of checkpoints requested since this worker joined
};

struct Progress {
  // Current step, counted from 1 as in logs and checkpoints; -1 before the first step.
  int64_t step = 0;
  std::string phase;  // "startup", "gather", "forward", ...
  // Peak memory of this rank's tensors on its device so far; -1 if unknown.
  int64_t peak_bytes = -1;
};

struct Failure {
  int rank = -1;
  int64_t step = -1;  // same as in Progress
  std::string axis;   // mesh axis of the failing collective; may be empty
  std::string message;
  bool peer_failed = false;  // whether another rank's failure caused this one
  // The exit code with which the process is about to end; nullopt if unknown. The launcher decides on a
  // restart by this code even if the process is killed before it exits.
  std::optional<int> exit_code = {};
};

class ControlChannel {
 public:
  virtual ~ControlChannel() = default;
  virtual Directive Poll() = 0;
  virtual void Report(const Progress& progress) = 0;  // may drop reports
  // Sends the last message before the process exits. Only the first call has an effect. May block until the
  // message has been received.
  virtual void Fail(const Failure& failure) = 0;
};

}  // namespace trainctl
