// The regular expressions in tokenizer files. They are written for Oniguruma, which the reference
// implementation uses, but are executed here by PCRE2. A pattern that PCRE2 would interpret differently is
// rewritten or rejected.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::tokenizer {

class StandIns;

// A range of bytes in a text.
struct Span {
  size_t begin = 0;
  size_t end = 0;
};

struct Match {
  Span span;
  bool is_match = false;
};

// The scratch space of one thread's matching. It works with any pattern, but with only one at a time.
class MatchScratch {
 public:
  MatchScratch();
  MatchScratch(const MatchScratch&) = delete;
  MatchScratch& operator=(const MatchScratch&) = delete;
  ~MatchScratch();

 private:
  friend class Pattern;
  void* data_;
  std::string replaced_;
};

// A compiled pattern. Thread-safe, except that each thread needs its own scratch.
class Pattern {
 public:
  // Compiles a pattern. Returns BadDataError if it is invalid or uses an unsupported feature. `what` names
  // the field in errors.
  static absl::StatusOr<Pattern> Compile(absl::string_view oniguruma, absl::string_view what);
  static absl::StatusOr<Pattern> Literal(absl::string_view text, absl::string_view what);

  // Calls `see` with each match and each part between matches, in order. Together they cover `text`, which
  // must be UTF-8. A match may be empty, but an empty text has no matches. `see` must not use the scratch.
  // Returns BadDataError if a search takes too many steps. The limit applies per starting position, so a
  // pattern that scans far before it fails at each one still takes quadratic time.
  absl::Status ForEach(absl::string_view text, MatchScratch& scratch,
                       absl::FunctionRef<void(const Match&)> see) const;
  // Like ForEach, but appends to `found`.
  absl::Status FindAll(absl::string_view text, MatchScratch& scratch, std::vector<Match>* found) const;

 private:
  Pattern() = default;
  static absl::StatusOr<Pattern> CompilePcre2(const std::string& pcre2, absl::string_view what);
  absl::StatusOr<bool> Next(absl::string_view text, size_t from, MatchScratch& scratch, Span* match) const;

  std::string what_;
  std::string literal_;  // set if the pattern is plain text, which is matched without PCRE2
  bool has_jit_ = false;
  std::shared_ptr<void> code_;
  std::shared_ptr<void> limits_;
  std::shared_ptr<const StandIns> stand_ins_;  // null if PCRE2 matches the original text
};

}  // namespace trainctl::tokenizer
