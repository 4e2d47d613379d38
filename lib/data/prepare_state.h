// Records the work of an interrupted preparation that is safely on disk, and decides whether a later one may
// continue from it. The record is PREFIX.prepare.part, schema "trainctl.prepare.v1", which each commit
// replaces as a whole. Pure except for LoadState and SaveState.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "data/batch_source.h"
#include "data/row_reader.h"

namespace trainctl::data {

struct SourceState {
  std::string path;
  std::string kind;         // name of the kind (KindName)
  FileFingerprint found;    // fingerprint before reading; covers only pieces of a large file
  FileFingerprint whole;    // fingerprint of all bytes; set for every source except the last
  int64_t texts_taken = 0;  // number of non-empty texts
  int64_t documents = 0;    // number of documents made from these texts
  int64_t tokens = 0;
  LeftOutLines left_out;  // set together with `whole`
};

// The only setting that may change when a preparation is continued, and only from "stop" to "skip". This is
// safe because finished work contains no bad lines.
inline constexpr const char* kOnBadLine = "--on-bad-line";

struct PrepareState {
  // Names and values of the options that determine the tokens.
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<SourceState> sources;  // sources in order, up to the one that contains the last text taken
  // Whether everything except the final renames is done.
  bool is_sealed = false;
  FileFingerprint data, index;  // set if sealed

  int64_t documents() const;
  int64_t tokens() const;
  LeftOutLines left_out() const;
};

// The result of comparing an old state with the current request.
struct Continuation {
  // Number of old sources from which work can continue; 0 means starting over.
  size_t num_sources = 0;
  // Human-readable reason if some sources cannot be continued. Otherwise empty.
  std::string reason;
};
// Compares an old state with the current request. `now` has at most as many sources as `old`, and fewer if
// fewer are requested. For each source, compares the path, the kind, and `found`.
Continuation CompareStates(const PrepareState& old, const PrepareState& now);

std::string StatePath(const std::string& prefix);
// Returns nullopt if there is no state. Returns BadDataError if it is damaged or was written by another
// version.
absl::StatusOr<std::optional<PrepareState>> LoadState(const std::string& prefix);
absl::Status SaveState(const std::string& prefix, const PrepareState& state);

// Parts of SaveState and LoadState. `what` names the text in error messages.
std::string StateJson(const PrepareState& state);
absl::StatusOr<PrepareState> ParseState(absl::string_view text, const std::string& what);

}  // namespace trainctl::data
