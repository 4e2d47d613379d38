// What ranks exchange with one another: the operations that schedules issue, operators contain and clusters
// price.
#pragma once

#include <cstdint>

namespace trainctl {

enum class Collective : uint8_t { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kSendRecv, kBroadcast };

}  // namespace trainctl
