#include "cluster/batch_job.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "base/status.h"
#include "cluster/hostlist.h"

namespace trainctl::cluster {
namespace {

struct Starter {
  const char* name;
  const char* mark;  // is set too; where others use the same variables
  const char* count;
  const char* rank;
};

// SLURM_NTASKS stands in a batch script too, which runs once; that of the step is of srun alone.
constexpr Starter kStarters[] = {
    {"srun", "SLURM_JOB_ID", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
    {"mpirun", nullptr, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
    {"mpiexec", nullptr, "PMI_SIZE", "PMI_RANK"},
    {"torchrun", "TORCHELASTIC_RUN_ID", "WORLD_SIZE", "RANK"},
};

std::string Text(const Environment& environment, const char* name) {
  const char* const value = environment(name);
  return value == nullptr ? "" : value;
}

}  // namespace

absl::StatusOr<std::optional<BatchJob>> FindBatchJob(const Environment& environment) {
  BatchJob job;
  job.id = Text(environment, "SLURM_JOB_ID");
  job.node_list = Text(environment, "SLURM_JOB_NODELIST");
  if (job.id.empty() || job.node_list.empty()) return std::nullopt;
  TRAINCTL_ASSIGN_OR_RETURN(job.nodes, ExpandHostlist(job.node_list));
  job.this_node = Text(environment, "SLURMD_NODENAME");
  return job;
}

std::optional<Copies> FindCopies(const Environment& environment) {
  for (const Starter& starter : kStarters) {
    if (starter.mark != nullptr && environment(starter.mark) == nullptr) continue;
    Copies copies{.starter = starter.name, .variable = starter.count};
    if (!absl::SimpleAtoi(Text(environment, starter.count), &copies.count) || copies.count < 2) continue;
    copies.rank = Text(environment, starter.rank);
    return copies;
  }
  return std::nullopt;
}

}  // namespace trainctl::cluster
