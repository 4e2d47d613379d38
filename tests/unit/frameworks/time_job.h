// A small job for tests of prices: a Llama-like model in bf16 on DGX H100 nodes, as Megatron-LM runs it.
#pragma once

#include "cluster/catalogue.h"
#include "frameworks/framework.h"
#include "frameworks/workload.h"

namespace trainctl::frameworks {

inline Workload SmallJob(const char* framework = "megatron-core", const char* device = "h100-sxm-80gb") {
  Workload w;
  SetNumLayers(w.model, 32);
  w.model.hidden = 4096;
  SetEach(w.model, &model::Mlp::ffn, 14336);
  SetEach(w.model, &model::Attention::heads, 32);
  SetEach(w.model, &model::Attention::kv_heads, 8);
  SetEach(w.model, &model::Attention::head_dim, 128);
  w.model.vocab = 128256;
  w.seq_len = 4096;
  w.micro_batch = 1;
  w.global_batch = 8;
  w.device = cluster::FindDevice(device)->device;
  w.node = &cluster::DefaultNodeFor(*w.device);
  w.framework = FindFramework(framework);
  return w;
}

}  // namespace trainctl::frameworks
