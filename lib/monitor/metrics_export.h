// Keeps a run's Prometheus metrics up to date during a launch, on a port or in a file for node_exporter's
// textfile collector. Follows the run's logs on its own thread, so a slow disk, file, or scraper does not
// delay the run. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "launcher/job_watcher.h"
#include "monitor/metrics_server.h"
#include "monitor/run_metrics.h"

namespace trainctl::monitor {

class MetricsExport : public launcher::JobWatcher {
 public:
  struct Options {
    RunMetrics run;  // state before this launch
    std::string metrics_path, timings_path;
    // File to replace after each change. Empty for no file.
    std::string file;
    // Server that runs until destruction. May be null.
    std::unique_ptr<MetricsServer> server = nullptr;
    // Time between reads of the logs.
    absl::Duration interval = absl::Milliseconds(250);
  };
  explicit MetricsExport(Options options);
  // Like Finish, but does not wait.
  ~MetricsExport() override;

  void OnEvent(const run::JournalEvent& event) override;
  void OnProgress(const launcher::JobProgress& progress) override;
  std::vector<std::string> TakeMessages() override;

  // Reads the logs and writes the file one last time. Gives up after `patience`.
  void Finish(absl::Duration patience);

 private:
  // Shared with the thread, which may be blocked by a slow disk.
  struct Shared;
  std::shared_ptr<Shared> shared_;
  std::unique_ptr<MetricsServer> server_;
};

}  // namespace trainctl::monitor
