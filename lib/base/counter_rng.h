// Counter-based random numbers (Philox4x32-10; Salmon et al., SC'11). A value depends only on (seed, stream,
// index) and not on earlier values, so results are independent of ranks, layouts, and restarts. Pure
// functions; thread-safe.
#pragma once

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace trainctl {

// Returns the 128 random bits for (seed, stream, index).
std::array<uint32_t, 4> Philox(uint64_t seed, uint64_t stream, uint64_t index);

// Returns a stable 64-bit hash of a name (finalized FNV-1a), used to derive a stream from a parameter's name.
uint64_t StreamOf(absl::string_view name);

uint64_t RandomBits(uint64_t seed, uint64_t stream, uint64_t index);
// Returns a uniform number in [0, 1) with 53 random bits.
double RandomUniform(uint64_t seed, uint64_t stream, uint64_t index);
// Returns a uniform integer in [0, bound). Requires bound >= 1. Uses a 64-bit multiply-shift, with a bias
// below 2^-64 * bound.
uint64_t RandomBelow(uint64_t seed, uint64_t stream, uint64_t index, uint64_t bound);
// Returns a standard normal number (Box-Muller). Two consecutive indices share the counter value index / 2.
float RandomNormal(uint64_t seed, uint64_t stream, uint64_t index);

// Returns the image of `index` under a keyed permutation of [0, count), for any count >= 1. Computed for a
// single index without a table (Feistel network with cycle walking), so shuffling 10^9 documents takes no
// memory.
uint64_t PermutedIndex(uint64_t seed, uint64_t stream, uint64_t index, uint64_t count);

}  // namespace trainctl
