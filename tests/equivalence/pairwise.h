// Cells of the equivalence matrix in which every pair of choices appears: a mesh's degrees, ZeRO's stage,
// parts of the sequence, orders, virtual stages, cuts, accumulation, recompute, packing, model, precision,
// prefetch. Faults of one choice with another show in some cell; all combinations would be millions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout/layout.h"
#include "model/architecture.h"
#include "tests/equivalence/small_model.h"

namespace trainctl::equivalence {

struct PairCell {
  layout::Layout layout;
  bool is_packed = false;  // two documents a sequence
  Variant variant = Variant::kLlama;
  bool is_bf16 = false;
  bool has_prefetch = false;
  std::string ToString() const;
};

struct PairCells {
  std::vector<PairCell> cells;
  int num_pairs = 0;  // that they cover: all that any layout has
  int num_choices = 0;
};

// On `workers` workers, with `sequences` a step. Pure.
PairCells CoverPairs(const model::Architecture& spec, int workers, int64_t sequences);

// Runs them, and prints one line for each failure and a closing count. Returns the process's exit code.
int RunPairwise(int workers);

}  // namespace trainctl::equivalence
