#include "frameworks/workload.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::frameworks {
namespace {

constexpr double kMostPasses = 4e6;
constexpr double kMostRanks = 1e9;
constexpr double kMostTokens = 1e12;  // in a step

// Degrees of the experts, and layers that are named one by one.
absl::Status ValidateParts(const Workload& w) {
  const Degrees& d = w.degrees;
  if (d.etp <= 0 || d.etp > d.world_size()) return UsageError(absl::StrCat("etp is ", d.etp));
  if (d.etp > 1 && (d.tp * d.cp * d.dp) % (d.ep * d.etp) != 0) {
    return UsageError(
        absl::StrCat("ep ", d.ep, " x etp ", d.etp, " does not divide tp x cp x dp = ", d.tp * d.cp * d.dp));
  }
  if (w.recomputed_layers.value_or(0) < 0 || w.offloaded_layers < 0) {
    return UsageError("recomputed and offloaded layers are not below 0");
  }
  if (w.stage_layers.empty()) return absl::OkStatus();
  const int64_t stages = d.pp * d.virtual_stages;
  if (static_cast<int64_t>(w.stage_layers.size()) != stages) {
    return UsageError(absl::StrCat("layers are given for ", w.stage_layers.size(), " stages, but pp ", d.pp,
                                   " x virtual stages ", d.virtual_stages, " are ", stages));
  }
  int64_t layers = 0;
  for (int64_t count : w.stage_layers) {
    if (count < 0 || count > w.model.layers)
      return UsageError(absl::StrCat("a stage has ", count, " layers"));
    layers += count;
  }
  if (layers != w.model.layers) {
    return UsageError(absl::StrCat("the stages have ", layers, " layers, the model ", w.model.layers));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const Workload& w) {
  TRAINCTL_RETURN_IF_ERROR(Validate(w.model));
  const Degrees& d = w.degrees;
  const std::pair<const char*, int64_t> positive[] = {{"seq_len", w.seq_len},
                                                      {"micro_batch", w.micro_batch},
                                                      {"global_batch", w.global_batch},
                                                      {"tp", d.tp},
                                                      {"pp", d.pp},
                                                      {"virtual_stages", d.virtual_stages},
                                                      {"cp", d.cp},
                                                      {"ep", d.ep},
                                                      {"dp", d.dp},
                                                      {"shard_group", d.shard_group}};
  for (const auto& [name, value] : positive) {
    if (value <= 0 || value > 1'000'000'000) {
      return UsageError(absl::StrCat(name, " is ", value, "; it is between 1 and 1e9"));
    }
  }
  const double ranks = static_cast<double>(d.tp) * static_cast<double>(d.pp) * static_cast<double>(d.cp) *
                       static_cast<double>(d.dp);
  if (ranks > kMostRanks)
    return UsageError(
        absl::StrCat("tp x pp x cp x dp are ", ranks, " ranks; at most ", kMostRanks, " are priced"));
  if (static_cast<double>(d.pp) * static_cast<double>(d.virtual_stages) > kMostRanks)
    return UsageError(absl::StrCat("virtual_stages is ", d.virtual_stages));
  const double tokens = static_cast<double>(w.global_batch) * static_cast<double>(w.seq_len);
  if (tokens > kMostTokens) {
    return UsageError(absl::StrCat("a step of ", w.global_batch, " sequences of ", w.seq_len,
                                   " is more than ", kMostTokens, " tokens"));
  }
  if (w.device == nullptr || w.node == nullptr || w.framework == nullptr) {
    return UsageError("a workload needs a device, a node and a framework");
  }
  if (w.model.heads % d.tp != 0) {
    return UsageError(absl::StrCat("tp ", d.tp, " does not divide the ", w.model.heads, " heads"));
  }
  if (d.pp * d.virtual_stages > w.model.layers + 2) {
    return UsageError(absl::StrCat("pp ", d.pp, " x virtual stages ", d.virtual_stages, " is more than the ",
                                   w.model.layers, " layers"));
  }
  if (d.ep > 1 && !w.model.experts.has_value()) return UsageError("ep needs a model with experts");
  if (w.model.experts.has_value() && w.model.experts->num_experts % d.ep != 0) {
    return UsageError(
        absl::StrCat("ep ", d.ep, " does not divide the ", w.model.experts->num_experts, " experts"));
  }
  TRAINCTL_RETURN_IF_ERROR(ValidateParts(w));
  if (w.global_batch % (w.micro_batch * d.dp) != 0) {
    return UsageError(absl::StrCat("a batch of ", w.global_batch,
                                   " sequences is not a multiple of micro-batch ", w.micro_batch, " x dp ",
                                   d.dp));
  }
  // What is played to time it: passes of at most five rounds of micro-batches on all stages.
  const double passes = 2.0 * static_cast<double>(d.pp) * static_cast<double>(d.virtual_stages) *
                        static_cast<double>(std::min(w.num_micro_batches(), 5 * d.pp));
  if (d.pp > 1 && passes > kMostPasses) {
    return UsageError(
        absl::StrCat("pp ", d.pp, " with ", d.virtual_stages, " virtual stages is more than any run had"));
  }
  return d.pp == 1 ? absl::OkStatus()
                   : schedule::CheckPipelineShape(w.Pipeline(), w.PipelineShapeFor(w.num_micro_batches()));
}

}  // namespace trainctl::frameworks
