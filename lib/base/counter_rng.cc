#include "base/counter_rng.h"

#include <bit>
#include <cmath>
#include <numbers>

namespace trainctl {
namespace {

__extension__ typedef unsigned __int128 uint128;

uint64_t Mix(uint64_t x) {  // splitmix64 finaliser
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

std::array<uint32_t, 4> Philox(uint64_t seed, uint64_t stream, uint64_t index) {
  std::array<uint32_t, 4> counter = {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                                     static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
  uint32_t key0 = static_cast<uint32_t>(seed);
  uint32_t key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

uint64_t StreamOf(absl::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (unsigned char c : name) hash = (hash ^ c) * 0x100000001b3ULL;
  return Mix(hash);
}

uint64_t RandomBits(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto bits = Philox(seed, stream, index);
  return (uint64_t{bits[1]} << 32) | bits[0];
}

double RandomUniform(uint64_t seed, uint64_t stream, uint64_t index) {
  return static_cast<double>(RandomBits(seed, stream, index) >> 11) * 0x1.0p-53;
}

uint64_t RandomBelow(uint64_t seed, uint64_t stream, uint64_t index, uint64_t bound) {
  return static_cast<uint64_t>((static_cast<uint128>(RandomBits(seed, stream, index)) * bound) >> 64);
}

float RandomNormal(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto bits = Philox(seed, stream, index / 2);
  // u in (0, 1]: the logarithm stays finite.
  const double u = (static_cast<double>((uint64_t{bits[1]} << 32 | bits[0]) >> 11) + 1.0) * 0x1.0p-53;
  const double angle =
      2.0 * std::numbers::pi * static_cast<double>((uint64_t{bits[3]} << 32 | bits[2]) >> 11) * 0x1.0p-53;
  const double radius = std::sqrt(-2.0 * std::log(u));
  return static_cast<float>(index % 2 == 0 ? radius * std::cos(angle) : radius * std::sin(angle));
}

uint64_t PermutedIndex(uint64_t seed, uint64_t stream, uint64_t index, uint64_t count) {
  if (count <= 1) return 0;
  const int half_bits = (std::bit_width(count - 1) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t value = index;
  do {  // the network permutes [0, 4^half_bits); walk until inside [0, count): < 4 rounds on average
    uint64_t left = value >> half_bits;
    uint64_t right = value & mask;
    for (uint64_t round = 0; round < 6; ++round) {
      const uint64_t next =
          left ^ (Mix(right ^ Mix(seed ^ Mix(stream + round * 0x9e3779b97f4a7c15ULL))) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits) | right;
  } while (value >= count);
  return value;
}

}  // namespace trainctl
