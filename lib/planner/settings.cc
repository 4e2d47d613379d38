#include "planner/settings.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainctl::planner {

std::string SettingsOf(const layout::Request& asked, const layout::Request& relaxed,
                       const layout::Layout& layout) {
  std::vector<std::string> settings;
  const auto set = [&](const char* name, const std::string& value) {
    settings.push_back(absl::StrCat(name, " = ", value));
  };
  // Without a stated value the degree counts as 1.
  if (asked.pp.value_or(1) != layout.mesh.pp) set("parallel.pp", absl::StrCat(layout.mesh.pp));
  if (asked.tp.value_or(1) != layout.mesh.tp) set("parallel.tp", absl::StrCat(layout.mesh.tp));
  if (asked.pipeline_order.has_value() && *asked.pipeline_order != layout.pipeline.order)
    set("parallel.schedule",
        layout.mesh.pp > 1 ? absl::StrCat("\"", layout.pipeline.order, "\"") : "\"auto\"");
  const auto set_if_stated = [&](const char* name, const std::optional<int64_t>& stated, int64_t value) {
    if (stated.has_value() && *stated != value) set(name, absl::StrCat(value));
  };
  if (layout.mesh.pp > 1)
    set_if_stated("parallel.virtual_stages", asked.virtual_stages, layout.pipeline.virtual_stages);
  set_if_stated("parallel.zero_stage", asked.zero_stage, layout.zero_stage);
  set_if_stated("parallel.dp_shard", asked.dp_shard, layout.mesh.dp_shard);
  set_if_stated("parallel.dp_replicate", asked.dp_replicate, layout.mesh.dp_replicate);
  set_if_stated("train.micro_batch", asked.micro_batch, layout.micro_batch);
  if (asked.recompute.has_value() && !relaxed.recompute.has_value()) {
    // Left to itself, "full" recomputes all layers.
    const bool is_chosen = !layout.recomputed_layers.empty();
    const absl::string_view name = is_chosen ? "auto" : layout::RecomputeName(layout.recompute);
    if (is_chosen || *asked.recompute != layout.recompute)
      set("parallel.recompute", absl::StrCat("\"", name, "\""));
    if (asked.recomputed_layers.has_value()) set("parallel.recomputed_layers", "\"auto\"");
  }
  return absl::StrJoin(settings, ", ");
}

}  // namespace trainctl::planner
