#include "data/sequences.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/counter_rng.h"
#include "base/status.h"

namespace trainctl::data {
namespace {

class StreamSequencesImpl : public Sequences {
 public:
  StreamSequencesImpl(DocumentSet documents, ShuffleKey key, int64_t seq_len, Packing packing, Repeat repeat)
      : key_(key),
        stream_(std::move(documents), std::move(key)),
        seq_len_(seq_len),
        packing_(packing),
        repeat_(repeat) {}

  int64_t EpochTokens() const override { return stream_.epoch_tokens(); }
  int64_t EpochSequences() const override {
    const int64_t num_targets = stream_.epoch_tokens() - 1;
    return num_targets / seq_len_ + (num_targets % seq_len_ != 0 ? 1 : 0);
  }
  absl::Status CheckUnchanged() const override { return stream_.CheckUnchanged(); }

  absl::Status Fill(int64_t number, int64_t row, Batch& batch) const override {
    if (repeat_ == Repeat::kEndless) return FillRow(Shuffled(number) * seq_len_, seq_len_ + 1, row, batch);
    const int64_t position = number * seq_len_;
    const int64_t available = stream_.epoch_tokens() - position;
    if (available < 2) return absl::OkStatus();  // an input without a target
    return FillRow(position, available, row, batch);
  }

 private:
  int64_t Shuffled(int64_t number) const {
    const int64_t block_sequences = stream_.epoch_tokens() / seq_len_;
    if (!key_.shuffle || block_sequences <= 1) return number;
    const int64_t block = number / block_sequences;
    const uint64_t stream = StreamOf(absl::StrCat(key_.stream, "/sequences/", block));
    return block * block_sequences + static_cast<int64_t>(PermutedIndex(
                                         key_.seed, stream, static_cast<uint64_t>(number % block_sequences),
                                         static_cast<uint64_t>(block_sequences)));
  }

  // Reads at most `available` tokens of the stream from `position` on. The rest of the row stays padding.
  absl::Status FillRow(int64_t position, int64_t available, int64_t row, Batch& batch) const {
    const int64_t count = std::min(available, seq_len_ + 1);
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    std::vector<uint8_t> learn(static_cast<size_t>(count));
    std::vector<uint8_t> starts(static_cast<size_t>(count));
    TRAINCTL_RETURN_IF_ERROR(stream_.Read(position, count, {tokens.data(), learn.data(), starts.data()}));

    const size_t base = static_cast<size_t>(row * seq_len_);
    int32_t document = 0;
    int32_t position_in_document = 0;
    for (int64_t t = 0; t < seq_len_; ++t) {
      const size_t here = static_cast<size_t>(t);
      const size_t next = here + 1;
      const bool is_token = t < count;
      const bool has_next = t + 1 < count;
      if (packing_ == Packing::kDocuments) {
        // Padding after the last token counts as a separate document, so nothing attends to it.
        const bool border = t > 0 && (is_token ? starts[here] != 0 : t == count);
        if (border) {
          ++document;
          position_in_document = 0;
        }
        batch.document[base + here] = document;
        batch.positions[base + here] = position_in_document++;
      }
      if (is_token) batch.tokens[base + here] = tokens[here];
      if (!has_next || (packing_ == Packing::kDocuments && starts[next] != 0)) continue;
      batch.targets[base + here] = tokens[next];
      batch.loss_mask[base + here] = learn[next];
    }
    return absl::OkStatus();
  }

  ShuffleKey key_;
  TokenStream stream_;
  int64_t seq_len_;
  Packing packing_;
  Repeat repeat_;
};

}  // namespace

absl::StatusOr<Packing> PackingOf(const recipe::DataConfig& data, const recipe::DataSource& source) {
  if (data.packing == "auto") return source.prompt_field.empty() ? Packing::kDocuments : Packing::kWhole;
  if (data.packing == "documents") return Packing::kDocuments;
  if (data.packing == "continuous") return Packing::kContinuous;
  if (data.packing == "whole") return Packing::kWhole;
  return UsageError(
      absl::StrCat("data.packing = '", data.packing, "' must be auto, documents, continuous or whole"));
}

Batch PaddingBatch(int64_t num_sequences, int64_t seq_len) {
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

std::unique_ptr<Sequences> StreamSequences(DocumentSet documents, ShuffleKey key, int64_t seq_len,
                                           Packing packing, Repeat repeat) {
  return std::make_unique<StreamSequencesImpl>(std::move(documents), std::move(key), seq_len, packing,
                                               repeat);
}

}  // namespace trainctl::data
