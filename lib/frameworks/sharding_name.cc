#include "frameworks/sharding_name.h"

#include "absl/strings/str_cat.h"

namespace trainctl::frameworks {

std::string ShardingName(const Workload& w) {
  std::string ranks = w.mesh.dp_shard > 1 || w.mesh.cp == 1 ? absl::StrCat(w.mesh.dp_shard) : "";
  if (w.mesh.cp > 1) absl::StrAppend(&ranks, ranks.empty() ? "" : " x ", "cp ", w.mesh.cp);
  return absl::StrCat("ZeRO-", w.zero_stage, " over ", ranks);
}

}  // namespace trainctl::frameworks
