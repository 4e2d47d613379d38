// Runs the launcher's disk operations in order on a separate thread, so that a slow or hanging disk does not
// delay signal handling or the supervision of workers. Thread-safe.
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
  // Throws std::system_error if the system refuses a thread or a descriptor.
  DiskQueue();
  // Drops queued operations. If the thread is stuck in an operation, abandons it; for this reason, an
  // operation must own everything it uses.
  ~DiskQueue();
  DiskQueue(const DiskQueue&) = delete;
  DiskQueue& operator=(const DiskQueue&) = delete;

  // Queues an operation. If it fails, TakeErrors returns the error.
  void Post(std::function<absl::Status()> work);
  // A descriptor for poll(2) that becomes readable when an operation has completed since the last TakeErrors.
  int fd() const;
  // Returns the errors of operations that have failed since the last call.
  std::vector<absl::Status> TakeErrors();
  // Waits until all queued operations have completed. Returns false if `patience` passes without one
  // completing.
  bool Wait(absl::Duration patience);

 private:
  struct Shared;  // state shared with the thread
  std::shared_ptr<Shared> shared_;
};

}  // namespace trainctl::launcher
