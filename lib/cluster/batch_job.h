// What a batch system says of itself to the processes that it starts, by their environment.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainctl::cluster {

// The value of a variable; null: it has none. Such as std::getenv.
using Environment = std::function<const char*(const char* name)>;

struct BatchJob {
  std::string id;                  // "1234"
  std::string node_list;           // as Slurm writes it
  std::vector<std::string> nodes;  // the same, name by name
  std::string this_node;           // "" where it does not say
};
// The job of Slurm that this process belongs to, if any. BadDataError: its list of nodes cannot be read.
absl::StatusOr<std::optional<BatchJob>> FindBatchJob(const Environment& environment);

// That a command was started several times at once, as programs of MPI are.
struct Copies {
  std::string starter;   // "srun"
  std::string variable;  // "SLURM_STEP_NUM_TASKS"
  int64_t count = 0;     // two or more
  std::string rank;      // of this one; "" where it does not say
};
std::optional<Copies> FindCopies(const Environment& environment);

}  // namespace trainctl::cluster
