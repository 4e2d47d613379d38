// Counts the bytes of every CPU tensor: what the planner's prediction is held against. Process
// wide; thread safe.
#pragma once

#include <cstdint>

namespace trainctl::nn {

// Call once, before the first tensor.
void InstallCountingAllocator();

int64_t LiveTensorBytes();
int64_t PeakTensorBytes();
void ResetPeakTensorBytes();  // to what lives now

}  // namespace trainctl::nn
