// Enumerates the operator passes that an instruction on a block runs. Shared by the simulator and the
// verifier.
#pragma once

#include "model/segment.h"
#include "schedule/step.h"

namespace trainctl::schedule {

// Calls visit(op, passes, is_again) for the operators of a block in the order of the table, although a
// backward executes them in reverse. `passes` is a set of passes that run back to back on that operator. It
// may contain passes that the operator's kind does not have. `is_again` is true if a backward repeats the
// forward of an operator whose outputs were not kept. `pass` must be an Op that runs a block (RunsBlock).
template <typename Visit>
void VisitOperators(const model::Segment& segment, Op pass, const Visit& visit) {
  using model::Pass;
  constexpr model::PassSet kForward = {Pass::kForward};
  constexpr model::PassSet kGradients = {Pass::kInputGradient, Pass::kWeightGradient};
  const size_t num_operators =
      pass == Op::kRecompute ? model::NumOperatorsThatSave(segment) : segment.operators.size();
  for (size_t i = 0; i < num_operators; ++i) {
    const model::Operator& op = segment.operators[i];
    switch (pass) {
      case Op::kForward:
      case Op::kRecompute:
      case Op::kLoss:
        visit(op, kForward, /*is_again=*/false);
        break;
      case Op::kLossAndGradient:
        if (model::EntryOf(op.kind).passes.Has(Pass::kLossAndGradient)) {
          visit(op, model::PassSet{Pass::kLossAndGradient}, /*is_again=*/false);
        } else {
          visit(op, kForward, /*is_again=*/false);
          visit(op, kGradients, /*is_again=*/false);
        }
        break;
      case Op::kBackward:
        if (op.formed_again) visit(op, kForward, /*is_again=*/true);
        visit(op, kGradients, /*is_again=*/false);
        break;
      case Op::kBackwardInput:
        if (op.formed_again) visit(op, kForward, /*is_again=*/true);
        visit(op, model::PassSet{Pass::kInputGradient}, /*is_again=*/false);
        break;
      case Op::kBackwardWeight:
        if (op.HasWeightGradient()) visit(op, model::PassSet{Pass::kWeightGradient}, /*is_again=*/false);
        break;
      default:
        break;
    }
  }
}

}  // namespace trainctl::schedule
