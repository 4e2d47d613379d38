#include "tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <utility>

#include "base/status.h"
#include "tokenizer/pattern_translate.h"
#include "tokenizer/stand_ins.h"
#include "tokenizer/utf8.h"

namespace trainctl::tokenizer {
namespace {

constexpr size_t kMaxPatternBytes = 1 << 16;
// Per search. The patterns of models need a handful of steps for each character of a match.
constexpr uint32_t kMaxSteps = 20'000'000;
constexpr uint32_t kMaxHeapKib = 256 * 1024;

std::string Pcre2Message(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

}  // namespace

MatchScratch::MatchScratch() : data_(pcre2_match_data_create(1, nullptr)) {
  TRAINCTL_CHECK(data_ != nullptr);
}
MatchScratch::~MatchScratch() { pcre2_match_data_free(static_cast<pcre2_match_data*>(data_)); }

absl::StatusOr<Pattern> Pattern::Compile(absl::string_view oniguruma, absl::string_view what) {
  if (!IsUtf8(oniguruma)) return BadDataError(absl::StrCat(what, ": the pattern is not UTF-8"));
  if (oniguruma.empty()) return BadDataError(absl::StrCat(what, ": the pattern is empty"));
  if (oniguruma.size() > kMaxPatternBytes) {
    return BadDataError(
        absl::StrCat(what, ": a pattern of ", oniguruma.size(), " bytes; the limit is ", kMaxPatternBytes));
  }
  TRAINCTL_ASSIGN_OR_RETURN(TranslatedPattern translated, TranslatePattern(oniguruma, what));
  TRAINCTL_ASSIGN_OR_RETURN(Pattern pattern, CompilePcre2(translated.pcre2, what));
  pattern.stand_ins_ = std::move(translated.stand_ins);
  return pattern;
}

absl::StatusOr<Pattern> Pattern::Literal(absl::string_view text, absl::string_view what) {
  if (text.empty()) return BadDataError(absl::StrCat(what, ": cannot search for an empty text"));
  Pattern pattern;
  pattern.literal_ = std::string(text);
  pattern.what_ = std::string(what);
  return pattern;
}

absl::StatusOr<Pattern> Pattern::CompilePcre2(const std::string& pcre2, absl::string_view what) {
  Pattern pattern;
  pattern.what_ = std::string(what);
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t where = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pcre2.data()), pcre2.size(),
                    PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &where, context.get());
  if (code == nullptr) {
    return BadDataError(absl::StrCat(what, ": invalid or unsupported pattern: ", Pcre2Message(error),
                                     " at byte ", where, " of '", pcre2, "'"));
  }
  pattern.code_ = std::shared_ptr<void>(code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); });
  pattern.has_jit_ = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
  pcre2_match_context* limits = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(limits, kMaxSteps);
  pcre2_set_heap_limit(limits, kMaxHeapKib);
  pattern.limits_ = std::shared_ptr<void>(
      limits, [](void* p) { pcre2_match_context_free(static_cast<pcre2_match_context*>(p)); });
  return pattern;
}

absl::StatusOr<bool> Pattern::Next(absl::string_view text, size_t from, MatchScratch& scratch,
                                   Span* match) const {
  if (code_ == nullptr) {
    const size_t found = text.find(literal_, from);
    if (found == absl::string_view::npos) return false;
    *match = {found, found + literal_.size()};
    return true;
  }
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  auto* data = static_cast<pcre2_match_data*>(scratch.data_);
  auto* limits = static_cast<pcre2_match_context*>(limits_.get());
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int result = PCRE2_ERROR_JIT_STACKLIMIT;
  if (has_jit_) result = pcre2_jit_match(code, subject, text.size(), from, 0, data, limits);
  // The machine code has a small stack; without it PCRE2 takes what it needs from the heap.
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
    result = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, limits);
  }
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0) {
    return BadDataError(absl::StrCat(what_, ": matching the pattern failed on a text of ", text.size(),
                                     " bytes at byte ", from, ": ", Pcre2Message(result)));
  }
  const size_t* found = pcre2_get_ovector_pointer(data);
  *match = {found[0], found[1]};
  return true;
}

absl::Status Pattern::FindAll(absl::string_view text, MatchScratch& scratch,
                              std::vector<Match>* found) const {
  return ForEach(text, scratch, [&](const Match& match) { found->push_back(match); });
}

absl::Status Pattern::ForEach(absl::string_view text, MatchScratch& scratch,
                              absl::FunctionRef<void(const Match&)> see) const {
  if (text.empty()) return absl::OkStatus();
  if (stand_ins_ != nullptr) text = stand_ins_->Replace(text, &scratch.replaced_);
  size_t covered = 0;  // up to here all is told
  size_t from = 0;
  bool at_match_end = false;  // an empty match right behind another is none
  while (from <= text.size()) {
    Span match;
    TRAINCTL_ASSIGN_OR_RETURN(const bool is_found, Next(text, from, scratch, &match));
    if (!is_found) break;
    if (match.begin == match.end && at_match_end && match.begin == from) {
      if (from == text.size()) break;
      from += CharBytes(text[from]);
      at_match_end = false;
      continue;
    }
    if (match.begin > covered) see({{covered, match.begin}, false});
    see({match, true});
    covered = match.end;
    from = match.end;
    at_match_end = true;
  }
  if (covered < text.size()) see({{covered, text.size()}, false});
  return absl::OkStatus();
}

}  // namespace trainctl::tokenizer
