#include "trainer/numerics.h"

#include <ATen/Version.h>

#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/dtype.h"
#include "base/json.h"
#include "kernels/kernels.h"

namespace trainctl::trainer {
namespace {

constexpr char kNumerics[] = "numerics";

// kNumericsChanges[i] is what version i + 2 changed.
constexpr const char* kNumericsChanges[] = {
    "rotary angles are rounded as in transformers",
    "attention on a CPU sums in a different order",
    "a step makes no update if none of its batch's targets count",
};
static_assert(std::size(kNumericsChanges) == kNumericsVersion - 1);

Json::object_t::value_type DescribeDevice(const device::Device& device) {
  if (!device.is_cpu()) return {"device", device.description()};
  return {"cpu", std::string(device.kernels().name) + " " + at::get_cpu_capability()};
}

std::string TextOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : FormatJson(value);
}

std::string WhatChangedSince(int before) {
  std::vector<std::string> changes;
  for (int version = before + 1; version <= kNumericsVersion; ++version) {
    changes.emplace_back(kNumericsChanges[version - 2]);
  }
  return absl::StrJoin(changes, ", ");
}

}  // namespace

std::string DescribeNumerics(const plan::Plan& plan, int world_size, const device::Device& device) {
  const Json description = {
      {"layout", plan.layout.ToString()},   {"world_size", world_size},
      {"threads", plan.threads_per_worker}, {"precision", std::string(DTypeName(plan.setting.types.compute))},
      {kNumerics, kNumericsVersion},        DescribeDevice(device)};
  return FormatJson(description);
}

std::string DescribeChange(const std::string& before, const std::string& now) {
  if (before.empty() || before == now) return "";
  Json was = ParseValidJson(before);
  const Json is = ParseValidJson(now);
  // Those of before it was counted do not have it.
  if (is.contains(kNumerics) && !was.contains(kNumerics)) was[kNumerics] = 1;
  std::vector<std::string> changes;
  for (const auto& [key, value] : is.items()) {
    if (!was.contains(key)) {
      changes.push_back(absl::StrCat(key, " is ", TextOf(value)));
    } else if (was[key] != value) {
      changes.push_back(absl::StrCat(key, " is ", TextOf(value), " (was ", TextOf(was[key]), ")"));
    }
  }
  if (changes.empty()) return "";
  std::string text = absl::StrJoin(changes, ", ");
  if (const Json saved = was.value(kNumerics, Json(kNumericsVersion)); saved != kNumericsVersion) {
    return absl::StrCat(text, ": ",
                        saved.is_number_integer() && saved >= 1 && saved < kNumericsVersion
                            ? absl::StrCat("since then ", WhatChangedSince(saved.get<int>()), "; ")
                            : "saved by another version of trainctl; ",
                        "the run continues from the same weights but is not bit-identical");
  }
  return absl::StrCat(text, ": results agree up to the order of sums and are not bit-identical");
}

}  // namespace trainctl::trainer
