// Receives a job's journal events and its ranks' progress as they happen. Unlike a JobObserver (console.h),
// which may fall behind on a slow terminal, a watcher never misses an event and never blocks.
#pragma once

#include <string>
#include <vector>

#include "launcher/console.h"
#include "run/journal.h"

namespace trainctl::launcher {

// All methods are called from RunJob's thread and must return immediately.
class JobWatcher {
 public:
  virtual ~JobWatcher() = default;
  // Handles an event, whose time has been set. The event may not be in the journal yet, and writing it may
  // still fail (full disk).
  virtual void OnEvent(const run::JournalEvent& event) = 0;
  virtual void OnProgress(const JobProgress& progress) {}
  // Returns the messages for the user since the last call. The job prints them.
  virtual std::vector<std::string> TakeMessages() { return {}; }
};

}  // namespace trainctl::launcher
