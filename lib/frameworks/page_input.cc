#include "frameworks/page_input.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/units.h"
#include "frameworks/cluster_plan.h"
#include "frameworks/neighbours.h"
#include "frameworks/sharding_name.h"
#include "frameworks/timeline.h"
#include "report/machine_constants.h"

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

std::string LayoutName(const Workload& w) {
  std::vector<std::string> parts;
  const auto add = [&parts](const char* name, int64_t degree) {
    if (degree > 1) parts.push_back(absl::StrCat(name, " ", degree));
  };
  add("tp", w.mesh.tp);
  add("pp", w.mesh.pp);
  add("cp", w.mesh.cp);
  add("dp", w.mesh.data_degree());
  add("ep", w.mesh.ep);
  add("etp", w.mesh.etp);
  if (parts.empty()) parts.push_back("one device");
  if (w.zero_stage > 0) parts.push_back(ShardingName(w));
  return absl::StrJoin(parts, " \u00d7 ");
}

}  // namespace

std::vector<report::PageConstant> ConstantsOf(const Workload& w) {
  std::vector<report::PageConstant> constants = report::ConstantsOf(*w.device, *w.node);
  // The rates above are scaled already.
  for (const auto& [name, member] : TuningConstants()) {
    if (w.tuning.*member == 1) continue;
    constants.push_back({absl::StrCat("calibration: ", name), absl::StrFormat("x %.3f", w.tuning.*member),
                         "fitted to your runs; what the constants above are scaled by", "measured"});
  }
  return constants;
}

report::PageInput PageOf(const Workload& w, absl::string_view model_name, double memory_limit_bytes) {
  report::PageInput page;
  page.title = std::string(model_name);
  page.tokens_per_step = w.global_batch * w.seq_len;
  page.devices = w.mesh.world_size();
  page.memory_limit_bytes = memory_limit_bytes > 0 ? memory_limit_bytes : w.device->memory_bytes.value;
  page.step = PictureOf(BuildTimeline(w, {.max_passes = kPassesOnPage}));
  page.what_if = NeighboursOf(w, page.memory_limit_bytes);
  page.constants = ConstantsOf(w);
  const std::string schedule =
      w.mesh.pp == 1
          ? std::string("no pipeline")
          : absl::StrCat(std::string(schedule::PipelineKindName(w.Pipeline())),
                         w.virtual_stages > 1 ? absl::StrCat(", ", w.virtual_stages, " stages a rank") : "");
  page.facts = {
      {"Model", absl::StrCat(FormatCount(model::NumParameters(w.model)), " parameters, ", NumLayers(w.model),
                             " layers of ", w.model.hidden)},
      {"Cluster", absl::StrCat(w.mesh.world_size(), " \u00d7 ", w.device->label, ", ", w.node->name)},
      {"Layout", LayoutName(w)},
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
