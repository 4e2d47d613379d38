#include "pricing/workload.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::pricing {
namespace {

constexpr double kMostPasses = 4e6;

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
  if (w.model.experts.has_value() && w.model.experts->count % d.ep != 0) {
    return UsageError(absl::StrCat("ep ", d.ep, " does not divide the ", w.model.experts->count, " experts"));
  }
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

}  // namespace trainctl::pricing
