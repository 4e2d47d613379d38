#include "model/operators.h"

#include "model/segment.h"

namespace trainctl::model {

Work BackwardWork(const Segment& segment, const Operator& op, bool accumulate) {
  const OperatorEntry& entry = EntryOf(op.kind);
  Work work;
  if (entry.input_gradient_work != nullptr) work += entry.input_gradient_work(segment, op, accumulate);
  if (entry.weight_gradient_work != nullptr) work += entry.weight_gradient_work(segment, op, accumulate);
  return work;
}

}  // namespace trainctl::model
