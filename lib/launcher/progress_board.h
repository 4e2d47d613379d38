// The last step of a worker and its signs of life, in memory that it shares with its agent: exact even when
// the worker is killed or hangs in the middle of it, and free to update. Lock-free; the step has one writer.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/control_channel.h"
#include "rendezvous/watchdog.h"

namespace trainctl::launcher {

class ProgressBoard {
 public:
  // The agent's side: a new, empty board, for the worker to inherit as fd().
  static absl::StatusOr<ProgressBoard> Create();
  // The worker's side. EnvironmentError when `fd` is not a board.
  static absl::StatusOr<ProgressBoard> Open(int fd);
  ProgressBoard(ProgressBoard&& other) noexcept;
  ProgressBoard& operator=(ProgressBoard&& other) noexcept;
  ~ProgressBoard();

  int fd() const { return fd_; }
  void Write(const Progress& progress);
  // The worker's signs of life go here from now on. The memory stays mapped as long as the process lives.
  void PublishLifeSigns();

  // Step -1 while nothing was written. The phase is empty if the writer died while writing it.
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
