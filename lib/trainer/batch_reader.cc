#include "trainer/batch_reader.h"

#include <system_error>
#include <utility>

#include "base/counter_rng.h"

namespace trainctl::trainer {

uint64_t JoinHash(const BatchHash& sum) {
  return (static_cast<uint64_t>(sum.high) & 0xffffffff) << 32 | (static_cast<uint64_t>(sum.low) & 0xffffffff);
}

std::vector<nn::TokenView> MicroBatches(const data::Batch& batch, const plan::PlannedStep& step) {
  std::vector<nn::TokenView> views;
  const int64_t tokens = step.options.shape().tokens();
  for (int m = 0; m < step.options.num_micro_batches; ++m) {
    const size_t at = static_cast<size_t>(m * tokens);
    views.push_back({&batch.tokens[at], &batch.targets[at], &batch.positions[at], &batch.document[at],
                     &batch.loss_mask[at]});
  }
  return views;
}

BatchReader::BatchReader(const recipe::Recipe& recipe, const device::Device& device, const layout::Mesh& mesh,
                         int rank, const data::BatchSource& train)
    : recipe_(recipe), device_(device), mesh_(mesh), rank_(rank), train_(train) {}

absl::StatusOr<data::Batch> BatchReader::Read(const data::BatchSource& source, int64_t step) const {
  const int64_t per_rank = recipe_.train.batch_sequences / mesh_.data_degree();
  return source.Get(step, {mesh_.data_index(rank_) * per_rank, per_rank});
}

void BatchReader::ReadAhead(int64_t step) {
  if (device_.is_cpu() || step >= recipe_.train.steps) return;
  try {
    ahead_ = std::async(std::launch::async, [this, step] { return Read(train_, step); });
  } catch (const std::system_error&) {
    // Without a thread, the batch is read when its turn comes.
  }
}

void BatchReader::ReadNext(int64_t step) { next_ = ahead_.valid() ? ahead_.get() : Read(train_, step); }

absl::StatusOr<data::Batch> BatchReader::Take(int64_t step) {
  if (!next_.has_value()) next_ = Read(train_, step);
  return *std::exchange(next_, std::nullopt);
}

BatchHash BatchReader::Hash(const data::Batch& batch) const {
  const int64_t first_sequence = mesh_.data_index(rank_) * batch.num_sequences;
  uint64_t low = 0, high = 0;
  for (int64_t s = 0; s < batch.num_sequences; ++s) {
    const auto* row = reinterpret_cast<const char*>(&batch.tokens[static_cast<size_t>(s * batch.seq_len)]);
    const uint64_t hash = RandomBits(StreamOf({row, static_cast<size_t>(batch.seq_len) * sizeof(int32_t)}), 0,
                                     static_cast<uint64_t>(first_sequence + s));
    low += hash & 0xffffffff;
    high += hash >> 32;
  }
  return {static_cast<double>(low & 0xffffffff), static_cast<double>(high & 0xffffffff)};
}

}  // namespace trainctl::trainer
