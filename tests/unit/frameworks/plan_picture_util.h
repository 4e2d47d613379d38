// Jobs to draw.
#pragma once

#include "frameworks/framework.h"
#include "frameworks/workload.h"

namespace trainctl::frameworks {

// GPT-3's shape (arXiv 2005.14165) on H100s, eight ways tensor parallel.
inline Workload GptToDraw(schedule::PipelineKind kind, int64_t virtual_stages, int64_t pp,
                          int64_t micro_batches) {
  Workload w;
  SetNumLayers(w.model, 96);
  w.model.hidden = 12288;
  SetEach(w.model, &model::Mlp::ffn, int64_t{4} * 12288);
  SetEach(w.model, &model::Attention::heads, 96);
  SetEach(w.model, &model::Attention::kv_heads, 96);
  SetEach(w.model, &model::Attention::head_dim, 128);
  w.model.vocab = 51200;
  SetEach(w.model, &model::Mlp::gated, false);
  w.seq_len = 2048;
  w.mesh.tp = 8;
  w.mesh.pp = pp;
  w.mesh.dp_shard = 2;
  w.zero_stage = 1;
  w.virtual_stages = virtual_stages;
  w.global_batch = w.mesh.data_degree() * micro_batches;
  w.recompute = RecomputeKind::kFull;
  w.pipeline = kind;
  w.device = cluster::FindDevice("h100")->device;
  w.node = &cluster::DefaultNodeFor(*w.device);
  w.framework = FindFramework("megatron-core");
  return w;
}

}  // namespace trainctl::frameworks
