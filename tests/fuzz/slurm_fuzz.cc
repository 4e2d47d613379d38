// Fuzzes what sbatch, scontrol and ssh print, which plugins and configurations add to: a job's number is
// digits, a state has a name, and a host is one word of the output.

#include <cstdint>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/status.h"
#include "cluster/slurm_job.h"
#include "launcher/agent_starter.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  using namespace trainctl;
  const absl::string_view text(reinterpret_cast<const char*>(data), size_bytes);
  const auto number = cluster::ParseSubmitted(text);
  if (number.ok()) {
    TRAINCTL_CHECK(!number->empty());
    TRAINCTL_CHECK(absl::c_all_of(*number, [](char c) { return c >= '0' && c <= '9'; }));
  } else {
    TRAINCTL_CHECK(ExitCodeFor(number.status()) == ExitCode::kEnvironment);
  }
  const auto job = cluster::ParseJobState(text);
  if (job) {
    TRAINCTL_CHECK(!job->state.empty() && absl::StrContains(text, "JobState=" + job->state));
    TRAINCTL_CHECK(job->reason.empty() || absl::StrContains(text, "Reason=" + job->reason));
    TRAINCTL_CHECK(!job->IsWaiting() || job->WillLaunch());
    TRAINCTL_CHECK(!job->WillLaunch() || job->IsAlive());
  }
  for (const auto& [node, address] : cluster::ParseNodeAddresses(text)) {
    TRAINCTL_CHECK(!node.empty() && absl::StrContains(text, "NodeName=" + node));
    TRAINCTL_CHECK(!address.empty() && absl::StrContains(text, "NodeAddr=" + address));
  }
  (void)cluster::IsWarning(text);
  TRAINCTL_CHECK(absl::StrContains(text, launcher::ParseSshHostName(text)));
  return 0;
}
