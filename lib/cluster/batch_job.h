// Reads the environment variables that a batch system sets for the processes it starts. Thread-safe if
// `environment` is.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainctl::cluster {

// The variable that Slurm sets in a job or step with GPUs.
inline constexpr char kGpusOnNodeVariable[] = "SLURM_GPUS_ON_NODE";

// A function that returns the value of a variable, or null if it is not set, for example std::getenv.
using Environment = std::function<const char*(const char* name)>;

struct BatchJob {
  std::string id;                  // "1234"
  std::string node_list;           // in Slurm's notation
  std::vector<std::string> nodes;  // the names in node_list
  std::string this_node;           // name of this node; "" if unknown
};
// Returns the Slurm job that this process belongs to, if any. Returns BadDataError if the job's node list
// cannot be parsed.
absl::StatusOr<std::optional<BatchJob>> FindBatchJob(const Environment& environment);

// Evidence that several copies of a command were started at once, as for an MPI program.
struct Copies {
  std::string starter;   // "srun"
  std::string variable;  // "SLURM_STEP_NUM_TASKS"
  int64_t count = 0;     // at least two
  std::string rank;      // rank of this copy; "" if unknown
};
std::optional<Copies> FindCopies(const Environment& environment);

}  // namespace trainctl::cluster
