// What an interrupted preparation has safely on the disk, and whether a later one may go on from it:
// PREFIX.prepare.part, schema "trainctl.prepare.v1", replaced as a whole at each commit. Pure but for
// LoadState and SaveState.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "data/batch_source.h"
#include "data/jsonl_reader.h"

namespace trainctl::data {

struct SourceState {
  std::string path;
  std::string kind;         // "jsonl" or "text"
  FileFingerprint found;    // before it was read; of pieces for a large file
  FileFingerprint whole;    // of all of it; set in all but the last of a state
  int64_t texts_taken = 0;  // that are not empty
  int64_t documents = 0;    // that they became
  int64_t tokens = 0;
  LeftOutLines left_out;  // set with `whole`
};

// The setting that may change from "stop" to "skip": work done before has no bad line.
inline constexpr const char* kOnBadLine = "--on-bad-line";

struct PrepareState {
  // What must be the same for tokens to be the same: name and value of each option.
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<SourceState> sources;  // in their order, up to the one whose text was the last taken
  // All is done but for the last renames.
  bool is_sealed = false;
  FileFingerprint data, index;  // when sealed

  int64_t documents() const;
  int64_t tokens() const;
  LeftOutLines left_out() const;
};

// Of an old state and what is asked for now.
struct Continuation {
  size_t num_sources = 0;  // of the old state's sources may be gone on from; 0: begin anew
  std::string reason;      // why not all, for people; empty: all
};
// `now` has as many sources as the old one, or fewer where fewer are asked for; of each path, kind and
// `found` are looked at.
Continuation CompareStates(const PrepareState& old, const PrepareState& now);

std::string StatePath(const std::string& prefix);
// Nothing where there is none. BadDataError for one that is damaged or of another version.
absl::StatusOr<std::optional<PrepareState>> LoadState(const std::string& prefix);
absl::Status SaveState(const std::string& prefix, const PrepareState& state);

// Parts of SaveState and LoadState. `what` names the text in errors.
std::string StateJson(const PrepareState& state);
absl::StatusOr<PrepareState> ParseState(absl::string_view text, const std::string& what);

}  // namespace trainctl::data
