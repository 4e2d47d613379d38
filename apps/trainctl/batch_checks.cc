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
      copies->count, copies->rank.empty() ? "" : absl::StrCat("; this is number ", copies->rank),
      "), and each would start all workers. trainctl starts one worker for each device itself: start it "
      "once, such as with 'srun --nodes=1 --ntasks=1 trainctl launch ...'"));
}

void NoteBatchJob() {
  const absl::StatusOr<std::optional<cluster::BatchJob>> job = cluster::FindBatchJob(std::getenv);
  if (!job.ok() || !job->has_value()) return;
  std::fprintf(stderr, "note: Slurm ends the run with job %s, when its script or shell ends\n",
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
  std::fputs(absl::StrCat("note: job ", found.id, " of Slurm has ", found.nodes.size(), " nodes (",
                          found.node_list, "), and launch.backend = \"local\" trains on one",
                          found.this_node.empty() ? "" : ": " + found.this_node,
                          "; launch.backend = \"slurm\" with cluster.nodes = ", found.nodes.size(),
                          " takes all of them\n")
                 .c_str(),
             stderr);
}

}  // namespace trainctl::cli
