// What `trainctl calibrate` measured of a device while nothing else ran there: a large copy, launches, and
// the products and attention of a few shapes. Kept as it was timed: device_rates.h makes rates of it. Pure;
// thread safe.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/work.h"
#include "simulate/device_attention.h"

namespace trainctl::simulate {

// Seconds of one.
struct TimedProduct {
  model::Product product;
  double seconds = 0;
};
struct TimedAttention {
  FusedAttention fused = FusedAttention::kFlash2;  // or kVendor
  model::AttentionKernel kernel;
  double seconds = 0;
};

struct MeasuredDevice {
  std::string name;             // as its driver shows it
  double bytes_per_second = 0;  // that a large copy reads and writes, together
  double launch_seconds = 0;    // of a kernel of one element, of many queued one after the other
  std::vector<TimedProduct> products;
  std::vector<TimedAttention> attention;
};

nlohmann::ordered_json ToJson(const MeasuredDevice& device);
// BadDataError naming `what` and the field.
absl::StatusOr<MeasuredDevice> MeasuredDeviceFromJson(const nlohmann::ordered_json& json,
                                                      absl::string_view what);

}  // namespace trainctl::simulate
