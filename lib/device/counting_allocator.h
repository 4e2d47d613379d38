// Counts the bytes of every CPU tensor: what the planner's prediction is held against. Process
// wide; thread safe.
#pragma once

#include <array>
#include <cstdint>

namespace trainctl::device {

// What a tensor is for, as the caller numbers it. 0: nobody said.
inline constexpr int kNumMemoryTags = 8;
using TaggedBytes = std::array<int64_t, kNumMemoryTags>;
// Of what a library takes for itself inside of one call: oneDNN's scratchpads come through this allocator.
inline constexpr int kScratchTag = kNumMemoryTags - 1;

// Call once, before the first tensor.
void InstallCountingAllocator();

int64_t LiveTensorBytes();
int64_t PeakTensorBytes();
// What lived at the instant of the peak, by tag. Exact to the allocations of other threads in that
// instant; sums to PeakTensorBytes() but for those.
TaggedBytes TensorBytesAtPeak();
void ResetPeakTensorBytes();  // to what lives now

// What this thread allocates for CPU tensors while it lives counts under `tag`.
class ScopedCpuMemoryTag {
 public:
  explicit ScopedCpuMemoryTag(int tag);
  ~ScopedCpuMemoryTag();
  ScopedCpuMemoryTag(const ScopedCpuMemoryTag&) = delete;
  ScopedCpuMemoryTag& operator=(const ScopedCpuMemoryTag&) = delete;

 private:
  const int outer_;
};

}  // namespace trainctl::device
