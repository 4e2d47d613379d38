// What the ranks of a layout exchange in a step, by the names under which collectives and messages are
// called: what mutants leave out, and what a search for a missing sum looks at.
#pragma once

#include <string>
#include <vector>

#include "model/model_spec.h"
#include "schedule/layout_step.h"

namespace trainctl::verify {

struct Exchange {
  std::string call;  // "gradient/3/dp_shard", as comm::FaultHook is asked
  bool is_sum = false;
  bool is_message = false;  // neither: a gather
  std::string axis;
  int micro_batch = -1;  // -1: of the step
};

// Each once.
std::vector<Exchange> ExchangesOf(const schedule::LayoutStep& planned, const model::ModelSpec& spec);

}  // namespace trainctl::verify
