#include "run/attention_choices.h"

#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/status.h"

namespace trainctl::run {
namespace {

constexpr char kSchema[] = "trainctl.attention.v1";

// The members that say which device and shape a choice is for.
template <typename Choice>
auto KeyOf(Choice& choice) {
  return std::tie(choice.device, choice.batch, choice.seq_len, choice.heads, choice.kv_heads,
                  choice.head_dim);
}

absl::StatusOr<AttentionChoice> ParseChoice(const Json& json, absl::string_view path) {
  if (!json.is_object()) return BadDataError(absl::StrCat(path, ": each choice must be an object"));
  AttentionChoice choice;
  TRAINCTL_ASSIGN_OR_RETURN(choice.device, JsonString(json, "device", path));
  TRAINCTL_ASSIGN_OR_RETURN(choice.batch, JsonInt(json, "batch", path));
  TRAINCTL_ASSIGN_OR_RETURN(choice.seq_len, JsonInt(json, "seq_len", path));
  TRAINCTL_ASSIGN_OR_RETURN(choice.heads, JsonInt(json, "heads", path));
  TRAINCTL_ASSIGN_OR_RETURN(choice.kv_heads, JsonInt(json, "kv_heads", path));
  TRAINCTL_ASSIGN_OR_RETURN(choice.head_dim, JsonInt(json, "head_dim", path));
  const auto cudnn = json.find("cudnn_seconds");
  if (cudnn == json.end() || !cudnn->is_null()) {
    TRAINCTL_ASSIGN_OR_RETURN(choice.cudnn_seconds, JsonDouble(json, "cudnn_seconds", path));
  }
  TRAINCTL_ASSIGN_OR_RETURN(choice.flash_seconds, JsonDouble(json, "flash_seconds", path));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string kernel, JsonString(json, "kernel", path));
  if (kernel != "cudnn" && kernel != "flash") {
    return BadDataError(absl::StrCat(path, ": field 'kernel' must be \"cudnn\" or \"flash\""));
  }
  choice.uses_cudnn = kernel == "cudnn";
  return choice;
}

absl::StatusOr<std::vector<AttentionChoice>> ParseFile(absl::string_view text, absl::string_view path) {
  TRAINCTL_ASSIGN_OR_RETURN(const Json json, ParseJson(text, path));
  const auto list = json.find("choices");
  if (!json.is_object() || list == json.end() || !list->is_array()) {
    return BadDataError(absl::StrCat(path, ": field 'choices' must be a list"));
  }
  std::vector<AttentionChoice> choices;
  for (const Json& each : *list) {
    TRAINCTL_ASSIGN_OR_RETURN(AttentionChoice choice, ParseChoice(each, path));
    choices.push_back(std::move(choice));
  }
  return choices;
}

}  // namespace

std::string FormatAttentionChoices(const std::vector<AttentionChoice>& choices) {
  Json json = {{"schema", kSchema}, {"choices", Json::array()}};
  for (const AttentionChoice& choice : choices) {
    json["choices"].push_back({{"device", choice.device},
                               {"batch", choice.batch},
                               {"seq_len", choice.seq_len},
                               {"heads", choice.heads},
                               {"kv_heads", choice.kv_heads},
                               {"head_dim", choice.head_dim},
                               {"cudnn_seconds", choice.cudnn_seconds ? Json(*choice.cudnn_seconds) : Json()},
                               {"flash_seconds", choice.flash_seconds},
                               {"kernel", choice.uses_cudnn ? "cudnn" : "flash"}});
  }
  return FormatJson(json, 2) + "\n";
}

absl::StatusOr<std::vector<AttentionChoice>> ParseAttentionChoices(absl::string_view text,
                                                                   absl::string_view path) {
  absl::StatusOr<std::vector<AttentionChoice>> choices = ParseFile(text, path);
  if (choices.ok()) return choices;
  return BadDataError(
      absl::StrCat(choices.status().message(),
                   "; restore the file from a copy of the run, or remove it. If you remove it, the kernels "
                   "are timed again, and later steps may differ in their last bits"));
}

const AttentionChoice* FindAttentionChoice(const std::vector<AttentionChoice>& choices,
                                           const AttentionChoice& wanted) {
  for (const AttentionChoice& choice : choices) {
    if (KeyOf(choice) == KeyOf(wanted)) return &choice;
  }
  return nullptr;
}

}  // namespace trainctl::run
