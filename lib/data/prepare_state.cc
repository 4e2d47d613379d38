#include "data/prepare_state.h"

#include <algorithm>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/json.h"
#include "base/status.h"

namespace trainctl::data {
namespace {

constexpr const char* kSchema = "trainctl.prepare.v1";
// Sums of tokens and documents stay far from overflow.
constexpr int64_t kMaxCount = int64_t{1} << 56;

Json FingerprintJson(const FileFingerprint& file) {
  return {{"bytes", file.size_bytes}, {"xxh3", absl::StrFormat("%016x", file.xxh3)}};
}

absl::StatusOr<int64_t> Count(const Json& object, absl::string_view key, const std::string& what) {
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t count, JsonInt(object, key, what));
  if (count < 0 || count > kMaxCount) {
    return BadDataError(absl::StrCat(what, ": field '", key, "' cannot be ", count));
  }
  return count;
}

absl::StatusOr<FileFingerprint> ParseFingerprint(const Json& object, const char* key, const std::string& path,
                                                 const std::string& what) {
  if (!object.contains(key) || !object[key].is_object()) {
    return BadDataError(absl::StrCat(what, ": field '", key, "' must be an object"));
  }
  FileFingerprint file;
  file.path = path;
  TRAINCTL_ASSIGN_OR_RETURN(file.size_bytes, Count(object[key], "bytes", what));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string digest, JsonString(object[key], "xxh3", what));
  if (digest.size() != 16 || !absl::SimpleHexAtoi(digest, &file.xxh3)) {
    return BadDataError(absl::StrCat(what, ": field 'xxh3' must be 16 hexadecimal digits"));
  }
  return file;
}

Json LeftOutJson(const LeftOutLines& lines) { return {{"lines", lines.count}, {"first", lines.first}}; }

// None if the field is absent.
absl::StatusOr<LeftOutLines> ParseLeftOut(const Json& entry, const std::string& what) {
  LeftOutLines lines;
  if (!entry.contains("left_out")) return lines;
  const Json& object = entry["left_out"];
  TRAINCTL_ASSIGN_OR_RETURN(lines.count, Count(object, "lines", what));
  const Json first = object.value("first", Json());
  const int64_t num_named = std::min<int64_t>(lines.count, LeftOutLines::kMaxNamed);
  if (!first.is_array() || static_cast<int64_t>(first.size()) != num_named) {
    return BadDataError(absl::StrCat(what, ": field 'first' must be a list of ", num_named));
  }
  for (const Json& reason : first) {
    if (!reason.is_string())
      return BadDataError(absl::StrCat(what, ": field 'first' must contain only strings"));
    lines.first.push_back(reason.get<std::string>());
  }
  return lines;
}

absl::StatusOr<SourceState> ParseSource(const Json& entry, const std::string& what) {
  if (!entry.is_object()) return BadDataError(absl::StrCat(what, ": each source must be an object"));
  SourceState source;
  TRAINCTL_ASSIGN_OR_RETURN(source.path, JsonString(entry, "path", what));
  TRAINCTL_ASSIGN_OR_RETURN(source.kind, JsonString(entry, "kind", what));
  TRAINCTL_ASSIGN_OR_RETURN(source.found, ParseFingerprint(entry, "found", source.path, what));
  TRAINCTL_ASSIGN_OR_RETURN(source.whole, ParseFingerprint(entry, "whole", source.path, what));
  TRAINCTL_ASSIGN_OR_RETURN(source.texts_taken, Count(entry, "texts_taken", what));
  TRAINCTL_ASSIGN_OR_RETURN(source.documents, Count(entry, "documents", what));
  TRAINCTL_ASSIGN_OR_RETURN(source.tokens, Count(entry, "tokens", what));
  TRAINCTL_ASSIGN_OR_RETURN(source.left_out, ParseLeftOut(entry, what));
  if (source.documents > source.texts_taken || (source.documents == 0 && source.tokens > 0)) {
    return BadDataError(absl::StrCat(what, ": ", source.path, " cannot have ", source.documents,
                                     " documents of ", source.tokens, " tokens from ", source.texts_taken,
                                     " texts"));
  }
  return source;
}

}  // namespace

int64_t PrepareState::documents() const {
  int64_t sum = 0;
  for (const SourceState& source : sources) sum += source.documents;
  return sum;
}

int64_t PrepareState::tokens() const {
  int64_t sum = 0;
  for (const SourceState& source : sources) sum += source.tokens;
  return sum;
}

LeftOutLines PrepareState::left_out() const {
  LeftOutLines lines;
  for (const SourceState& source : sources) lines.Add(source.left_out);
  return lines;
}

