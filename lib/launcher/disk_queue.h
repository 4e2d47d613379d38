// What the launcher writes to disks and looks up there, in order, on a thread of its own: a disk that is slow
// or stands still holds up neither signals nor the supervision of workers. Thread safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace trainctl::launcher {

class DiskQueue {
 public:
  DiskQueue();
  // Leaves the thread to what it is stuck in, which must own all that it uses; what waits is dropped.
  ~DiskQueue();
  DiskQueue(const DiskQueue&) = delete;
  DiskQueue& operator=(const DiskQueue&) = delete;

  // What fails comes with TakeErrors.
  void Post(std::function<absl::Status()> work);
  // Readable when something was done since the last TakeErrors: for poll(2).
  int fd() const;
  std::vector<absl::Status> TakeErrors();
  // Until all is done that was posted. False when nothing at all gets done for `patience`.
  bool Wait(absl::Duration patience);

 private:
  struct Shared;  // with the thread
  std::shared_ptr<Shared> shared_;
};

}  // namespace trainctl::launcher
