#include "model/peepholes.h"

namespace trainctl::model {
namespace {

struct Peephole {
  OpKind first, second;
  Pass pass;
  bool (*applies)(const Segment& segment, const Operator& first, const Operator& second);
};

bool OnDevice(const Segment& segment, const Operator& first, const Operator& second) {
  return segment.on_device;
}

// Every head of queries and keys is rotated, and as a whole, in pairs of halves.
bool RotatesQueriesAndKeys(const Segment& segment, const Operator& rope, const Operator& attention) {
  const auto& angles = rope.As<RopeAttributes>();
  const auto& heads = attention.As<AttentionAttributes>();
  return angles.rotated_dim == heads.head_dim && angles.pairs == kernels::RopePairs::kHalves &&
         angles.rotated_heads == heads.heads + heads.kv_heads;
}

constexpr Peephole kPeepholes[] = {
    {OpKind::kAdd, OpKind::kRmsNorm, Pass::kForward, OnDevice},
    {OpKind::kRope, OpKind::kAttention, Pass::kInputGradient, RotatesQueriesAndKeys},
};

}  // namespace

void MarkPeepholes(Segment& segment) {
  for (size_t i = 0; i + 1 < segment.operators.size(); ++i) {
    Operator& first = segment.operators[i];
    Operator& second = segment.operators[i + 1];
    if (second.inputs != first.outputs) continue;
    for (const Peephole& peephole : kPeepholes) {
      if (first.kind != peephole.first || second.kind != peephole.second) continue;
      if (!peephole.applies(segment, first, second)) continue;
      first.with_next.Add(peephole.pass);
      second.with_previous.Add(peephole.pass);
    }
  }
}

}  // namespace trainctl::model
