#include "recipe/layout_request.h"

#include <algorithm>

#include "schedule/pipeline.h"
#include "schedule/pipeline_file.h"
#include "schedule/pipeline_orders.h"

namespace trainctl::recipe {

layout::Request LayoutRequest(const Recipe& recipe) {
  layout::Request request;
  request.spec = &recipe.model.spec;
  request.nodes = recipe.cluster.nodes;
  request.devices_per_node = recipe.cluster.devices_per_node;
  request.batch_sequences = recipe.train.batch_sequences;
  request.seq_len = recipe.data.seq_len;
  request.dp_replicate = recipe.parallel.dp_replicate;
  request.dp_shard = recipe.parallel.dp_shard;
  request.zero_stage = recipe.parallel.zero_stage;
  request.micro_batch = recipe.train.micro_batch;
  request.pp = recipe.parallel.pp;
  request.tp = recipe.parallel.tp;
  request.sequence_parallel = recipe.parallel.sequence_parallel;
  request.pipeline_order = recipe.parallel.schedule;
  request.virtual_stages = recipe.parallel.virtual_stages;
  if (const auto kind = schedule::ParsePipelineKind(request.pipeline_order.value_or(""));
      kind.ok() && request.pp.value_or(1) > 1 && !request.virtual_stages.has_value())
    request.virtual_stages = schedule::LimitsOf(*kind).min_virtual_stages;
  request.stage_layers = recipe.parallel.stage_layers;
  request.passes = recipe.parallel.passes;
  if (const auto order = schedule::ReadPasses(request.passes); !request.passes.empty() && order.ok()) {
    const schedule::PipelinePlacement& place = order->placement;
    request.virtual_stages = place.num_stages / place.num_ranks;
    const int64_t sequences = request.batch_sequences / std::max<int64_t>(1, request.data_workers());
    if (!request.micro_batch) request.micro_batch = std::max<int64_t>(1, sequences / place.num_micro_batches);
  }
  if (recipe.parallel.recompute.has_value())
    request.recompute = layout::ParseRecompute(*recipe.parallel.recompute);
  request.recomputed_layers = recipe.parallel.recomputed_layers;
  // Their number says what is done with them.
  if (request.recomputed_layers.has_value() && !request.recompute.has_value())
    request.recompute = layout::Recompute::kFull;
  return request;
}

}  // namespace trainctl::recipe
