#include "data/packing.h"

#include <algorithm>
#include <vector>

#include "base/status.h"

namespace trainctl::data {

absl::StatusOr<Packing> ParsePacking(absl::string_view name) {
  if (name == "documents") return Packing::kDocuments;
  if (name == "continuous") return Packing::kContinuous;
  return UsageError(absl::StrCat("data.packing = '", name, "' is not documents or continuous"));
}

Batch PaddingBatch(int64_t num_sequences, int64_t seq_len, Packing packing) {
  const size_t elements = static_cast<size_t>(num_sequences * seq_len);
  Batch batch;
  batch.num_sequences = num_sequences;
  batch.seq_len = seq_len;
  batch.tokens.assign(elements, 0);
  batch.targets.assign(elements, 0);
  batch.document.assign(elements, 0);
  batch.loss_mask.assign(elements, 0);
  batch.positions.resize(elements);
  for (size_t i = 0; i < elements; ++i) {
    batch.positions[i] = static_cast<int32_t>(static_cast<int64_t>(i) % seq_len);
  }
  return batch;
}

absl::Status FillRow(const TokenStream& stream, int64_t position, int64_t available, Packing packing,
                     int64_t row, Batch& batch) {
  const int64_t seq_len = batch.seq_len;
  const int64_t count = std::min(available, seq_len + 1);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::vector<uint8_t> learn(static_cast<size_t>(count));
  std::vector<uint8_t> starts(static_cast<size_t>(count));
  TRAINCTL_RETURN_IF_ERROR(stream.Read(position, count, {tokens.data(), learn.data(), starts.data()}));

  const size_t base = static_cast<size_t>(row * seq_len);
  int32_t document = 0;
  int32_t position_in_document = 0;
  for (int64_t t = 0; t < seq_len; ++t) {
    const size_t here = static_cast<size_t>(t);
    const size_t next = here + 1;
    const bool is_token = t < count;
    const bool has_next = t + 1 < count;
    if (packing == Packing::kDocuments) {
      // Padding behind the last token is a document of its own: nothing attends to it.
      const bool border = t > 0 && (is_token ? starts[here] != 0 : t == count);
      if (border) {
        ++document;
        position_in_document = 0;
      }
      batch.document[base + here] = document;
      batch.positions[base + here] = position_in_document++;
    }
    if (is_token) batch.tokens[base + here] = tokens[here];
    if (!has_next || (packing == Packing::kDocuments && starts[next] != 0)) continue;
    batch.targets[base + here] = tokens[next];
    batch.loss_mask[base + here] = learn[next];
  }
  return absl::OkStatus();
}

}  // namespace trainctl::data
