#include "model/special_tokens.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/json.h"

namespace trainctl::model {
namespace {

absl::StatusOr<std::vector<int64_t>> IdsAt(const Json& config, const char* key, absl::string_view what) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return std::vector<int64_t>{};
  const Json list = found->is_array() ? *found : Json::array({*found});
  if (!std::all_of(list.begin(), list.end(), [](const Json& id) { return id.is_number_integer(); })) {
    return BadDataError(absl::StrCat(what, ": field '", key, "' must be an id, a list of ids or null"));
  }
  return list.get<std::vector<int64_t>>();
}

}  // namespace

absl::StatusOr<SpecialTokens> ReadSpecialTokens(absl::string_view json_text, absl::string_view what) {
  TRAINCTL_ASSIGN_OR_RETURN(const Json config, ParseJson(json_text, what));
  if (!config.is_object()) return BadDataError(absl::StrCat(what, " is not a JSON object"));
  SpecialTokens tokens;
  TRAINCTL_ASSIGN_OR_RETURN(tokens.bos, IdsAt(config, "bos_token_id", what));
  TRAINCTL_ASSIGN_OR_RETURN(tokens.eos, IdsAt(config, "eos_token_id", what));
  TRAINCTL_ASSIGN_OR_RETURN(tokens.pad, IdsAt(config, "pad_token_id", what));
  return tokens;
}

}  // namespace trainctl::model
