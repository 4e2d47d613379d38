#include "tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tokenizer/code_points.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/utf8.h"

namespace trainctl::tokenizer {
namespace {

enum class Behavior { kRemoved, kIsolated, kContiguous, kMergedWithPrevious, kMergedWithNext };

absl::StatusOr<Behavior> ParseBehavior(const JsonPart& part) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string name, StringAt(part, "behavior"));
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "Contiguous") return Behavior::kContiguous;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  return part.At("behavior").Bad(absl::StrCat("= '", name, "' is not known"));
}

// Joins or drops neighbours, in place of `matches`.
void Behave(Behavior behavior, std::vector<Match>& matches) {
  if (behavior == Behavior::kIsolated) return;
  std::vector<Match> kept;
  kept.reserve(matches.size());
  bool previous = false;
  const bool backwards = behavior == Behavior::kMergedWithNext;
  if (backwards) std::reverse(matches.begin(), matches.end());
  for (const Match& match : matches) {
    bool joins = false;
    switch (behavior) {
      case Behavior::kRemoved:
        if (!match.is_match) kept.push_back(match);
        continue;
      case Behavior::kContiguous:
        joins = match.is_match == previous;
        break;
      default:
        joins = match.is_match && !previous;
        break;
    }
    previous = match.is_match;
    if (!joins || kept.empty()) {
      kept.push_back(match);
    } else if (backwards) {
      kept.back().span.begin = match.span.begin;
    } else {
      kept.back().span.end = match.span.end;
    }
  }
  if (backwards) std::reverse(kept.begin(), kept.end());
  matches = std::move(kept);
}

class SplitStep : public PreTokenizerStep {
 public:
  SplitStep(Pattern pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  absl::Status Apply(Pieces& pieces, Scratch& scratch) const override {
    std::vector<Span> words;
    for (const Span& word : pieces.words) {
      scratch.matches.clear();
      const absl::string_view text(pieces.text.data() + word.begin, word.end - word.begin);
      TRAINCTL_RETURN_IF_ERROR(pattern_.FindAll(text, scratch.match, &scratch.matches));
      if (invert_) {
        for (Match& match : scratch.matches) match.is_match = !match.is_match;
      }
      Behave(behavior_, scratch.matches);
      for (const Match& match : scratch.matches) {
        if (match.span.begin == match.span.end) continue;
        words.push_back({word.begin + match.span.begin, word.begin + match.span.end});
      }
    }
    pieces.words = std::move(words);
    return absl::OkStatus();
  }

 private:
  Pattern pattern_;
  Behavior behavior_;
  bool invert_;
};

// Puts a space before each word that does not begin with one.
class PrefixSpaceStep : public PreTokenizerStep {
 public:
  absl::Status Apply(Pieces& pieces, Scratch&) const override {
    std::string text;
    for (Span& word : pieces.words) {
      const size_t begin = text.size();
      if (pieces.text[word.begin] != ' ') text.push_back(' ');
      text.append(pieces.text, word.begin, word.end - word.begin);
      word = {begin, text.size()};
    }
    pieces.text = std::move(text);
    return absl::OkStatus();
  }
};

class MetaspaceStep : public PreTokenizerStep {
 public:
  enum class Prepend { kAlways, kFirst, kNever };
  MetaspaceStep(std::string mark, Prepend prepend) : mark_(std::move(mark)), prepend_(prepend) {}

  absl::Status Apply(Pieces& pieces, Scratch&) const override {
    std::string text;
    for (Span& word : pieces.words) {
      const size_t begin = text.size();
      const bool at_beginning = pieces.is_first && word.begin == 0;
      const absl::string_view old(pieces.text.data() + word.begin, word.end - word.begin);
      const bool marked = old.front() == ' ' || absl::StartsWith(old, mark_);
      if (!marked && (prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && at_beginning)))
        text += mark_;
      for (const char c : old) {
        if (c == ' ') {
          text += mark_;
        } else {
          text.push_back(c);
        }
      }
      word = {begin, text.size()};
    }
    pieces.text = std::move(text);
    return absl::OkStatus();
  }

 private:
  std::string mark_;
  Prepend prepend_;
};

void AddStep(std::unique_ptr<PreTokenizerStep> step, PreTokenizer& out) {
  if (out.last_split != nullptr) {
    out.steps.push_back(std::make_unique<SplitStep>(std::move(*out.last_split), Behavior::kIsolated, false));
    out.last_split.reset();
  }
  if (step != nullptr) out.steps.push_back(std::move(step));
}

absl::Status AddSplit(Pattern pattern, Behavior behavior, bool invert, PreTokenizer& out) {
  if (behavior == Behavior::kIsolated) {
    AddStep(nullptr, out);
    out.last_split = std::make_unique<Pattern>(std::move(pattern));
  } else {
    AddStep(std::make_unique<SplitStep>(std::move(pattern), behavior, invert), out);
  }
  return absl::OkStatus();
}

// The characters that the reference's Digits splits at: numbers of Unicode 17.0, as in Rust's library.
CodePointSet Digits() {
  CodePointSet digits = *CharactersWith("N");
  digits.Add(0x11DE0, 0x11DE9);
  digits.Add(0x16FF4, 0x16FF6);
  return digits;
}

