// Reports a run to Prometheus (metrics.prometheus) and to a program (launch.on_event), as its recipe asks.
// Not thread safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(RunMonitors monitors, RunMonitors::Open(recipe));  // holds the port
//   monitors.Watch(run, recipe, plan, job);
//   launcher::RunJob(job);
//   monitors.Finish(signals);
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/job.h"
#include "launcher/signal_pipe.h"
#include "monitor/event_hook.h"
#include "monitor/metrics_export.h"
#include "monitor/metrics_server.h"
#include "plan/plan.h"
#include "recipe/recipe.h"
#include "run/run_folder.h"

namespace trainctl::cli {

// Problems on this machine: UsageError for a program or a folder that does not exist, EnvironmentError for a
// port that is in use or a folder without write access. Releases the port.
std::vector<absl::Status> CheckMonitors(const recipe::Recipe& recipe);

class RunMonitors {
 public:
  // Opens everything that the recipe needs and holds the port, or returns the first error of CheckMonitors.
  static absl::StatusOr<RunMonitors> Open(const recipe::Recipe& recipe);

  // Starts to watch a job that is about to begin, and prints where its metrics are. `job` must not outlive
  // this object.
  absl::Status Watch(const run::RunFolder& run, const recipe::Recipe& recipe, const plan::Plan& plan,
                     launcher::JobOptions& job);
  // Call it after the job has ended. Waits until everything has been reported, but not beyond a time limit or
  // a signal, and prints the problems.
  void Finish(launcher::SignalPipe& signals);

 private:
  std::vector<std::string> hook_command_;  // the first item is the program's path
  std::unique_ptr<monitor::MetricsServer> server_;
  std::unique_ptr<monitor::EventHook> hook_;
  std::unique_ptr<monitor::MetricsExport> export_;
};

}  // namespace trainctl::cli
