// Random tokens for comparing layouts. They depend only on the shape and the seed, so every layout gets the
// same ones. Loss tokens are distributed unevenly over the sequences. Thread-safe except for DropALossToken.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/token_view.h"

namespace trainctl::verify {

struct BatchShape {
  int64_t sequences = 1;
  int64_t seq_len = 1;
  int64_t vocab = 1;
  // If the sequences are split into this many equal parts, the last part has no loss tokens; 1 turns this
  // off.
  int masked_parts = 1;
  bool is_packed = true;  // each sequence is two documents
};

class Batch {
 public:
  Batch(const BatchShape& shape, uint64_t seed);

  // Returns the sequences from `first_sequence` on. The view refers to this batch.
  nn::TokenView View(int64_t first_sequence) const;
  // Masks the first loss token, to imitate a lost one.
  void DropALossToken();

 private:
  int64_t seq_len_;
  std::vector<int32_t> tokens_, targets_, positions_, document_;
  std::vector<uint8_t> mask_;
};

}  // namespace trainctl::verify
