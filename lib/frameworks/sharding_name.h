// How states are sharded, in words. Pure; thread safe.
#pragma once

#include <string>

#include "frameworks/workload.h"

namespace trainctl::frameworks {

// "ZeRO-1 over 64"; context parallel ranks share states too: "ZeRO-3 over 4 x cp 8", or "ZeRO-3 over cp 8".
// `workload.zero_stage` is not 0.
std::string ShardingName(const Workload& workload);

}  // namespace trainctl::frameworks
