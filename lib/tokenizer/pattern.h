// The regular expressions of tokenizer files, in the syntax of Oniguruma, which the reference implementation
// uses. PCRE2 runs them; where the two read the same words differently, the pattern is rewritten, or refused.
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

// A stretch of a text, in bytes.
struct Span {
  size_t begin = 0;
  size_t end = 0;
};

struct Match {
  Span span;
  bool is_match = false;
};

// What one thread needs while it matches; for any pattern, one at a time.
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

// Thread safe; a scratch is not.
class Pattern {
 public:
  // `what` names the field in errors. BadDataError: not a pattern, or one that is not known here.
  static absl::StatusOr<Pattern> Compile(absl::string_view oniguruma, absl::string_view what);
  static absl::StatusOr<Pattern> Literal(absl::string_view text, absl::string_view what);

  // Tells matches and what lies between them, in their order; together they are the whole of `text`, which
  // must be UTF-8. A match may be empty, but in an empty text there is none. `see` must not use the scratch.
  // BadDataError: a search gave up, as it needed too many steps. Steps are counted for each search from one
  // place only: a pattern that fails far behind each place takes time with the square of the text.
  absl::Status ForEach(absl::string_view text, MatchScratch& scratch,
                       absl::FunctionRef<void(const Match&)> see) const;
  // The same, appended.
  absl::Status FindAll(absl::string_view text, MatchScratch& scratch, std::vector<Match>* found) const;

 private:
  Pattern() = default;
  static absl::StatusOr<Pattern> CompilePcre2(const std::string& pcre2, absl::string_view what);
  absl::StatusOr<bool> Next(absl::string_view text, size_t from, MatchScratch& scratch, Span* match) const;

  std::string what_;
  std::string literal_;  // where the pattern is plain text, found without PCRE2
  bool has_jit_ = false;
  std::shared_ptr<void> code_;
  std::shared_ptr<void> limits_;
  std::shared_ptr<const StandIns> stand_ins_;  // null if PCRE2 sees the text itself
};

}  // namespace trainctl::tokenizer
