#include "frameworks/workload.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "frameworks/framework_ways.h"

namespace trainctl::frameworks {
namespace {

constexpr double kMostPasses = 4e6;
constexpr double kMostRanks = 1e9;
constexpr double kMostTokens = 1e12;  // in a step

// Degrees of the experts, and layers that are named one by one.
absl::Status ValidateParts(const Workload& w) {
  if (w.mesh.etp <= 0 || w.mesh.etp > w.mesh.world_size())
    return UsageError(absl::StrCat("etp is ", w.mesh.etp));
  if (w.mesh.etp > 1 && !w.mesh.HasExpertView()) {
    return UsageError(absl::StrCat("ep ", w.mesh.ep, " x etp ", w.mesh.etp,
                                   " does not divide tp x cp x dp = ", w.mesh.ranks_per_stage()));
  }
  if (w.recomputed_layers.value_or(0) < 0 || w.offloaded_layers < 0) {
    return UsageError("recomputed and offloaded layers are not below 0");
  }
  if (w.stage_layers.empty()) return absl::OkStatus();
  const int64_t stages = w.mesh.pp * w.virtual_stages;
  if (static_cast<int64_t>(w.stage_layers.size()) != stages) {
    return UsageError(absl::StrCat("layers are given for ", w.stage_layers.size(), " stages, but pp ",
                                   w.mesh.pp, " x virtual stages ", w.virtual_stages, " are ", stages));
  }
  int64_t layers = 0;
  for (int64_t count : w.stage_layers) {
    if (count < 0 || count > NumLayers(w.model))
      return UsageError(absl::StrCat("a stage has ", count, " layers"));
    layers += count;
  }
  if (layers != NumLayers(w.model)) {
    return UsageError(absl::StrCat("the stages have ", layers, " layers, the model ", NumLayers(w.model)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const Workload& w) {
  TRAINCTL_RETURN_IF_ERROR(Validate(w.model));
  const std::pair<const char*, int64_t> positive[] = {{"seq_len", w.seq_len},
                                                      {"micro_batch", w.micro_batch},
                                                      {"global_batch", w.global_batch},
                                                      {"tp", w.mesh.tp},
                                                      {"pp", w.mesh.pp},
                                                      {"virtual_stages", w.virtual_stages},
                                                      {"cp", w.mesh.cp},
                                                      {"ep", w.mesh.ep},
                                                      {"dp", w.mesh.data_degree()},
                                                      {"shard_group", w.mesh.dp_shard}};
  for (const auto& [name, value] : positive) {
    if (value <= 0 || value > 1'000'000'000) {
      return UsageError(absl::StrCat(name, " is ", value, "; it is between 1 and 1e9"));
    }
  }
  const double ranks = static_cast<double>(w.mesh.tp) * static_cast<double>(w.mesh.pp) *
                       static_cast<double>(w.mesh.cp) * static_cast<double>(w.mesh.data_degree());
  if (ranks > kMostRanks)
    return UsageError(
        absl::StrCat("tp x pp x cp x dp are ", ranks, " ranks; at most ", kMostRanks, " are priced"));
  if (static_cast<double>(w.mesh.pp) * static_cast<double>(w.virtual_stages) > kMostRanks)
    return UsageError(absl::StrCat("virtual_stages is ", w.virtual_stages));
  const double tokens = static_cast<double>(w.global_batch) * static_cast<double>(w.seq_len);
  if (tokens > kMostTokens) {
    return UsageError(absl::StrCat("a step of ", w.global_batch, " sequences of ", w.seq_len,
                                   " is more than ", kMostTokens, " tokens"));
  }
  if (w.device == nullptr || w.node == nullptr || w.framework == nullptr) {
    return UsageError("a workload needs a device, a node and a framework");
  }
  if (AttentionOf(w.model).heads % w.mesh.tp != 0) {
    return UsageError(
        absl::StrCat("tp ", w.mesh.tp, " does not divide the ", AttentionOf(w.model).heads, " heads"));
  }
  if (const std::string obstacle = TensorObstacle(w.framework->name, w.model, w.mesh.tp); !obstacle.empty())
    return UsageError(obstacle);
  if (w.mesh.pp * w.virtual_stages > NumLayers(w.model) + 2) {
    return UsageError(absl::StrCat("pp ", w.mesh.pp, " x virtual stages ", w.virtual_stages,
                                   " is more than the ", NumLayers(w.model), " layers"));
  }
  if (w.mesh.ep > 1 && FindExperts(w.model) == nullptr) return UsageError("ep needs a model with experts");
  const model::Experts* const experts = FindExperts(w.model);
  if (experts != nullptr && experts->num_experts % w.mesh.ep != 0) {
    return UsageError(
        absl::StrCat("ep ", w.mesh.ep, " does not divide the ", experts->num_experts, " experts"));
  }
  TRAINCTL_RETURN_IF_ERROR(ValidateParts(w));
  if (w.global_batch % (w.micro_batch * w.mesh.data_degree()) != 0) {
    return UsageError(absl::StrCat("a batch of ", w.global_batch,
                                   " sequences is not a multiple of micro-batch ", w.micro_batch, " x dp ",
                                   w.mesh.data_degree()));
  }
  // What is played to time it: passes of at most five rounds of micro-batches on all stages.
  const double passes = 2.0 * static_cast<double>(w.mesh.pp) * static_cast<double>(w.virtual_stages) *
                        static_cast<double>(std::min(w.num_micro_batches(), 5 * w.mesh.pp));
  if (w.mesh.pp > 1 && passes > kMostPasses) {
    return UsageError(absl::StrCat("pp ", w.mesh.pp, " with ", w.virtual_stages,
                                   " virtual stages is more than any run had"));
  }
  return w.mesh.pp == 1
             ? absl::OkStatus()
             : schedule::CheckPipelineShape(w.Pipeline(), w.PipelineShapeFor(w.num_micro_batches()));
}

}  // namespace trainctl::frameworks
