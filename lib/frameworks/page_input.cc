#include "frameworks/page_input.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/units.h"
#include "frameworks/cluster_plan.h"
#include "frameworks/neighbours.h"
#include "frameworks/sharding_name.h"
#include "frameworks/timeline.h"
#include "recipe/machine.h"

namespace trainctl::frameworks {
namespace {

// Passes that a page draws one by one; of longer steps whole rounds are left out.
constexpr int64_t kPassesOnPage = 36'000;

std::string RecomputedBy(const Workload& w) {
  std::string name(RecomputeName(w.recompute));
  if (w.recompute == RecomputeKind::kFull && w.recomputed_layers.has_value()) {
    absl::StrAppend(&name, ", ", *w.recomputed_layers, " layers a rank");
  }
  return name;
}

std::string LayoutName(const Degrees& d) {
  std::vector<std::string> parts;
  const auto add = [&parts](const char* name, int64_t degree) {
    if (degree > 1) parts.push_back(absl::StrCat(name, " ", degree));
  };
  add("tp", d.tp);
  add("pp", d.pp);
  add("cp", d.cp);
  add("dp", d.dp);
  add("ep", d.ep);
  add("etp", d.etp);
  if (parts.empty()) parts.push_back("one device");
  if (d.zero_stage > 0) parts.push_back(ShardingName(d));
  return absl::StrJoin(parts, " \u00d7 ");
}

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
  if (source == recipe::kStatedSource) return "stated";
  for (const char* const words : {"not measured", "none measured", "none is published", "the same ring"}) {
    if (absl::StrContains(source, words)) return "inferred";
  }
  return measured || absl::StrContains(source, "CUDA") ? "measured" : "data sheet";
}

void AddLink(const cluster::Link& link, bool between_nodes, std::vector<report::PageConstant>& constants) {
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

std::vector<report::PageConstant> ConstantsOf(const Workload& w) {
  std::vector<report::PageConstant> constants;
  for (const auto& [name, unit, constant] : cluster::DeviceConstants(*w.device)) {
    if (constant.value == 0) continue;
    const bool measured = absl::string_view(name).substr(0, 8) == "measured";
    constants.push_back({absl::StrCat(w.device->name, ": ", name), ValueOf(constant.value, unit),
                         constant.source, OriginOf(measured, constant.source)});
  }
  if (w.node->scale_up != nullptr) AddLink(*w.node->scale_up, false, constants);
  if (w.node->scale_out != nullptr) AddLink(*w.node->scale_out, true, constants);
  // The rates above are scaled already.
  for (const auto& [name, member] : TuningConstants()) {
    if (w.tuning.*member == 1) continue;
    constants.push_back({absl::StrCat("calibration: ", name), absl::StrFormat("x %.3f", w.tuning.*member),
                         "fitted to your runs; what the constants above are scaled by", "measured"});
  }
  return constants;
}

report::PageInput PageOf(const Workload& w, absl::string_view model_name, double memory_limit_bytes) {
  const Degrees& d = w.degrees;
  report::PageInput page;
  page.title = std::string(model_name);
  page.tokens_per_step = w.global_batch * w.seq_len;
  page.devices = d.world_size();
  page.memory_limit_bytes = memory_limit_bytes > 0 ? memory_limit_bytes : w.device->memory_bytes.value;
  page.step = PictureOf(BuildTimeline(w, {.max_passes = kPassesOnPage}));
  page.what_if = NeighboursOf(w, page.memory_limit_bytes);
  page.constants = ConstantsOf(w);
  const std::string schedule =
      d.pp == 1
          ? std::string("no pipeline")
          : absl::StrCat(std::string(schedule::PipelineKindName(w.Pipeline())),
                         d.virtual_stages > 1 ? absl::StrCat(", ", d.virtual_stages, " stages a rank") : "");
  page.facts = {
      {"Model", absl::StrCat(FormatCount(model::NumParameters(w.model)), " parameters, ", w.model.layers,
                             " layers of ", w.model.hidden)},
      {"Cluster", absl::StrCat(d.world_size(), " \u00d7 ", w.device->label, ", ", w.node->name)},
      {"Layout", LayoutName(d)},
      {"Schedule", schedule},
      {"Batch",
       absl::StrCat(w.global_batch, " sequences of ", w.seq_len, ": ", w.num_micro_batches(),
                    w.num_micro_batches() == 1 ? " micro-batch of " : " micro-batches of ", w.micro_batch)},
      {"Precision", std::string(PrecisionName(w.precision))},
      {"Recompute", RecomputedBy(w)},
      {"Run as", w.framework->label},
  };
  return page;
}

}  // namespace trainctl::frameworks
