#include "model/operators.h"

#include "model/operator_common.h"
#include "model/segment.h"

namespace trainctl::model {

std::vector<OperatorExchange> ExchangesOf(const Segment& segment, const Operator& op, Pass pass) {
  std::vector<OperatorExchange> list;
  const OperatorEntry& entry = EntryOf(op.kind);
  const bool can_have = segment.tensor.ranks > 1 && entry.passes.Has(pass);
  if (can_have && entry.exchanges != nullptr) entry.exchanges(segment, op, pass, list);
  return list;
}

Work WorkOf(const Segment& segment, const Operator& op, PassSet passes, bool accumulate) {
  const OperatorEntry& entry = EntryOf(op.kind);
  Work work;
  for (const Pass pass : kPasses) {
    if (!passes.Has(pass) || !entry.passes.Has(pass)) continue;
    work += entry.work(segment, op, pass, accumulate);
    for (const OperatorExchange& exchange : ExchangesOf(segment, op, pass))
      AddExchange(exchange, segment.tensor.ranks, work);
  }
  return work;
}

}  // namespace trainctl::model
