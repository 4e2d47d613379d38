// Counts the bytes of all CPU tensors of this process. The run report compares the peak with the planner's
// prediction. Process-wide; thread-safe.
//
//   InstallCountingAllocator();
//   ResetPeakTensorBytes();
//   {
//     const ScopedCpuMemoryTag tag(2);
//     Work();  // its CPU tensors count under tag 2
//   }
//   const TaggedBytes at_peak = TensorBytesAtPeak();
#pragma once

#include <array>
#include <cstdint>

namespace trainctl::device {

// A tag is the purpose of a tensor, as a number that the caller chooses. Tag 0 means that no tag was set.
inline constexpr int kNumMemoryTags = 8;
using TaggedBytes = std::array<int64_t, kNumMemoryTags>;
// The tag for memory that a library allocates for its own use within one call. For example, oneDNN allocates
// its scratchpads with this allocator.
inline constexpr int kScratchTag = kNumMemoryTags - 1;

// Replaces LibTorch's CPU allocator with the counting one. Call this before the first tensor is allocated,
// because the functions below count only tensors allocated afterwards.
void InstallCountingAllocator();

// Bytes in use now, and the largest number so far. They count the requested bytes, without padding.
int64_t LiveTensorBytes();
int64_t PeakTensorBytes();
// Returns the bytes that were in use at the peak, by tag. They sum to PeakTensorBytes(), except that
// allocations that other threads make at the instant of the peak may or may not be included.
TaggedBytes TensorBytesAtPeak();
void ResetPeakTensorBytes();  // sets the peak to the bytes in use now

// While the object exists, CPU tensors that this thread allocates count under `tag`, which is from 0 to
// kNumMemoryTags - 1. Scopes may be nested; the innermost tag applies.
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
