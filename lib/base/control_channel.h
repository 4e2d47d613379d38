// A worker's line to its agent. lib/rpc implements it over gRPC; tests use their own. Thread safe;
// nothing here ever blocks the training step.
#pragma once

#include <cstdint>
#include <string>

namespace trainctl {

enum class DirectiveKind {
  kNone,
  kSave,  // once for each request, to rank 0 alone; counted, and never what Poll's `kind` is
  kStopAfterSave,
  kAbort,
};

struct Directive {
  DirectiveKind kind = DirectiveKind::kNone;
  std::string reason;       // for kAbort
  int64_t saves_asked = 0;  // how often a checkpoint was asked for, since this worker has joined
};

struct Progress {
  int64_t step = 0;         // at work on, counted from 1 as in logs and checkpoints; -1: none yet
  std::string phase;        // "startup", "gather", "forward", ...
  int64_t peak_bytes = -1;  // of this rank's tensors on its device, so far; -1: unknown
};

struct Failure {
  int rank = -1;
  int64_t step = -1;  // as in Progress
  std::string axis;   // mesh axis of the failing collective, or empty
  std::string message;
  bool peer_failed = false;  // true when this is the echo of another rank's death
};

class ControlChannel {
 public:
  virtual ~ControlChannel() = default;
  virtual Directive Poll() = 0;
  virtual void Report(const Progress& progress) = 0;  // may drop
  // The last word before the end of the process: the first one wins, and it may wait until it is heard.
  virtual void Fail(const Failure& failure) = 0;
};

}  // namespace trainctl
