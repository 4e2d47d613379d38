#include "report/machine_constants.h"

#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/units.h"
#include "cluster/machine.h"

namespace trainctl::report {
namespace {

std::string Scaled(double value, absl::string_view unit) {
  static constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  int prefix = 0;
  while (std::fabs(value) >= 1000 && prefix < 5) {
    value /= 1000;
    ++prefix;
  }
  return absl::StrFormat("%.4g %s%s", value, kPrefixes[prefix], unit);
}

std::string ValueOf(double value, absl::string_view unit) {
  if (unit == "B") return FormatBytes(static_cast<int64_t>(value));
  if (unit.empty()) return absl::StrFormat("%.0f", value);
  return Scaled(value, unit);
}

// The catalogue's sources say it in words where a number is not of its own.
std::string OriginOf(bool measured, absl::string_view source) {
  if (source == cluster::kStatedSource) return "stated";
  for (const char* const words : {"not measured", "none measured", "none is published", "the same ring"}) {
    if (absl::StrContains(source, words)) return "inferred";
  }
  return measured || absl::StrContains(source, "CUDA") ? "measured" : "data sheet";
}

void AddLink(const cluster::Link& link, bool between_nodes, std::vector<PageConstant>& constants) {
  const std::string prefix =
      absl::StrCat(between_nodes ? "between nodes, " : "within a node, ", link.name, ": ");
  const auto add = [&](const char* name, const cluster::Constant& constant, bool measured,
                       const std::string& value) {
    if (constant.value == 0) return;
    constants.push_back(
        {absl::StrCat(prefix, name), value, constant.source, OriginOf(measured, constant.source)});
  };
  add("bandwidth", link.bandwidth, false, Scaled(link.bandwidth.value, "B/s"));
  add("latency of a step", link.latency_s, true, absl::StrFormat("%.1f us", link.latency_s.value * 1e6));
  const auto share = [&](const char* name, const cluster::Constant& constant) {
    add(name, constant, true, absl::StrFormat("%.2f of the bandwidth", constant.value));
  };
  share("all-reduce", link.all_reduce);
  share("all-gather", link.all_gather);
  share("reduce-scatter", link.reduce_scatter);
  share("all-to-all", link.all_to_all);
  share("all-reduce in the switch", link.in_network_all_reduce);
}

}  // namespace

std::vector<PageConstant> ConstantsOf(const cluster::Device& device, const cluster::Node& node) {
  std::vector<PageConstant> constants;
  for (const auto& [name, unit, constant] : cluster::DeviceConstants(device)) {
    if (constant.value == 0) continue;
    const bool measured = absl::string_view(name).substr(0, 8) == "measured";
    constants.push_back({absl::StrCat(device.name, ": ", name), ValueOf(constant.value, unit),
                         constant.source, OriginOf(measured, constant.source)});
  }
  if (node.scale_up != nullptr) AddLink(*node.scale_up, false, constants);
  if (node.scale_out != nullptr) AddLink(*node.scale_out, true, constants);
  return constants;
}

}  // namespace trainctl::report