// The characters that the reference's Punctuation splits at.
CodePointSet Punctuation() {
  CodePointSet punctuation = PunctuationOfUnicode8();
  for (const char c : absl::string_view("$+<=>^`|~")) {
    punctuation.Add(static_cast<uint8_t>(c), static_cast<uint8_t>(c));
  }
  return punctuation;
}

std::string ClassPattern(const CodePointSet& members) {
  std::string pattern = "[";
  for (const CodePointRange& range : members.ranges()) {
    absl::StrAppend(&pattern, "\\x{", absl::Hex(range.first), "}-\\x{", absl::Hex(range.last), "}");
  }
  return pattern + "]";
}

absl::Status AddMetaspace(const JsonPart& part, PreTokenizer& out) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string mark, StringAt(part, "replacement"));
  if (mark.empty() || CharBytes(mark.front()) != mark.size()) {
    return part.At("replacement").Bad("must be one character");
  }
  TRAINCTL_ASSIGN_OR_RETURN(std::string scheme, StringAt(part, "prepend_scheme", ""));
  TRAINCTL_ASSIGN_OR_RETURN(const bool prefix_space, BoolAt(part, "add_prefix_space", true));
  if (scheme.empty()) scheme = prefix_space ? "always" : "never";
  if (!prefix_space && scheme != "never") {
    return part.At("add_prefix_space")
        .Bad(absl::StrCat("= false contradicts prepend_scheme = '", scheme, "'"));
  }
  MetaspaceStep::Prepend prepend = MetaspaceStep::Prepend::kAlways;
  if (scheme == "first") {
    prepend = MetaspaceStep::Prepend::kFirst;
    out.asks_for_beginning = true;
    out.asks_behind_split = !out.steps.empty() || out.last_split != nullptr;
  } else if (scheme == "never") {
    prepend = MetaspaceStep::Prepend::kNever;
  } else if (scheme != "always") {
    return part.At("prepend_scheme").Bad(absl::StrCat("= '", scheme, "' must be always, first or never"));
  }
  AddStep(std::make_unique<MetaspaceStep>(mark, prepend), out);
  TRAINCTL_ASSIGN_OR_RETURN(const bool splits, BoolAt(part, "split", true));
  if (!splits) return absl::OkStatus();
  TRAINCTL_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Literal(mark, part.where));
  return AddSplit(std::move(pattern), Behavior::kMergedWithNext, false, out);
}

absl::Status AddByteLevel(const JsonPart& part, PreTokenizer& out) {
  TRAINCTL_ASSIGN_OR_RETURN(const bool prefix_space, BoolAt(part, "add_prefix_space", true));
  TRAINCTL_ASSIGN_OR_RETURN(const bool use_regex, BoolAt(part, "use_regex", true));
  out.byte_level = true;
  if (prefix_space) AddStep(std::make_unique<PrefixSpaceStep>(), out);
  if (!use_regex) return absl::OkStatus();
  TRAINCTL_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Compile(kGpt2Pattern, part.where));
  return AddSplit(std::move(pattern), Behavior::kIsolated, false, out);
}

absl::Status AddSteps(const JsonPart& part, PreTokenizer& out) {
  if (out.byte_level) return part.Bad("follows ByteLevel, which is supported only as the last step");
  TRAINCTL_ASSIGN_OR_RETURN(const std::string type, TypeOf(part));
  if (type == "Sequence") {
    const JsonPart list = part.At("pretokenizers");
    if (list.is_null() || !list.value->is_array()) return list.Bad("must be a list");
    for (size_t i = 0; i < list.value->size(); ++i) TRAINCTL_RETURN_IF_ERROR(AddSteps(list.At(i), out));
    return absl::OkStatus();
  }
  if (type == "ByteLevel") return AddByteLevel(part, out);
  if (type == "Metaspace") return AddMetaspace(part, out);
  if (type == "Split") {
    TRAINCTL_ASSIGN_OR_RETURN(Pattern pattern, ParsePattern(part));
    TRAINCTL_ASSIGN_OR_RETURN(const Behavior behavior, ParseBehavior(part));
    TRAINCTL_ASSIGN_OR_RETURN(const bool invert, BoolAt(part, "invert", false));
    return AddSplit(std::move(pattern), behavior, invert, out);
  }
  if (type == "Digits") {
    TRAINCTL_ASSIGN_OR_RETURN(const bool individual, BoolAt(part, "individual_digits", false));
    TRAINCTL_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Compile(ClassPattern(Digits()), part.where));
    return AddSplit(std::move(pattern), individual ? Behavior::kIsolated : Behavior::kContiguous, false, out);
  }
  if (type == "Punctuation") {
    TRAINCTL_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Compile(ClassPattern(Punctuation()), part.where));
    Behavior behavior = Behavior::kIsolated;
    if (!part.At("behavior").is_null()) {
      TRAINCTL_ASSIGN_OR_RETURN(behavior, ParseBehavior(part));
    }
    return AddSplit(std::move(pattern), behavior, false, out);
  }
  return part.At("type").Bad(absl::StrCat(
      "= '", type, "' is not supported; use Sequence, Split, ByteLevel, Metaspace, Digits or Punctuation"));
}

}  // namespace

absl::StatusOr<PreTokenizer> ParsePreTokenizer(const JsonPart& part) {
  PreTokenizer out;
  if (part.is_null()) return out;
  TRAINCTL_RETURN_IF_ERROR(AddSteps(part, out));
  return out;
}

}  // namespace trainctl::tokenizer