Continuation CompareStates(const PrepareState& old, const PrepareState& now) {
  for (size_t i = 0; i < std::max(old.settings.size(), now.settings.size()); ++i) {
    if (i >= old.settings.size() || i >= now.settings.size() ||
        old.settings[i].first != now.settings[i].first) {
      return {0, "it was made by another version of trainctl"};
    }
    const bool skips_now = now.settings[i] == std::pair<std::string, std::string>(kOnBadLine, "skip");
    if (old.settings[i] != now.settings[i] && !skips_now) {
      return {0, absl::StrCat(old.settings[i].first, " was ", old.settings[i].second, " and is now ",
                              now.settings[i].second)};
    }
  }
  for (size_t i = 0; i < old.sources.size(); ++i) {
    const SourceState& before = old.sources[i];
    if (i >= now.sources.size()) return {i, absl::StrCat(before.path, " is no longer an input")};
    const SourceState& after = now.sources[i];
    if (before.path != after.path) {
      return {i, absl::StrCat("input ", i + 1, " was ", before.path, " and is now ", after.path)};
    }
    if (before.kind != after.kind) {
      return {i, absl::StrCat(before.path, " was read as ", before.kind, " and is now ", after.kind)};
    }
    if (before.found.size_bytes != after.found.size_bytes || before.found.xxh3 != after.found.xxh3) {
      return {i, absl::StrCat(before.path, " has changed")};
    }
  }
  return {old.sources.size(), ""};
}

std::string StatePath(const std::string& prefix) { return prefix + ".prepare.part"; }

std::string StateJson(const PrepareState& state) {
  Json settings = Json::array();
  for (const auto& [name, value] : state.settings) settings.push_back({name, value});
  Json sources = Json::array();
  for (const SourceState& source : state.sources) {
    sources.push_back({{"path", source.path},
                       {"kind", source.kind},
                       {"found", FingerprintJson(source.found)},
                       {"whole", FingerprintJson(source.whole)},
                       {"texts_taken", source.texts_taken},
                       {"documents", source.documents},
                       {"tokens", source.tokens},
                       {"left_out", LeftOutJson(source.left_out)}});
  }
  const Json report = {{"schema", kSchema},
                       {"settings", std::move(settings)},
                       {"is_sealed", state.is_sealed},
                       {"data", FingerprintJson(state.data)},
                       {"index", FingerprintJson(state.index)},
                       {"sources", std::move(sources)}};
  return FormatJson(report, 1);
}

absl::StatusOr<PrepareState> ParseState(absl::string_view text, const std::string& what) {
  TRAINCTL_ASSIGN_OR_RETURN(const Json report, ParseJson(text, what));
  if (!report.is_object()) return BadDataError(absl::StrCat(what, ": must be an object"));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string schema, JsonString(report, "schema", what));
  if (schema != kSchema) {
    return BadDataError(
        absl::StrCat(what, ": schema '", schema, "', but this program reads '", kSchema, "'"));
  }
  PrepareState state;
  for (const char* key : {"settings", "sources"}) {
    if (!report.contains(key) || !report[key].is_array()) {
      return BadDataError(absl::StrCat(what, ": field '", key, "' must be a list"));
    }
  }
  for (const Json& setting : report["settings"]) {
    if (!setting.is_array() || setting.size() != 2 || !setting[0].is_string() || !setting[1].is_string()) {
      return BadDataError(absl::StrCat(what, ": each setting must be a name and a value"));
    }
    state.settings.emplace_back(setting[0].get<std::string>(), setting[1].get<std::string>());
  }
  TRAINCTL_ASSIGN_OR_RETURN(state.is_sealed, JsonBool(report, "is_sealed", what));
  TRAINCTL_ASSIGN_OR_RETURN(state.data, ParseFingerprint(report, "data", "", what));
  TRAINCTL_ASSIGN_OR_RETURN(state.index, ParseFingerprint(report, "index", "", what));
  int64_t documents = 0;
  int64_t tokens = 0;
  int64_t left_out = 0;
  for (const Json& entry : report["sources"]) {
    TRAINCTL_ASSIGN_OR_RETURN(SourceState source, ParseSource(entry, what));
    documents += source.documents;
    tokens += source.tokens;
    left_out += source.left_out.count;
    if (documents > kMaxCount || tokens > kMaxCount || left_out > kMaxCount) {
      return BadDataError(absl::StrCat(what, ": implausibly many tokens"));
    }
    state.sources.push_back(std::move(source));
  }
  return state;
}

absl::StatusOr<std::optional<PrepareState>> LoadState(const std::string& prefix) {
  const std::string path = StatePath(prefix);
  if (!PathExists(path)) return std::optional<PrepareState>();
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  TRAINCTL_ASSIGN_OR_RETURN(PrepareState state, ParseState(text, path));
  return std::optional<PrepareState>(std::move(state));
}

absl::Status SaveState(const std::string& prefix, const PrepareState& state) {
  return WriteFileAtomic(StatePath(prefix), StateJson(state) + "\n");
}

}  // namespace trainctl::data
