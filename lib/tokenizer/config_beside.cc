#include "tokenizer/config_beside.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/json.h"
#include "base/lfs_pointer.h"
#include "base/status.h"

namespace trainctl::tokenizer {
namespace {

constexpr int64_t kMaxConfigBytes = int64_t{1} << 24;

// "</s>" or {"content": "</s>", ...}; empty where it is neither.
std::string TokenAt(const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_object()) return "";
  const auto content = found->find("content");
  return content != found->end() && content->is_string() ? content->get<std::string>() : "";
}

bool IsTrue(const Json& config, const char* key) {
  const auto found = config.find(key);
  return found != config.end() && found->is_boolean() && found->get<bool>();
}

// Null if the file does not exist or holds no JSON object.
Json ReadBeside(const std::string& file, const char* name) {
  const std::filesystem::path path = std::filesystem::path(file).parent_path() / name;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return nullptr;
  const absl::StatusOr<std::string> text = ReadFile(path.string(), kMaxConfigBytes);
  if (!text.ok()) return nullptr;
  absl::StatusOr<Json> config = ParseJson(*text, path.string());
  return config.ok() && config->is_object() ? *std::move(config) : Json(nullptr);
}

// The ids in eos_token_id, a number or a list, that are tokens.
std::vector<int32_t> EndIds(const Tokenizer& tokenizer, const Json& config) {
  const auto found = config.find("eos_token_id");
  if (found == config.end()) return {};
  std::vector<int32_t> ids;
  for (const Json& id : found->is_array() ? *found : Json::array({*found})) {
    if (!id.is_number_integer()) continue;
    const int64_t value = id.get<int64_t>();
    if (value < 0 || value >= tokenizer.vocab_size()) continue;
    if (!tokenizer.TokenOf(static_cast<int32_t>(value)).empty()) ids.push_back(static_cast<int32_t>(value));
  }
  return ids;
}

}  // namespace

absl::Status RefuseLfsPointersBeside(const std::string& file) {
  for (const char* name :
       {"tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "config.json"}) {
    TRAINCTL_RETURN_IF_ERROR(
        RefuseLfsPointerFile((std::filesystem::path(file).parent_path() / name).string()));
  }
  return absl::OkStatus();
}

int32_t EndOfDocumentBeside(const Tokenizer& tokenizer, const std::string& file) {
  const int32_t own = tokenizer.end_of_document_id();
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const Json config = ReadBeside(file, name);
    if (!config.is_object()) continue;
    const std::string token = TokenAt(config, "eos_token");
    const int32_t id = token.empty() ? -1 : tokenizer.IdOf(token);
    if (id >= 0) return id;
  }
  for (const char* name : {"generation_config.json", "config.json"}) {
    const Json config = ReadBeside(file, name);
    if (!config.is_object()) continue;
    const std::vector<int32_t> ids = EndIds(tokenizer, config);
    if (ids.empty()) continue;
    return std::find(ids.begin(), ids.end(), own) != ids.end() ? own : ids.front();
  }
  return own;
}

std::vector<std::string> DifferencesOfConfigBeside(const Tokenizer& tokenizer, const std::string& file) {
  std::vector<std::string> differences;
  const Json config = ReadBeside(file, "tokenizer_config.json");
  if (!config.is_object()) return differences;
  if (IsTrue(config, "add_bos_token") && tokenizer.prefix_ids().empty()) {
    differences.push_back(
        "tokenizer_config.json sets add_bos_token, but trainctl adds nothing before a text");
  }
  if (IsTrue(config, "add_eos_token") && tokenizer.suffix_ids().empty()) {
    differences.push_back("tokenizer_config.json sets add_eos_token, but trainctl adds nothing after a text");
  }
  return differences;
}

}  // namespace trainctl::tokenizer
