// The loss of rows whose logits lie on several ranks, each of which has those of some tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "nn/segment_run.h"

namespace trainctl::nn {

// As TypedKernels::cross_entropy of the tokens' rows [first, first + rows): adds to the loss, and the logits
// [rows, vocab of this rank] become their gradient where one is asked for. Each row's statistics are gathered
// and combined in the order of the ranks, so that all have the same loss.
void AddLossOverRanks(SegmentRun& run, const model::LinearCrossEntropyAttributes& attributes,
                      at::Tensor& logits, int64_t first, int64_t rows);

}  // namespace trainctl::nn
