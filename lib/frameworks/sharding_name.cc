#include "frameworks/sharding_name.h"

#include "absl/strings/str_cat.h"

namespace trainctl::frameworks {

std::string ShardingName(const Degrees& d) {
  std::string ranks = d.shard_group > 1 || d.cp == 1 ? absl::StrCat(d.shard_group) : "";
  if (d.cp > 1) absl::StrAppend(&ranks, ranks.empty() ? "" : " x ", "cp ", d.cp);
  return absl::StrCat("ZeRO-", d.zero_stage, " over ", ranks);
}

}  // namespace trainctl::frameworks
