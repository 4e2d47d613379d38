// One row of a batch from consecutive tokens of a stream. Pure; thread safe.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/batch_source.h"
#include "data/token_stream.h"

namespace trainctl::data {

enum class Packing { kDocuments, kContinuous };

absl::StatusOr<Packing> ParsePacking(absl::string_view name);  // UsageError

// A batch of `num_sequences` rows, all of padding: token and target 0, masked out.
Batch PaddingBatch(int64_t num_sequences, int64_t seq_len, Packing packing);

// Fills row `row` of `batch` with the stream's tokens from `position`: seq_len inputs and, one further, their
// targets. Only `available` tokens are read; what lies behind stays padding.
//
// kDocuments: document numbers count the borders inside the row; positions count from the row's start or the
// document's start in it; the last token of a document has target 0, masked out. kContinuous: borders do not
// matter. In both, a target that belongs to a prompt is masked out.
absl::Status FillRow(const TokenStream& stream, int64_t position, int64_t available, Packing packing,
                     int64_t row, Batch& batch);

}  // namespace trainctl::data
