// Runs a program for each event of a run (launch.on_event). The program receives the event on stdin, as the
// journal's line of JSON with the run's name, folder, and latest metrics added. Programs run one at a time on
// a separate thread, each with a time limit. If they are too slow, events are dropped and counted. A failure
// is reported but does not affect the run. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "launcher/job_watcher.h"
#include "run/journal.h"
#include "telemetry/log_follower.h"

namespace trainctl::monitor {

// Formats an event as a line of JSON without the trailing newline. The object has the journal's fields plus
// run and run_dir. A checkpoint also has its path, and a checkpoint or an end also has `logged`: the step,
// loss, eval, and tokens of the last logged step.
std::string EventLine(const run::JournalEvent& event, const std::string& run_name, const std::string& run_dir,
                      const telemetry::RunNumbers& numbers);

class EventHook : public launcher::JobWatcher {
 public:
  static constexpr size_t kMaxWaiting = 64;  // in events

  struct Options {
    std::vector<std::string> command;  // command line; the first item is a path
    std::string run_name, run_dir;
    std::string metrics_path, timings_path;
    // Time limit for each program. A program that exceeds it is killed along with its process group.
    absl::Duration patience = absl::Seconds(30);
  };
  explicit EventHook(Options options);
  // Drops the queued events without waiting for the running program.
  ~EventHook() override;

  void OnEvent(const run::JournalEvent& event) override;
  std::vector<std::string> TakeMessages() override;

  // Waits up to twice `patience` for the programs of all events so far. The queued events share that time,
  // and the last one, the end of the run, gets at least half of `patience`. Returns early if `is_interrupted`
  // returns true. TakeMessages then reports how many events were left out.
  void Finish(const std::function<bool()>& is_interrupted = nullptr);

 private:
  // Shared with the thread, which may be blocked by a slow disk.
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace trainctl::monitor
