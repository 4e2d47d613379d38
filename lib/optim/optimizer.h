// Describes the optimizers: the state that each keeps, the memory traffic of an update, the recipe fields
// that it reads, and its update rule. The recipe, plan, checkpoints and trainer all use this description.
// Does not use LibTorch. Immutable; thread-safe.
//
// To add an optimizer, describe it in its own file and add it to the list in optimizer.cc.
//
//   const optim::Optimizer* optimizer = optim::Find("lion");
//   for (const optim::StateKind& state : optimizer->states) Allocate(numel * DTypeBytes(state.dtype));
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "kernels/update.h"

namespace trainctl::optim {

// A state with one element for each element of every parameter.
struct StateKind {
  absl::string_view name;     // used in checkpoints: optimizer.<name>/<parameter>
  absl::string_view meaning;  // used in plans: for example, "first moments"
  DType dtype = DType::kF32;

  // Returns the state's element type for this type of master weights. kF32 means the accumulator type, which
  // is fp64 for fp64 master weights.
  DType TypeFor(DType master) const { return dtype == DType::kF32 ? AccumulatorOf(master) : dtype; }
  std::string TensorPrefix() const;  // "optimizer.exp_avg/"
};
inline constexpr size_t kMaxStates = kernels::kMaxUpdateStates;

// Default values of the recipe's optimizer fields.
struct Defaults {
  double lr = 0;
  double weight_decay = 0;
  double beta1 = 0, beta2 = 0;
  double eps = 0;
  double momentum = 0;
};

struct Optimizer {
  absl::string_view name;                      // optimizer.name in a recipe
  absl::string_view summary;                   // description for the recipe reference
  absl::Span<const StateKind> states;          // at most kMaxStates
  absl::Span<const absl::string_view> fields;  // fields of [optimizer] that only some read: "betas"
  Defaults defaults;                           // for the fields that it reads
  bool whole_matrix = false;                   // whether an update needs matrices that are not sharded
  kernels::UpdateRule rule;                    // update rule of the kernel
  // Sets the options that depend on the number of the update, which counts from 1. Null if there are none.
  void (*prepare)(int64_t update_number, kernels::UpdateOptions& options) = nullptr;

  // Returns whether `fields` contains `field`.
  bool Reads(absl::string_view field) const;
  // Returns the bytes of state per parameter element.
  int64_t StateBytes() const;
  // Returns the bytes that an update reads and writes per parameter element: state, master and fp32 gradient.
  // Excludes Parts::copy.
  int64_t MovedBytes(DType master) const;
};

extern const Optimizer kAdamW;  // the default
absl::Span<const Optimizer* const> All();
const Optimizer* Find(absl::string_view name);  // returns null if there is no such optimizer
std::vector<std::string> Names();

// Pointers to one rank's part of a bucket, or to a copy of that part.
struct Parts {
  void* master = nullptr;                     // fp32, bf16, or fp64 (then the states are fp64 too)
  std::array<void*, kMaxStates> states = {};  // in the order of Optimizer::states
  void* copy = nullptr;                       // bf16 copy of the master, written by each update; may be null
};

// Returns the kernel's argument for the elements [first, first + count) of `parts`. `gradient` points to the
// gradient of element 0 of `parts`. Does not set `number` and `decays`.
kernels::UpdateRange RangeOf(const Optimizer& optimizer, DType master, const Parts& parts,
                             const void* gradient, int64_t first, int64_t count);

}  // namespace trainctl::optim
