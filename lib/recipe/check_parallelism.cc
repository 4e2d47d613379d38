#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "recipe/check_subjects.h"
#include "recipe/layout_request.h"
#include "schedule/layout_step.h"
#include "schedule/pipeline_file.h"
#include "schedule/step.h"

namespace trainctl::recipe {
namespace {

// The fields that LayoutRequest reads, besides the model.
constexpr absl::string_view kLayoutFields[] = {"cluster.nodes",
                                               "cluster.devices_per_node",
                                               "train.batch_sequences",
                                               "train.batch_tokens",
                                               "data.seq_len",
                                               "parallel.dp_replicate",
                                               "parallel.dp_shard",
                                               "parallel.zero_stage",
                                               "parallel.recompute",
                                               "parallel.recomputed_layers",
                                               "train.micro_batch",
                                               "parallel.pp",
                                               "parallel.schedule",
                                               "parallel.schedule_file",
                                               "parallel.passes",
                                               "parallel.virtual_stages",
                                               "parallel.stage_layers",
                                               "parallel.tp",
                                               "parallel.sequence_parallel"};

// Why the batch cannot be divided into `num_micro_batches` for each worker, or "".
std::string WhyNotMicroBatches(const Recipe& recipe, int64_t num_micro_batches) {
  const std::optional<int64_t> size = recipe.train.micro_batch;
  const int64_t data_workers = LayoutRequest(recipe).data_workers();
  const int64_t least = data_workers * num_micro_batches * size.value_or(1);
  const int64_t batch = recipe.train.batch_sequences;
  if (data_workers < 1 || (size ? batch == least : batch % least == 0)) return "";
  const int64_t nearest = size ? least : std::max<int64_t>(1, batch / least) * least;
  return absl::StrCat("they have ", num_micro_batches, " micro-batches", size ? " of " : "",
                      size ? absl::StrCat(*size) : "", " for each of ", data_workers,
                      " data-parallel worker(s), but train.batch_sequences is ", batch,
                      "; set train.batch_sequences = ", nearest);
}

// Why the recipe's own order cannot run, or "": it must fit the other fields and come to an end.
std::string WhyNotPasses(const Recipe& recipe) {
  const ParallelConfig& p = recipe.parallel;
  if (p.virtual_stages.has_value())
    return "they determine the number of stages per rank; remove parallel.virtual_stages";
  const absl::StatusOr<schedule::PipelineSchedule> order = schedule::ReadPasses(p.passes);
  if (!order.ok()) return std::string(order.status().message());
  const schedule::PipelinePlacement& place = order->placement;
  if (place.num_ranks == 1) return "they have only one rank, which is not a pipeline; remove them";
  if (p.pp.value_or(1) != place.num_ranks) {
    return absl::StrCat("they have ", place.num_ranks, " lines, one per rank, but parallel.pp is ",
                        p.pp.value_or(1), "; set parallel.pp = ", place.num_ranks);
  }
  if (place.num_stages % place.num_ranks != 0) {
    return absl::StrCat("they have ", place.num_stages, " stages, which cannot be divided equally among ",
                        place.num_ranks, " ranks");
  }
  const absl::StatusOr<schedule::Step> step = schedule::ExpandOrder(*order);
  if (!step.ok()) return std::string(step.status().message());
  const absl::Status proven = schedule::Check(*step).status();
  if (!proven.ok())
    return absl::StrCat("they deadlock (class is the line, counted from 0; block is the stage): ",
                        proven.message());
  return WhyNotMicroBatches(recipe, place.num_micro_batches);
}

// Which orders take which shapes is known to lib/schedule. With micro-batches of any size there are at most
// as many as a worker has sequences.
void CheckPipeline(CheckContext& context, const layout::Request& request) {
  layout::Layout layout;
  layout.mesh.pp = *request.pp;
  layout.pipeline.order = request.pipeline_order.value_or("1f1b");
  layout.pipeline.virtual_stages = request.virtual_stages.value_or(1);
  layout.num_micro_batches =
      request.batch_sequences / request.data_workers() / request.micro_batch.value_or(1);
  const absl::Status possible = schedule::CheckPipelineLayout(layout);
  if (possible.ok()) return;
  context.Fail(
      {"parallel.schedule", "parallel.virtual_stages", "train.micro_batch", "parallel.pp"},
      absl::StrCat("parallel.pp = ", *request.pp, " with ", layout.num_micro_batches, " micro-batches",
                   request.micro_batch.has_value() ? "" : " at most", ": ", possible.message()));
}

}  // namespace

// Degrees, batch and size, whose constraints lib/layout has.
void CheckLayout(CheckContext& context) {
  const Recipe& recipe = context.recipe();
  if (!context.IsUsable(kLayoutFields) || context.IsBadBelow("model")) return;
  if (!recipe.parallel.passes.empty()) {
    if (const std::string why = WhyNotPasses(recipe); !why.empty()) {
      return context.Fail({"parallel.passes", "parallel.schedule_file"},
                          absl::StrCat("parallel.passes: ", why));
    }
  }
  const layout::Request request = LayoutRequest(recipe);
  const std::vector<layout::Violation> violations = layout::FindViolations(request);
  for (const layout::Violation& violation : violations) {
    const std::vector<absl::string_view> fields(violation.fields.begin(), violation.fields.end());
    context.Fail(fields, violation.message);
  }
  if (violations.empty() && request.pp.value_or(1) > 1 && request.passes.empty()) {
    CheckPipeline(context, request);
  }
}

}  // namespace trainctl::recipe
