// Describes the conditions on which the exact bits of a run depend, apart from the recipe and the data.
// Checkpoints store the description. A run that is resumed under other conditions prints the differences.
// Thread-safe.
#pragma once

#include <string>

#include "device/device.h"
#include "plan/plan.h"

namespace trainctl::trainer {

// Version of the bits that a step computes. It increases with every change to them, and each increase adds a
// line to kNumericsChanges.
constexpr int kNumericsVersion = 4;

// Describes this process as a JSON object. If the value of a field changes, sums may be computed in another
// order.
std::string DescribeNumerics(const plan::Plan& plan, int world_size, const device::Device& device);

// Compares two descriptions, which are JSON objects with fields such as "layout" and "numerics". `before` may
// be empty if it is not known. Returns a readable text about the differences, or an empty string if there are
// none or `before` is empty.
std::string DescribeChange(const std::string& before, const std::string& now);

}  // namespace trainctl::trainer
