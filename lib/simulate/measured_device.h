// The times that `trainctl calibrate` measured on an otherwise idle device: a large copy, kernel launches,
// and matrix products and attention of a few shapes. These are the measured times; device_rates.h computes
// rates from them. Pure functions; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/json_fwd.h"
#include "model/work.h"
#include "simulate/device_attention.h"

namespace trainctl::simulate {

// A measured kernel, with the time of one launch.
struct TimedProduct {
  model::Product product;
  double seconds = 0;
};
struct TimedAttention {
  FusedAttention fused = FusedAttention::kFlash2;  // kFlash2 or kVendor
  model::AttentionKernel kernel;
  double seconds = 0;
};

struct MeasuredDevice {
  std::string name;             // name that the driver reports
  double bytes_per_second = 0;  // bytes that a large copy reads plus those that it writes
  double launch_seconds = 0;    // time per kernel of one element when many are queued
  std::vector<TimedProduct> products;
  std::vector<TimedAttention> attention;
};

Json ToJson(const MeasuredDevice& device);
// The inverse of ToJson. Returns BadDataError, naming `what` and the field, if a field is missing or out of
// range or if there is no product of fp32 or of bf16.
absl::StatusOr<MeasuredDevice> MeasuredDeviceFromJson(const Json& json, absl::string_view what);

}  // namespace trainctl::simulate
