// Tokens to hold layouts against one another: the same for every layout, their loss tokens unevenly spread.
// Pure; thread safe.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/token_view.h"

namespace trainctl::verify {

struct BatchShape {
  int64_t sequences = 1;
  int64_t seq_len = 1;
  int64_t vocab = 1;
  // Of so many equal parts of the sequences the last has no loss token; 1: all may have some.
  int masked_parts = 1;
  bool is_packed = true;  // each sequence is two documents
};

class Batch {
 public:
  Batch(const BatchShape& shape, uint64_t seed);

  // The sequences from one on.
  nn::TokenView View(int64_t first_sequence) const;
  // As if somebody had lost one.
  void DropALossToken();

 private:
  int64_t seq_len_;
  std::vector<int32_t> tokens_, targets_, positions_, document_;
  std::vector<uint8_t> mask_;
};

}  // namespace trainctl::verify
