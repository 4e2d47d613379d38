// Counter-based randomness: a value depends on (seed, stream, index) and on nothing drawn before,
// so results do not depend on ranks, layouts or restarts. Philox4x32-10 (Salmon et al., SC'11).
// Pure functions; thread safe.
#pragma once

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace trainctl {

// 128 random bits for one (seed, stream, index).
std::array<uint32_t, 4> Philox(uint64_t seed, uint64_t stream, uint64_t index);

// Stable 64-bit hash of a name (FNV-1a, finalised), to derive a stream from a parameter's name.
uint64_t StreamOf(absl::string_view name);

uint64_t RandomBits(uint64_t seed, uint64_t stream, uint64_t index);
// Uniform in [0, 1) with 53 bits.
double RandomUniform(uint64_t seed, uint64_t stream, uint64_t index);
// Uniform in [0, bound), bound >= 1, by multiply-shift of 64 bits (bias below 2^-64 * bound).
uint64_t RandomBelow(uint64_t seed, uint64_t stream, uint64_t index, uint64_t bound);
// Standard normal (Box-Muller); element `index` is one of the pair made from counter index / 2.
float RandomNormal(uint64_t seed, uint64_t stream, uint64_t index);

// A keyed permutation of [0, count): bijective for any count >= 1 and evaluated at one point
// without a table (Feistel network with cycle walking). Shuffles of 10^9 documents cost no memory.
uint64_t PermutedIndex(uint64_t seed, uint64_t stream, uint64_t index, uint64_t count);

}  // namespace trainctl
