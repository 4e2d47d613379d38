// The communication operations between ranks. Schedules issue them, operators contain them, and cluster
// models estimate their time.
#pragma once

#include <cstdint>

namespace trainctl {

enum class Collective : uint8_t { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kSendRecv, kBroadcast };

// Whether the ranks' contributions are added up.
inline bool IsSum(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
}

}  // namespace trainctl
