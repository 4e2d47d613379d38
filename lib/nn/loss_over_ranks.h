// Cross-entropy over a vocabulary that is split across the ranks of tensor parallelism. Each rank has the
// logits of its part of the vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "nn/segment_run.h"

namespace trainctl::nn {

// Like TypedKernels::cross_entropy, for the token rows [first, first + rows) of the
// micro-batch. Collective over run.tensor(). Adds the rows' loss to *run.loss().sum. If run.loss().scale is
// not null, `logits` [rows, vocabulary of this rank] become their gradient; otherwise their contents are
// unspecified afterwards. Gathers each row's statistics and combines them in rank order, so that every rank
// has the same loss.
void AddLossOverRanks(SegmentRun& run, const model::LinearCrossEntropyAttributes& attributes,
                      at::Tensor& logits, int64_t first, int64_t rows);

}  // namespace trainctl::nn
