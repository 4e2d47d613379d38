// Counts the bytes of every CPU tensor: what the planner's prediction is held against. Process
// wide; thread safe.
#pragma once

#include <array>
#include <cstdint>

namespace trainctl::nn {

// What a tensor is for, as the caller numbers it. 0: nobody said.
inline constexpr int kNumMemoryTags = 8;
using TaggedBytes = std::array<int64_t, kNumMemoryTags>;

// Call once, before the first tensor.
void InstallCountingAllocator();

int64_t LiveTensorBytes();
int64_t PeakTensorBytes();
// What lived at the instant of the peak, by tag. Exact to the allocations of other threads in that
// instant; sums to PeakTensorBytes() but for those.
TaggedBytes TensorBytesAtPeak();
void ResetPeakTensorBytes();  // to what lives now

// What this thread allocates while it lives counts under `tag`.
class ScopedMemoryTag {
 public:
  explicit ScopedMemoryTag(int tag);
  ~ScopedMemoryTag();
  ScopedMemoryTag(const ScopedMemoryTag&) = delete;
  ScopedMemoryTag& operator=(const ScopedMemoryTag&) = delete;

 private:
  const int outer_;
};

}  // namespace trainctl::nn
