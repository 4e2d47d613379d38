#include "data/data_record.h"

#include <charconv>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/json.h"
#include "base/status.h"

namespace trainctl::data {
namespace {

constexpr char kSchema[] = "trainctl.data.v1";
constexpr size_t kHashDigits = 16;

std::optional<uint64_t> ParseHash(const std::string& text) {
  uint64_t hash = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, hash, 16);
  if (text.size() != kHashDigits || error != std::errc() || at != end) return std::nullopt;
  return hash;
}

std::optional<FileFingerprint> ParseFile(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  const auto path = json.find("path"), bytes = json.find("bytes"), hash = json.find("xxh3"),
             sampled = json.find("sampled");
  if (path == json.end() || !path->is_string() || bytes == json.end() || !bytes->is_number_integer() ||
      hash == json.end() || !hash->is_string() || (sampled != json.end() && !sampled->is_boolean())) {
    return std::nullopt;
  }
  const std::optional<uint64_t> xxh3 = ParseHash(hash->get<std::string>());
  if (!xxh3) return std::nullopt;
  return FileFingerprint{path->get<std::string>(), bytes->get<int64_t>(), *xxh3,
                         sampled != json.end() && sampled->get<bool>()};
}

}  // namespace

std::string FormatDataRecord(const std::vector<FileFingerprint>& files, const std::vector<SourceUse>& uses) {
  Json json = {{"schema", kSchema}, {"files", Json::array()}};
  for (const FileFingerprint& file : files) {
    json["files"].push_back(
        {{"path", file.path}, {"bytes", file.size_bytes}, {"xxh3", absl::StrFormat("%016x", file.xxh3)}});
    if (file.sampled) json["files"].back()["sampled"] = true;
  }
  for (const SourceUse& use : uses) {
    json["train"].push_back({{"source", use.source},
                             {"epoch_tokens", use.epoch_tokens},
                             {"epochs_per_step", use.epochs_per_step}});
  }
  return FormatJson(json, 2) + "\n";
}

std::vector<SourceUse> ParseSourceUses(const std::string& text) {
  const absl::StatusOr<Json> json = ParseJson(text, "data.json");
  if (!json.ok() || !json->is_object() || !json->contains("train") || !(*json)["train"].is_array()) return {};
  std::vector<SourceUse> uses;
  for (const Json& each : (*json)["train"]) {
    if (!each.is_object() || !each.contains("epochs_per_step") || !each["epochs_per_step"].is_number()) {
      return {};
    }
    const absl::StatusOr<std::string> source = JsonString(each, "source", "data.json");
    const absl::StatusOr<int64_t> tokens = JsonInt(each, "epoch_tokens", "data.json");
    if (!source.ok() || !tokens.ok()) return {};
    uses.push_back({*source, *tokens, each["epochs_per_step"].get<double>()});
  }
  return uses;
}

absl::StatusOr<std::vector<FileFingerprint>> ParseDataRecord(const std::string& text,
                                                             const std::string& path) {
  const absl::Status malformed =
      BadDataError(absl::StrCat(path,
                                ": expected \"files\", a list of objects written by a launch; restore the "
                                "file from a copy of the run, or launch a new run"));
  const absl::StatusOr<Json> json = ParseJson(text, path);
  if (!json.ok()) return BadDataError(json.status().message());
  const auto list = json->find("files");
  if (!json->is_object() || list == json->end() || !list->is_array()) return malformed;
  std::vector<FileFingerprint> files;
  for (const Json& each : *list) {
    std::optional<FileFingerprint> file = ParseFile(each);
    if (!file) return malformed;
    files.push_back(*std::move(file));
  }
  return files;
}

Json UsesToJson(const std::vector<SourceUse>& uses, int64_t steps) {
  Json json;
  for (const SourceUse& use : uses) {
    json.push_back({{"source", use.source},
                    {"epoch_tokens", use.epoch_tokens},
                    {"epochs", use.epochs_per_step * static_cast<double>(steps)}});
  }
  return json;
}

}  // namespace trainctl::data
