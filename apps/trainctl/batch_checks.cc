#include "apps/trainctl/batch_checks.h"

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cluster/batch_job.h"

namespace trainctl::cli {

absl::Status CheckStartedOnce() {
  const std::optional<cluster::Copies> copies = cluster::FindCopies(std::getenv);
  if (!copies) return absl::OkStatus();
  return UsageError(absl::StrCat(
      copies->starter, " started this command ", copies->count, " times (", copies->variable, "=",
      copies->count, copies->rank.empty() ? "" : absl::StrCat("; this is copy ", copies->rank),
      "), and each copy would start all the workers. trainctl starts one worker per device itself, so run it "
      "only once, for example with 'srun --nodes=1 --ntasks=1 trainctl launch ...'"));
}

void NoteBatchJob() {
  const absl::StatusOr<std::optional<cluster::BatchJob>> job = cluster::FindBatchJob(std::getenv);
  if (!job.ok() || !job->has_value()) return;
  std::fprintf(stderr, "note: this run ends together with the script or shell of Slurm job %s\n",
               (*job)->id.c_str());
}

void NoteIdleNodes() {
  const absl::StatusOr<std::optional<cluster::BatchJob>> job = cluster::FindBatchJob(std::getenv);
  if (!job.ok()) {
    std::fprintf(stderr, "note: SLURM_JOB_NODELIST: %s\n", std::string(job.status().message()).c_str());
    return;
  }
  if (!job->has_value() || (*job)->nodes.size() < 2) return;
  const cluster::BatchJob& found = **job;
  std::fputs(absl::StrCat("note: Slurm job ", found.id, " has ", found.nodes.size(), " nodes (",
                          found.node_list, "), but launch.backend = \"local\" trains on only one",
                          found.this_node.empty() ? "" : ": " + found.this_node,
                          "; to use all of them, set launch.backend = \"slurm\" and cluster.nodes = ",
                          found.nodes.size(), "\n")
                 .c_str(),
             stderr);
}

}  // namespace trainctl::cli
