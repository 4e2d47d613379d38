#include "tokenizer/config_beside.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/strict_json.h"

namespace trainctl::tokenizer {
namespace {

using Json = nlohmann::json;

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

}  // namespace

std::vector<std::string> DifferencesOfConfigBeside(const Tokenizer& tokenizer, const std::string& file) {
  std::vector<std::string> differences;
  const std::filesystem::path path = std::filesystem::path(file).parent_path() / "tokenizer_config.json";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return differences;
  const absl::StatusOr<std::string> text = ReadFile(path.string(), kMaxConfigBytes);
  if (!text.ok()) return differences;
  const absl::StatusOr<Json> config = ParseStrictJson<Json>(*text, path.string());
  if (!config.ok() || !config->is_object()) return differences;
  const std::string eos = TokenAt(*config, "eos_token");
  const int32_t eos_id = eos.empty() ? -1 : tokenizer.IdOf(eos);
  const int32_t end_id = tokenizer.end_of_document_id();
  if (eos_id >= 0 && eos_id != end_id) {
    differences.push_back(absl::StrCat(
        "tokenizer_config.json has eos_token ", eos, " (", eos_id, "); here ",
        end_id < 0 ? "no token ends a document"
                   : absl::StrCat("a document ends with ", tokenizer.TokenOf(end_id), " (", end_id, ")")));
  }
  if (IsTrue(*config, "add_bos_token") && tokenizer.prefix_ids().empty()) {
    differences.push_back("tokenizer_config.json has add_bos_token; here nothing is put before a text");
  }
  if (IsTrue(*config, "add_eos_token") && tokenizer.suffix_ids().empty()) {
    differences.push_back("tokenizer_config.json has add_eos_token; here nothing is put behind a text");
  }
  return differences;
}

}  // namespace trainctl::tokenizer
