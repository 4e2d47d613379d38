// Proves the gradient of a layout: on a small model that keeps what the layout needs, its processes on this
// machine's CPU against one process, in fp64 and in the precision of the run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "layout/layout.h"
#include "model/model_spec.h"
#include "schedule/build_step.h"
#include "verify/outcome.h"
#include "verify/shrink.h"

namespace trainctl::verify {

// Of a run that was planned. `setting`: its types, optimizer and prefetch.
struct Subject {
  model::ModelSpec spec;
  layout::Layout layout;
  schedule::StepSetting setting;
};

// A parameter whose gradient is wrong.
struct Finding {
  std::string parameter;
  double error = 0;
  double ratio = 1;               // of its projection on the right one
  std::string placement;          // "cut over tp (dimension 0), sharded over dp_shard"
  std::vector<std::string> axes;  // over which its gradient is summed
};

// A sum, gather or message that might as well not be there: the outcome is the same without it.
struct MissingExchange {
  std::string call;  // "gradient/3/dp_shard"
  std::string axis;
};

struct Report {
  SmallRun small;
  int num_ranks = 1;
  int64_t num_parameters = 0;  // tensors
  // In fp64: kernels, accumulators, sums and state.
  double loss_error = 0, grad_norm_error = 0, gradient_error = 0;  // relative; the last the worst parameter's
  std::string worst_parameter;
  std::string update_wrong;  // parameters and optimizer after three steps; "": right
  // In the precision of the run, against fp64: the worst parameter's error, and that of one process.
  DType precision = DType::kF32;
  double rounding_error = 0, rounding_error_alone = 0;
  std::string rounding_wrong;
  std::vector<Finding> findings;
  std::vector<MissingExchange> missing;  // looked for where something is wrong in fp64
  std::string wrong;                     // the first thing that is wrong, in words; "": nothing is
};

// Forks the ranks: before this process has used LibTorch. `fault`: for tests, "CALL=skip" or "CALL=double" of
// a collective. WorkerError: a rank failed.
absl::StatusOr<Report> Verify(const Subject& subject, const std::string& fault);

std::string ReportToJson(const Report& report);
std::string ReportToText(const Report& report);

}  // namespace trainctl::verify
