// A small model and batch that keep what a layout needs of them: every feature, what divides and what does
// not, and each axis of the mesh. Pure; thread safe.
#pragma once

#include "absl/status/statusor.h"
#include "layout/layout.h"
#include "model/model_spec.h"

namespace trainctl::verify {

// Ranks that a trial on one machine may have.
inline constexpr int64_t kMaxRanks = 16;

struct SmallRun {
  model::ModelSpec spec;
  layout::Layout layout;
  int64_t seq_len = 0;
};

// Of a layout that `spec` allows. An axis of more than one coordinate keeps two at least, and as many as it
// had where the ranks together are at most kMaxRanks. UsageError: the pipeline's order has no shape as small.
absl::StatusOr<SmallRun> Shrink(const model::ModelSpec& spec, const layout::Layout& layout, int64_t seq_len);

}  // namespace trainctl::verify
