// What an optimizer is: the state that it keeps, what an update moves, which fields of a recipe it reads, and
// the update itself. Recipe, plan, checkpoints and the trainer read this one description. A file for each
// optimizer; its row in optimizer.cc makes it known. No LibTorch. Immutable; thread safe.
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
#include "kernels/kernels.h"

namespace trainctl::optim {

// Something that is kept of every element of every parameter.
struct StateKind {
  absl::string_view name;     // in checkpoints: optimizer.<name>/<parameter>
  absl::string_view meaning;  // in plans: "first moments"
  DType dtype = DType::kF32;

  // fp32 means the accumulators of a master.
  DType TypeFor(DType master) const { return dtype == DType::kF32 ? AccumulatorOf(master) : dtype; }
  std::string TensorPrefix() const;  // "optimizer.exp_avg/"
};
inline constexpr size_t kMaxStates = kernels::kMaxUpdateStates;

// What a recipe's fields are unless it states them.
struct Defaults {
  double lr = 0;
  double weight_decay = 0;
  double beta1 = 0, beta2 = 0;
  double eps = 0;
  double momentum = 0;
};

struct Optimizer {
  absl::string_view name;                      // optimizer.name in a recipe
  absl::string_view summary;                   // a sentence for the recipe's reference
  absl::Span<const StateKind> states;          // at most kMaxStates
  absl::Span<const absl::string_view> fields;  // "betas": of [optimizer], besides those that all of them read
  Defaults defaults;                           // of what it reads
  bool whole_matrix = false;                   // an update needs whole matrices: none may be cut
  kernels::UpdateRule rule;                    // of its kernel
  // Fills what depends on the number of the update, from 1. Null: nothing does.
  void (*prepare)(int64_t update_number, kernels::UpdateOptions& options) = nullptr;

  bool Reads(absl::string_view field) const;
  // Of one element of a parameter: state, and what an update reads and writes of state, master and gradient.
  int64_t StateBytes() const;
  int64_t MovedBytes(DType master) const;
};

extern const Optimizer kAdamW;  // the default
absl::Span<const Optimizer* const> All();
const Optimizer* Find(absl::string_view name);  // null: there is none
std::vector<std::string> Names();

// What lies of a bucket on one rank, or in a copy of it.
struct Parts {
  void* master = nullptr;                     // fp32 or bf16; fp64 as the state then is
  std::array<void*, kMaxStates> states = {};  // in the order of Optimizer::states
  void* copy = nullptr;                       // bf16 of the master, made by each update; null: none
};

// `count` elements from `first` on, as the kernels take them. `gradient` begins where `parts` do.
kernels::UpdateRange RangeOf(const Optimizer& optimizer, DType master, const Parts& parts,
                             const void* gradient, int64_t first, int64_t count);

}  // namespace trainctl::optim
