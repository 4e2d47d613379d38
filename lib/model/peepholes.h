// Fuses pairs of adjacent operators. For some pairs, one kernel or call can execute a pass of both operators
// with less memory traffic than two separate calls. The operator table marks these pairs. The work estimates
// follow the marks, and lib/nn executes the pairs. Pure; thread-safe.
//
// To add a pair, add a row to peepholes.cc, and implement OperatorRunner::forward_with_next for the first
// kind or input_gradient_with_previous for the second (nn/operators.h).
#pragma once

#include "model/segment.h"

namespace trainctl::model {

// Sets `with_next` and `with_previous` of all operators in a complete segment.
void MarkPeepholes(Segment& segment);

}  // namespace trainctl::model
