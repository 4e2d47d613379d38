// Derives a small model and batch that keep everything on which a layout depends: every feature, which sizes
// are divisible, and each axis of the mesh. Pure; thread safe.
#pragma once

#include "absl/status/statusor.h"
#include "layout/layout.h"
#include "model/architecture.h"

namespace trainctl::verify {

// The number of ranks to which a trial on one machine is reduced.
inline constexpr int64_t kMaxRanks = 16;

struct SmallRun {
  model::Architecture spec;
  layout::Layout layout;
  int64_t seq_len = 0;
};

// Shrinks a layout that is valid for `spec`. An axis with more than one coordinate keeps at least two, and
// all of them if the ranks together are at most kMaxRanks. A pipeline with its own list of passes keeps all
// of its stages. Returns UsageError if the pipeline's order does not exist for that size.
absl::StatusOr<SmallRun> Shrink(const model::Architecture& spec, const layout::Layout& layout,
                                int64_t seq_len);

}  // namespace trainctl::verify
