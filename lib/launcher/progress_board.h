// A worker's latest step and life signs, in memory shared with its agent. The values remain readable if the
// worker is killed or hangs during a step, and updating them costs next to nothing. Lock-free; only one
// thread may write the step.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/control_channel.h"
#include "rendezvous/watchdog.h"

namespace trainctl::launcher {

class ProgressBoard {
 public:
  // Creates an empty board in the agent; the worker inherits it as fd().
  static absl::StatusOr<ProgressBoard> Create();
  // Opens the board in the worker. Returns EnvironmentError if `fd` is not a board.
  static absl::StatusOr<ProgressBoard> Open(int fd);
  ProgressBoard(ProgressBoard&& other) noexcept;
  ProgressBoard& operator=(ProgressBoard&& other) noexcept;
  ~ProgressBoard();

  int fd() const { return fd_; }
  void Write(const Progress& progress);
  // Publishes the worker's life signs on this board from now on. The memory remains mapped for the life of
  // the process.
  void PublishLifeSigns();

  // Reads the worker's progress. The step is -1 before the first Write, and the phase is empty if the writer
  // died while writing it.
  Progress Read() const;
  rendezvous::Standing ReadStanding() const;

 private:
  struct Page;
  ProgressBoard() = default;
  static absl::StatusOr<ProgressBoard> Map(int fd);
  int fd_ = -1;
  Page* page_ = nullptr;
  bool is_published_ = false;
};

}  // namespace trainctl::launcher
