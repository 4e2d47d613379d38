// What one operator of a segment asks of the machine, read off the table that the executor runs. Pure.
#pragma once

#include "model/segment.h"
#include "simulate/cost.h"

namespace trainctl::simulate {

enum class Pass : uint8_t { kForward, kBackward, kForwardAndBackward };

// Any operator but kLinearCrossEntropy. Attention is that of one document per sequence: sequences
// packed from several need less.
Work ForwardWork(const model::ModelSpec& spec, const model::Segment& segment, const model::Operator& op);
// accumulate: weight gradients are added to what is there.
Work BackwardWork(const model::ModelSpec& spec, const model::Segment& segment, const model::Operator& op,
                  bool accumulate);
// The head's product with the loss, and with both gradients.
Work LossWork(const model::ModelSpec& spec, const model::Segment& segment, bool gradient);

}  // namespace trainctl::simulate
