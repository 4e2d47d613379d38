// The exchanges between the ranks of a layout in a step, by the names of their collectives and messages. The
// mutation tests omit them one by one, and so does the search for a missing sum.
#pragma once

#include <string>
#include <vector>

#include "schedule/layout_step.h"

namespace trainctl::verify {

struct Exchange {
  std::string call;  // "gradient/3/dp_shard", the name passed to comm::FaultHook
  bool is_sum = false;
  bool is_message = false;  // if neither is set, it is a gather
  std::string axis;
  int micro_batch = -1;  // -1 if it belongs to the step
};

// Lists each exchange once.
std::vector<Exchange> ExchangesOf(const schedule::LayoutStep& planned);

}  // namespace trainctl::verify
