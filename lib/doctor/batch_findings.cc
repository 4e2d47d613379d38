#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "cluster/batch_job.h"
#include "doctor/findings.h"

namespace trainctl::doctor {
namespace {

constexpr char kName[] = "batch job";

Finding Job(const cluster::BatchJob& job) {
  Finding finding{.name = kName, .value = absl::StrCat("Slurm's ", job.id, ", on ", job.node_list)};
  if (!job.this_node.empty() && job.nodes.size() > 1)
    absl::StrAppend(&finding.value, "; this node is ", job.this_node);
  if (job.nodes.size() > 1) {
    finding.health = Health::kNote;
    finding.advice = absl::StrCat(
        "launch.backend = \"local\" would leave ", job.nodes.size() - 1,
        " of them idle; to use all, set launch.backend = \"slurm\" and cluster.nodes = ", job.nodes.size());
  }
  return finding;
}

}  // namespace

void AddBatchFindings(const Sources& sources, Machine& machine) {
  const absl::StatusOr<std::optional<cluster::BatchJob>> job = cluster::FindBatchJob(sources.environment);
  if (!job.ok()) {
    machine.findings.push_back({.name = kName,
                                .value = "SLURM_JOB_NODELIST cannot be read",
                                .health = Health::kWarning,
                                .advice = std::string(job.status().message())});
  } else if (job->has_value()) {
    machine.findings.push_back(Job(**job));
  }
  if (const std::optional<cluster::Copies> copies = cluster::FindCopies(sources.environment)) {
    machine.findings.push_back(
        {.name = "copies",
         .value = absl::StrCat(copies->starter, " started this command ", copies->count, " times"),
         .health = Health::kWarning,
         .advice = "launch and resume start all workers themselves, so run them only once"});
  }
}

}  // namespace trainctl::doctor
