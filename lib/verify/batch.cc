#include "verify/batch.h"

#include <algorithm>

#include "base/counter_rng.h"

namespace trainctl::verify {

Batch::Batch(const BatchShape& shape, uint64_t seed) : seq_len_(shape.seq_len) {
  enum Stream : uint64_t { kBorder = 1, kToken, kTarget, kMask };
  const auto vocab = static_cast<uint64_t>(shape.vocab);
  for (int64_t s = 0; s < shape.sequences; ++s) {
    const auto inner = static_cast<uint64_t>(shape.seq_len - 1);
    const int64_t border =
        shape.is_packed
            ? 1 + static_cast<int64_t>(RandomBelow(seed, kBorder, static_cast<uint64_t>(s), inner))
            : shape.seq_len;
    const double share = 0.1 + 0.8 * static_cast<double>(s) / static_cast<double>(shape.sequences);
    const bool masked = shape.masked_parts > 1 && s >= shape.sequences - shape.sequences / shape.masked_parts;
    for (int64_t t = 0; t < shape.seq_len; ++t) {
      const auto i = static_cast<uint64_t>(s * shape.seq_len + t);
      tokens_.push_back(static_cast<int32_t>(RandomBelow(seed, kToken, i, vocab)));
      targets_.push_back(static_cast<int32_t>(RandomBelow(seed, kTarget, i, vocab)));
      document_.push_back(t < border ? 0 : 1);
      positions_.push_back(static_cast<int32_t>(t < border ? t : t - border));
      mask_.push_back(!masked && RandomUniform(seed, kMask, i) < share ? 1 : 0);
    }
  }
}

nn::TokenView Batch::View(int64_t first_sequence) const {
  const auto i = static_cast<size_t>(first_sequence * seq_len_);
  return {&tokens_[i], &targets_[i], &positions_[i], &document_[i], &mask_[i]};
}

void Batch::DropALossToken() { *std::find(mask_.begin(), mask_.end(), 1) = 0; }

}  // namespace trainctl::verify
