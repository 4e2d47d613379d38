#include "apps/trainctl/timeout_table.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/time/time.h"
#include "apps/trainctl/text_table.h"
#include "cluster/kubernetes_job.h"
#include "rendezvous/coordinator.h"
#include "rendezvous/supervisor.h"

namespace trainctl::cli {
namespace {

struct Wait {
  absl::Duration time;
  const char* what;
  const char* field;  // that sets it, or from which it follows
};

std::vector<Wait> WaitsOf(const recipe::LaunchConfig& launch) {
  const auto timeouts = rendezvous::Timeouts::FromDetect(launch.detect_timeout);
  constexpr char kDetect[] = "launch.detect_timeout";
  std::vector<Wait> waits = {
      {timeouts.heartbeat_interval, "a worker gives a sign of life", kDetect},
      {timeouts.detect, "a worker that gives none has failed", kDetect},
      {timeouts.join, "a worker that has not joined has failed", kDetect},
      {timeouts.stacks, "the stacks of a job that hangs are shown, or dropped", ""},
      {launch.stop_timeout, "a worker that was told to end is killed", "launch.stop_timeout"},
      {launch.collective_timeout, "a worker that the others wait for has failed",
       "launch.collective_timeout"},
      {launch.hang_timeout, "a worker that stands still has failed", "launch.hang_timeout"},
  };
  if (launch.backend == "local") return waits;
  waits.insert(
      waits.end(),
      {{timeouts.away, "a machine whose connection broke, and that made no other, is given up", kDetect},
       {timeouts.detect, "a machine that is silent is given up", kDetect},
       {timeouts.keeper, "an agent that stands still is ended with its workers", kDetect},
       {launch.coordinator_timeout, "a machine that does not hear the launcher ends its workers",
        "launch.coordinator_timeout"},
       {launch.backend == "kubernetes" ? cluster::kPodTimeout : rendezvous::SupervisorOptions().node_timeout,
        "a machine that is not ready ends the launch", ""}});
  return waits;
}

}  // namespace

void PrintTimeouts(const recipe::Recipe& recipe, bool color) {
  std::vector<Wait> waits = WaitsOf(recipe.launch);
  absl::c_stable_sort(waits, [](const Wait& a, const Wait& b) { return a.time < b.time; });
  TextTable table({"after", "what happens", "set by"}, {1, 2});
  for (const Wait& wait : waits)
    table.Add({absl::FormatDuration(absl::Trunc(wait.time, absl::Milliseconds(1))), wait.what, wait.field});
  table.Print(color);
}

}  // namespace trainctl::cli
