// What published recipes switch on for a model, a device and a precision, where a published row says nothing
// of it: data, each line with its source. Pure; thread safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "frameworks/workload.h"

namespace trainctl::published {

struct Recipe {
  const char* model = "";      // part of the normalized name
  const char* device = "";     // beginning of the device's name; "": any
  const char* precision = "";  // "": any
  int from = 0;                // release of the container, as ReleaseIn gives it
  bool fully_sharded = false;
  frameworks::RecomputeKind recompute = frameworks::RecomputeKind::kNone;
  uint32_t modules = 0;               // with kSelective
  int64_t recomputed_layers = 0;      // of each rank, with kFull; 0: all
  int64_t offloaded_layers = 0;       // whose activations wait in host memory
  bool half_moments = false;          // the precision-aware optimizer with moments in bf16
  bool memory_of_first_step = false;  // what the source's log calls the peak
  const char* source = "";
};

// Of Megatron-Bridge. Null: nothing but the framework's own defaults. `model` as a published row names it.
const Recipe* FindRecipe(absl::string_view model, absl::string_view device, absl::string_view precision,
                         bool fully_sharded, int release);

// "mla_up_proj+mlp" -> bits. False: a name that is not known.
bool ParseRecomputeModules(absl::string_view text, uint32_t& modules);
std::string RecomputeModulesText(uint32_t modules);

}  // namespace trainctl::published
