// Random jobs for property tests: any model, machine and framework of the catalogue under any degrees that
// are possible for it.
#pragma once

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/counter_rng.h"
#include "frameworks/workload.h"

namespace trainctl::frameworks {

class RandomJobs {
 public:
  explicit RandomJobs(uint64_t seed) : seed_(seed) {}

  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(RandomBelow(seed_, 0, index_++, static_cast<uint64_t>(bound)));
  }
  int64_t PowerOfTwo(int64_t most_log2) { return int64_t{1} << Below(most_log2 + 1); }
  bool Coin() { return Below(2) == 1; }

  // A valid job; some in ten tries are not possible and are drawn again.
  Workload Next() {
    for (;;) {
      Workload w = Draw();
      if (Validate(w).ok()) return w;
    }
  }

 private:
  Workload Draw() {
    Workload w;
    model::ModelSpec& a = w.model;
    a.heads = PowerOfTwo(7);
    a.kv_heads = Coin() ? a.heads : std::max<int64_t>(1, a.heads / PowerOfTwo(3));
    a.head_dim = 64 << Below(2);
    a.hidden = a.heads * a.head_dim;
    a.ffn = 128 * (1 + Below(200));
    a.layers = 1 + Below(128);
    a.vocab = 1000 + Below(200'000);
    a.gated_mlp = Coin();
    a.qkv_bias = a.attention_out_bias = a.mlp_bias = Coin();
    a.layer_norm = Coin();
    a.tie_embeddings = Coin();
    a.dropout = Below(8) == 0;
    if (Below(4) == 0) {
      a.experts = model::Experts{.num_experts = PowerOfTwo(7), .top_k = 1, .ffn = 128 * (1 + Below(32))};
      a.experts->top_k = std::min<int64_t>(a.experts->num_experts, PowerOfTwo(3));
      a.experts->shared_ffn = Coin() ? a.experts->ffn : 0;
      a.experts->dense_layers = Coin() ? 0 : Below(a.layers + 1);
    }
    w.seq_len = PowerOfTwo(7) * 256;
    w.precision = static_cast<Precision>(Below(6));
    w.recompute = static_cast<RecomputeKind>(Below(3));
    w.device =
        &cluster::Devices()[static_cast<size_t>(Below(static_cast<int64_t>(cluster::Devices().size())))];
    w.node = &cluster::DefaultNodeFor(*w.device);
    w.framework = &Frameworks()[static_cast<size_t>(Below(static_cast<int64_t>(Frameworks().size())))];
    w.mesh.tp = PowerOfTwo(3);
    w.mesh.pp = Coin() ? 1 : 1 + Below(16);
    w.virtual_stages = w.mesh.pp > 1 && Below(3) == 0 ? 1 + Below(4) : 1;
    w.mesh.cp = Below(4) == 0 ? PowerOfTwo(3) : 1;
    const int64_t dp = PowerOfTwo(8);
    w.mesh.dp_replicate = dp;
    w.mesh.ep = a.experts.has_value() ? std::min(PowerOfTwo(5), a.experts->num_experts) : 1;
    if (!w.mesh.HasExpertView()) w.mesh.ep = 1;
    w.zero_stage = static_cast<int>(Below(4));
    w.mesh.dp_shard = Below(4) == 0 ? std::max<int64_t>(1, dp / PowerOfTwo(3)) : dp;
    w.mesh.dp_replicate = dp / w.mesh.dp_shard;
    w.micro_batch = PowerOfTwo(3);
    const int64_t micro_batches = Below(3) == 0 ? w.mesh.pp * PowerOfTwo(3) : 1 + Below(64);
    w.global_batch = w.micro_batch * dp * micro_batches;
    w.half_moments = w.framework->selects_modules && a.vocab % 4 == 0;
    return w;
  }

  uint64_t seed_;
  uint64_t index_ = 0;
};

inline std::string DescribeJob(const Workload& w) {
  return absl::StrCat(w.framework->name, " on ", w.device->name, ": ", w.model.layers, " x ", w.model.hidden,
                      " ffn ", w.model.ffn, " heads ", w.model.heads, "/", w.model.kv_heads, " vocab ",
                      w.model.vocab, w.model.experts.has_value() ? " experts " : "",
                      w.model.experts.has_value() ? absl::StrCat(w.model.experts->num_experts) : "", " seq ",
                      w.seq_len, " precision ", static_cast<int>(w.precision), " recompute ",
                      static_cast<int>(w.recompute), " tp ", w.mesh.tp, " pp ", w.mesh.pp, " v ",
                      w.virtual_stages, " cp ", w.mesh.cp, " ep ", w.mesh.ep, " dp ", w.mesh.data_degree(),
                      " zero ", w.zero_stage, " group ", w.mesh.dp_shard, " micro-batch ", w.micro_batch,
                      " batch ", w.global_batch);
}

}  // namespace trainctl::frameworks
