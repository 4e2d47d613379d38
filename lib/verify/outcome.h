// What a layout yields, gathered from all ranks into memory that their processes share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/dtype_id.h"
#include "model/model_spec.h"

namespace trainctl::verify {

// Of one rank: a sum left out may be right on the rank that had everything.
struct RankOutcome {
  double loss = 0;       // of the first step
  double grad_norm = 0;  // likewise
  double last_loss = 0;  // of the last
  double eval_loss = 0;  // after the first step; summed over loss tokens
  double eval_tokens = 0;
  int64_t measured_peak = 0;  // bytes
  int64_t predicted_peak = 0;
};

// Elements of all parameters, one parameter after another in the order of the inventory, whatever they were
// computed in.
class Outcome {
 public:
  // Made before the processes that share it; lives until they and this one have ended.
  Outcome(int max_ranks, int64_t numel);
  ~Outcome();
  Outcome(const Outcome&) = delete;
  Outcome& operator=(const Outcome&) = delete;

  RankOutcome& rank(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  const RankOutcome& rank(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  double* gradients() { return numbers_; }  // of the first step
  const double* gradients() const { return numbers_; }
  double* parameters() { return numbers_ + numel_; }  // masters, after the last step
  const double* parameters() const { return numbers_ + numel_; }
  double* state() { return numbers_ + 2 * numel_; }  // the optimizer's first, likewise
  const double* state() const { return numbers_ + 2 * numel_; }

 private:
  int64_t numel_;
  size_t bytes_;
  RankOutcome* ranks_;
  double* numbers_;
};

// How far from what one process yields. The norm-wise error of a gradient is relative to its own norm, or to
// `floor` of that of all gradients where it has hardly one.
struct Tolerances {
  double loss = 1e-6;
  double grad_norm = 1e-5;
  double gradient = 1e-5;
  double floor = 1e-3;

  // Of fp64, where what is not rounding stands out by orders of magnitude.
  static constexpr Tolerances OfDouble() { return {.loss = 1e-13, .grad_norm = 1e-12, .gradient = 1e-11}; }
};

struct ParameterError {
  int parameter = 0;  // inventory index
  double error = 0;   // of its gradient
  double ratio = 1;   // its projection on the reference: 2 where it was summed twice
};
struct Comparison {
  std::string wrong;                           // the first difference beyond tolerance, in words; "": none
  double loss_error = 0, grad_norm_error = 0;  // the worst rank's
  std::vector<ParameterError> parameters;
  double gradient_error = 0;  // of all gradients as one vector
  double WorstGradient() const;
};
Comparison Compare(const Outcome& outcome, const Outcome& reference, int world_size,
                   absl::Span<const model::Parameter> inventory, const Tolerances& tolerances = {});

// In a precision in which layouts round elsewhere, `precision`: the error of a layout beside that of one
// process, both against the same reference in a higher one. Of all gradients together it may be 1.5 times as
// large; of a parameter alone, which may be a few dozen numbers, twice, with a floor. (Tensor parallelism
// rounds each rank's part of a product before their sum.) "" or what is wrong.
std::string CompareRounding(DType precision, const Comparison& layout, const Comparison& one_process,
                            absl::Span<const model::Parameter> inventory);

// Likewise of an update: the parameters' way from `initial` (an outcome without update), and the state that
// it left. "" or what is wrong. Steps of Lion, and the first of AdamW, follow a gradient's sign; where a
// gradient is little more than rounding, so is its sign.
std::string CompareUpdate(const Outcome& outcome, const Outcome& reference, const Outcome& initial,
                          absl::Span<const model::Parameter> inventory, const Tolerances& tolerances = {});

}  // namespace trainctl::verify
