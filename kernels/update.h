// A parameter update as the kernels see it: its rule, its options, and the memory that it changes. Part of
// the plugin's ABI (device_api.h). Does not use LibTorch.
#pragma once

#include <array>
#include <cstdint>

namespace trainctl::kernels {

// The rule by which an optimizer changes an element (update_rules.inc.h).
enum class UpdateRule : uint8_t { kAdamW, kLion, kSgd };
inline constexpr int kNumUpdateRules = 3;
inline constexpr int kMaxUpdateStates = 2;

// Options of an update, in the device's memory. Each rule reads those that it needs. Everything that changes
// from step to step is here.
struct UpdateOptions {
  float lr = 0;
  float beta1 = 0;
  float beta2 = 0;
  float eps = 0;
  float momentum = 0;
  float weight_decay = 0;
  float factor = 1;            // multiplies gradients; if it is NaN, the update changes nothing
  float bias_correction1 = 1;  // 1 - beta1^t
  float bias_correction2 = 1;  // 1 - beta2^t
  uint32_t rounding_key = 0;   // seeds this update's roundings to a bf16 master
};

// Consecutive elements of each array, all updated in the same way.
struct UpdateRange {
  void* master = nullptr;
  std::array<void*, kMaxUpdateStates> states = {};  // null after the last state of the rule
  const void* gradient = nullptr;
  void* copy = nullptr;  // bf16 copy of the updated master, rounded as by TypedKernels::round; may be null
  int64_t count = 0;
  uint64_t number = 0;  // number of the first element for rounding to a bf16 master; the others follow
  bool decays = false;  // whether UpdateOptions::weight_decay applies
};

// The list of ranges is in host memory. Either all ranges have a copy, or none has.
using UpdateFunction = void (*)(const UpdateRange* ranges, int num_ranges, const UpdateOptions* options);

}  // namespace trainctl::kernels
