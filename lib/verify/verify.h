// Checks the gradients of a layout. Runs its processes on this machine's CPU, with a small model that keeps
// everything on which the layout depends. Compares them with one process, in fp64 and in the precision of the
// run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "layout/layout.h"
#include "model/architecture.h"
#include "schedule/build_step.h"
#include "verify/outcome.h"
#include "verify/shrink.h"

namespace trainctl::verify {

// The planned run to verify. `setting` has its types, optimizer and prefetch.
struct Subject {
  model::Architecture spec;
  layout::Layout layout;
  schedule::StepSetting setting;
};

// A parameter whose gradient is wrong.
struct Finding {
  std::string parameter;
  double error = 0;
  double ratio = 1;               // projection of the gradient on the correct one; 2 if it was summed twice
  std::string placement;          // "split across tp (dimension 0), sharded across dp_shard"
  std::vector<std::string> axes;  // axes over which its gradient is summed
};

// A sum, gather or message that seems to be missing: the outcome is the same without it.
struct MissingExchange {
  std::string call;  // "gradient/3/dp_shard"
  std::string axis;
};

struct Report {
  SmallRun small;
  int num_ranks = 1;
  int64_t num_parameters = 0;  // number of tensors
  // Results in fp64: kernels, accumulators, sums and state.
  // Relative errors; gradient_error is that of the worst parameter.
  double loss_error = 0, grad_norm_error = 0, gradient_error = 0;
  std::string worst_parameter;
  // The error in parameters and optimizer after three steps; "" if they are right.
  std::string update_wrong;
  // Results in the precision of the run, compared with fp64: the worst parameter's error, and that of one
  // process.
  DType precision = DType::kF32;
  double rounding_error = 0, rounding_error_alone = 0;
  std::string rounding_wrong;
  std::vector<Finding> findings;
  std::vector<MissingExchange> missing;  // searched for if something is wrong in fp64
  std::string wrong;                     // description of the first error; "" if there is none
};

// Runs the check. Forks the ranks, so this process must not have used LibTorch yet. `fault` is for tests:
// "CALL=skip" or "CALL=double" for a collective; empty for none. Returns WorkerError if a rank failed.
absl::StatusOr<Report> Verify(const Subject& subject, const std::string& fault);

std::string ReportToJson(const Report& report);
std::string ReportToText(const Report& report);

}  // namespace trainctl::verify
