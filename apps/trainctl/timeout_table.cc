#include "apps/trainctl/timeout_table.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "apps/trainctl/text_table.h"
#include "cluster/kubernetes_job.h"
#include "cluster/slurm_job.h"
#include "launcher/agent_runner.h"
#include "recipe/timeouts.h"
#include "recipe/values.h"
#include "rendezvous/coordinator.h"
#include "rpc/agent_client.h"
#include "rpc/tls.h"

namespace trainctl::cli {
namespace {

struct Wait {
  absl::Duration time;
  const char* what;
  const char* field;  // that sets it, or from which it follows
};

constexpr char kDetect[] = "launch.detect_timeout";

// Of every launch.
std::vector<Wait> WaitsForWorkers(const recipe::LaunchConfig& launch) {
  const auto timeouts = rendezvous::Timeouts::FromDetect(launch.detect_timeout);
  const absl::Duration relay = launch.backend == "local" ? absl::ZeroDuration() : timeouts.RelayOfAgents();
  return {
      {timeouts.heartbeat_interval, "a worker gives a sign of life", kDetect},
      {timeouts.detect + relay, "a worker that gives none has failed", kDetect},
      {timeouts.join, "a worker that has not joined has failed", kDetect},
      {timeouts.ack, "a worker that does not confirm its rank has failed", kDetect},
      {timeouts.settle, "a failure is told, if no crash explains it", kDetect},
      {timeouts.echo, "a failure that others bring about is told, if theirs is not known", kDetect},
      {timeouts.stacks, "the stacks of a job that hangs are shown, or dropped", ""},
      {launch.stop_timeout, "a worker that was told to end is killed", "launch.stop_timeout"},
      {launch.collective_timeout, "a worker that the others wait for has failed",
       "launch.collective_timeout"},
      {launch.hang_timeout, "a worker that stands still has failed", "launch.hang_timeout"},
  };
}

// Of a launch on several.
std::vector<Wait> WaitsForMachines(const recipe::LaunchConfig& launch) {
  const auto timeouts = rendezvous::Timeouts::FromDetect(launch.detect_timeout);
  const bool has_pods = launch.backend == "kubernetes";
  std::vector<Wait> waits = {
      {timeouts.away, "a machine whose connection broke, and that made no other, is given up", kDetect},
      {timeouts.redial, "an agent that hears nothing opens another connection", kDetect},
      {timeouts.detect, "a machine that is silent is given up", kDetect},
      {timeouts.keeper, "an agent that stands still is ended with its workers", kDetect},
      {launch.coordinator_timeout, "a machine that does not hear the launcher ends its workers",
       "launch.coordinator_timeout"},
      {recipe::NodeTimeout(launch), "a machine that is not ready ends the launch", ""},
      {has_pods ? cluster::kPodTimeout : rpc::AgentClientOptions().timeout,
       "an agent that does not reach the launcher gives up", ""},
      {launcher::kSetupTimeout, "an agent that is not told its part gives up", ""},
      {rpc::kHandshakeTimeout, "a connection that has shown no certificate is closed", ""},
      {rpc::kPingInterval + rpc::kPingTimeout, "a connection whose other end is gone is closed", ""}};
  if (launch.backend == "slurm") {
    waits.push_back(
        {cluster::kSubmittedNodeTimeout, "a submitted job that waits for a lost machine is requeued", ""});
    waits.push_back(
        {launch.slurm.save_before, "a submitted job that was warned is over", "launch.slurm.save_before"});
  }
  return waits;
}

}  // namespace

void PrintTimeouts(const recipe::Recipe& recipe, bool color) {
  std::vector<Wait> waits = WaitsForWorkers(recipe.launch);
  if (recipe.launch.backend != "local") {
    const std::vector<Wait> more = WaitsForMachines(recipe.launch);
    waits.insert(waits.end(), more.begin(), more.end());
  }
  absl::c_stable_sort(waits, [](const Wait& a, const Wait& b) { return a.time < b.time; });
  TextTable table({"after", "what happens", "set by"}, {1, 2});
  for (const Wait& wait : waits)
    table.Add({absl::FormatDuration(absl::Trunc(wait.time, absl::Milliseconds(1))), wait.what, wait.field});
  table.Print(color);
}

std::string SumUpTimeouts(const recipe::LaunchConfig& launch) {
  return absl::StrCat("waits at most ", recipe::DurationText(launch.detect_timeout), " for a silent worker, ",
                      recipe::DurationText(launch.hang_timeout), " for one that stands still, ",
                      recipe::DurationText(launch.collective_timeout), " in a collective, ",
                      recipe::DurationText(launch.stop_timeout), " for a stop; --explain lists all");
}

}  // namespace trainctl::cli
