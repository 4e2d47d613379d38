// The results of a layout, gathered from all ranks in memory that their processes share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/dtype_id.h"
#include "model/parameters.h"

namespace trainctl::verify {

// The results of one rank. They are kept per rank because, if a sum is missing, the result may still be right
// on a rank that holds all of its parts.
struct RankOutcome {
  double loss = 0;       // first step
  double grad_norm = 0;  // first step
  double last_loss = 0;  // last step
  double eval_loss = 0;  // after the first step; summed over loss tokens
  double eval_tokens = 0;
  int64_t measured_peak = 0;  // bytes
  int64_t predicted_peak = 0;
};

// The results of all ranks and, for all parameters in inventory order, their gradients, masters and state.
// The elements are doubles whatever the type of the computation.
class Outcome {
 public:
  // Creates the shared memory. Construct this before the processes that share it are forked; it must outlive
  // them.
  Outcome(int max_ranks, int64_t numel);
  ~Outcome();
  Outcome(const Outcome&) = delete;
  Outcome& operator=(const Outcome&) = delete;

  RankOutcome& rank(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  const RankOutcome& rank(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  double* gradients() { return numbers_; }  // after the first step
  const double* gradients() const { return numbers_; }
  double* parameters() { return numbers_ + numel_; }  // master weights after the last step
  const double* parameters() const { return numbers_ + numel_; }
  double* state() { return numbers_ + 2 * numel_; }  // first optimizer state after the last step
  const double* state() const { return numbers_ + 2 * numel_; }

 private:
  int64_t numel_;
  size_t bytes_;
  RankOutcome* ranks_;
  double* numbers_;
};

// The allowed difference from the results of one process. The norm-wise error of a gradient is relative to
// its own norm or, if that is very small, to `floor` times the norm of all gradients.
struct Tolerances {
  double loss = 1e-6;
  double grad_norm = 1e-5;
  double gradient = 1e-5;
  double floor = 1e-3;

  // For fp64, in which errors other than rounding stand out by orders of magnitude.
  static constexpr Tolerances OfDouble() { return {.loss = 1e-13, .grad_norm = 1e-12, .gradient = 1e-11}; }
};

struct ParameterError {
  int parameter = 0;  // inventory index
  double error = 0;   // error of its gradient
  double ratio = 1;   // projection of the gradient on the reference; 2 if it was summed twice
};
struct Comparison {
  std::string wrong;  // description of the first difference beyond tolerance; "" if there is none
  double loss_error = 0, grad_norm_error = 0;  // the largest of any rank
  std::vector<ParameterError> parameters;
  double gradient_error = 0;  // error of all gradients as one vector
  double WorstGradient() const;
};
Comparison Compare(const Outcome& outcome, const Outcome& reference, int world_size,
                   absl::Span<const model::Parameter> inventory, const Tolerances& tolerances = {});

// Checks rounding in `precision`, in which layouts round differently. Compares the error of a layout with
// that of one process, both relative to the same reference in a higher precision. The error of all gradients
// together may be 1.5 times as large. That of a single parameter with n elements may be 2 (1 + 3 / sqrt(n))
// times as large, because the errors of few elements also differ by chance. Errors below a floor pass.
// (Tensor parallelism rounds each rank's part of a product before their sum.) Returns "" or a description of
// the error.
std::string CompareRounding(DType precision, const Comparison& layout, const Comparison& one_process,
                            absl::Span<const model::Parameter> inventory);

// Checks an update: the change of the parameters since `initial` (an outcome without an update), and the
// optimizer state. Both errors are norm-wise, with the limit tolerances.gradient. Ignores the change of
// parameters whose gradient is little more than rounding. Steps of Lion, and the first of AdamW, follow the
// gradient's sign, which is then rounding too. Returns "" or a description of the error.
std::string CompareUpdate(const Outcome& outcome, const Outcome& reference, const Outcome& initial,
                          absl::Span<const model::Parameter> inventory, const Tolerances& tolerances = {});

}  // namespace trainctl::verify
