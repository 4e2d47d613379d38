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
#include "rendezvous/coordinator.h"
#include "rpc/agent_client.h"
#include "rpc/tls.h"

namespace trainctl::cli {
namespace {

struct Wait {
  absl::Duration time;
  const char* what;
  const char* field;  // field that sets the time, or from which it is derived
};

constexpr char kDetect[] = "launch.detect_timeout";

// Formats a time, for example as "10 s", "1.5 s" or "10 min".
std::string WaitText(absl::Duration time) {
  const int64_t ms = absl::ToInt64Milliseconds(time);
  if (ms < 1000) return absl::StrCat(ms, " ms");
  if (ms % 3'600'000 == 0) return absl::StrCat(ms / 3'600'000, " h");
  if (ms % 60'000 == 0) return absl::StrCat(ms / 60'000, " min");
  return absl::StrCat(static_cast<double>(ms) / 1000, " s");
}

// Returns the waits of every launch.
std::vector<Wait> WaitsForWorkers(const recipe::LaunchConfig& launch) {
  const auto timeouts = rendezvous::Timeouts::FromDetect(launch.detect_timeout);
  const absl::Duration relay = launch.backend == "local" ? absl::ZeroDuration() : timeouts.RelayOfAgents();
  return {
      {timeouts.heartbeat_interval, "a worker sends a heartbeat", kDetect},
      {timeouts.detect + relay, "a silent worker is declared failed", kDetect},
      {timeouts.join, "a worker that has not joined is declared failed", kDetect},
      {timeouts.ack, "a worker that does not confirm its rank is declared failed", kDetect},
      {timeouts.settle, "a failure that no crash explains is reported", kDetect},
      {timeouts.echo, "a secondary failure without a known root cause is reported", kDetect},
      {timeouts.stacks, "the stack traces of a hung job are printed or dropped", ""},
      {launch.stop_timeout, "a worker that was asked to stop is killed", "launch.stop_timeout"},
      {launch.collective_timeout, "a worker that holds up the others is declared failed",
       "launch.collective_timeout"},
      {launch.hang_timeout, "a worker without progress is declared failed", "launch.hang_timeout"},
  };
}

// Returns the additional waits of a launch on several machines.
std::vector<Wait> WaitsForMachines(const recipe::LaunchConfig& launch) {
  const auto timeouts = rendezvous::Timeouts::FromDetect(launch.detect_timeout);
  const bool has_pods = launch.backend == "kubernetes";
  std::vector<Wait> waits = {
      {timeouts.away, "a machine that has not reconnected is given up", kDetect},
      {timeouts.redial, "an agent that receives nothing opens a new connection", kDetect},
      {timeouts.detect, "a silent machine is given up", kDetect},
      {timeouts.keeper, "a hung agent is killed together with its workers", kDetect},
      {launch.coordinator_timeout, "a machine that has lost the launcher stops its workers",
       "launch.coordinator_timeout"},
      {recipe::NodeTimeout(launch), "the launch fails if a machine is not ready", ""},
      {has_pods ? cluster::kPodTimeout : rpc::AgentClientOptions().timeout,
       "an agent that cannot reach the launcher gives up", ""},
      {launcher::kSetupTimeout, "an agent that receives no setup gives up", ""},
      {rpc::kHandshakeTimeout, "a connection without a certificate is closed", ""},
      {rpc::kPingInterval + rpc::kPingTimeout, "a broken connection is closed", ""}};
  if (launch.backend == "slurm") {
    waits.push_back({cluster::kSubmittedNodeTimeout,
                     "a submitted job that is waiting for a lost machine is requeued", ""});
    waits.push_back({launch.slurm.save_before, "a submitted job ends after its time-limit warning",
                     "launch.slurm.save_before"});
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
  for (const Wait& wait : waits) table.Add({WaitText(wait.time), wait.what, wait.field});
  table.Print(color);
}

std::string SumUpTimeouts(const recipe::LaunchConfig& launch) {
  return absl::StrCat("waits up to ", WaitText(launch.detect_timeout), " for a silent worker, ",
                      WaitText(launch.hang_timeout), " for a worker without progress, ",
                      WaitText(launch.collective_timeout), " in a collective, ",
                      WaitText(launch.stop_timeout), " for a stop; --explain lists all timeouts");
}

}  // namespace trainctl::cli
