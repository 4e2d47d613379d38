#include "tokenizer/normalizer.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "tokenizer/utf8.h"

namespace trainctl::tokenizer {
namespace {

class FormStep : public NormalizerStep {
 public:
  explicit FormStep(NormalForm form) : form_(form) {}
  absl::Status Apply(std::string& text, Scratch&) const override {
    TRAINCTL_ASSIGN_OR_RETURN(text, Normalized(text, form_));
    return absl::OkStatus();
  }

 private:
  NormalForm form_;
};

class PrependStep : public NormalizerStep {
 public:
  explicit PrependStep(std::string prefix) : prefix_(std::move(prefix)) {}
  absl::Status Apply(std::string& text, Scratch&) const override {
    if (!text.empty()) text.insert(0, prefix_);
    return absl::OkStatus();
  }

 private:
  std::string prefix_;
};

class ReplaceStep : public NormalizerStep {
 public:
  ReplaceStep(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  absl::Status Apply(std::string& text, Scratch& scratch) const override {
    return ReplaceMatches(pattern_, content_, text, scratch);
  }
  bool MayRemoveFront() const override { return content_.empty(); }

 private:
  Pattern pattern_;
  std::string content_;
};

class StripStep : public NormalizerStep {
 public:
  StripStep(bool left, bool right) : left_(left), right_(right) {}
  absl::Status Apply(std::string& text, Scratch&) const override {
    if (right_) text.resize(text.size() - TrailingSpaceBytes(text));
    if (left_) text.erase(0, LeadingSpaceBytes(text));
    return absl::OkStatus();
  }
  bool MayRemoveFront() const override { return left_; }

 private:
  bool left_;
  bool right_;
};

absl::Status AddSteps(const JsonPart& part, Normalizer& steps) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string type, TypeOf(part));
  if (type == "Sequence") {
    const JsonPart list = part.At("normalizers");
    if (list.is_null() || !list.value->is_array()) return list.Bad("must be a list");
    for (size_t i = 0; i < list.value->size(); ++i) TRAINCTL_RETURN_IF_ERROR(AddSteps(list.At(i), steps));
  } else if (type == "NFC") {
    steps.push_back(std::make_unique<FormStep>(NormalForm::kNfc));
  } else if (type == "NFD") {
    steps.push_back(std::make_unique<FormStep>(NormalForm::kNfd));
  } else if (type == "NFKC") {
    steps.push_back(std::make_unique<FormStep>(NormalForm::kNfkc));
  } else if (type == "NFKD") {
    steps.push_back(std::make_unique<FormStep>(NormalForm::kNfkd));
  } else if (type == "Prepend") {
    TRAINCTL_ASSIGN_OR_RETURN(std::string prefix, StringAt(part, "prepend"));
    steps.push_back(std::make_unique<PrependStep>(std::move(prefix)));
  } else if (type == "Replace") {
    TRAINCTL_ASSIGN_OR_RETURN(Pattern pattern, ParsePattern(part));
    TRAINCTL_ASSIGN_OR_RETURN(std::string content, StringAt(part, "content"));
    steps.push_back(std::make_unique<ReplaceStep>(std::move(pattern), std::move(content)));
  } else if (type == "Strip") {
    TRAINCTL_ASSIGN_OR_RETURN(const bool left, BoolAt(part, "strip_left", true));
    TRAINCTL_ASSIGN_OR_RETURN(const bool right, BoolAt(part, "strip_right", true));
    steps.push_back(std::make_unique<StripStep>(left, right));
  } else {
    return part.At("type").Bad(absl::StrCat(
        "= '", type, "' is not supported; use Sequence, NFC, NFD, NFKC, NFKD, Prepend, Replace or Strip"));
  }
  return absl::OkStatus();
}

// The longest result of normalizing `before` bytes. Real tokenizers at most triple a text (a space becomes
// U+2581); a malicious file with repeated replacements could exhaust memory.
size_t MostBytes(size_t before) { return (size_t{16} << 20) + 4 * before; }

absl::Status GrowsTooMuch(size_t before) {
  return BadDataError(absl::StrCat("the tokenizer's normalizer or decoder turns a text of ", before,
                                   " bytes into more than ", MostBytes(before),
                                   "; its tokenizer.json is damaged or malicious"));
}

}  // namespace

absl::StatusOr<Pattern> ParsePattern(const JsonPart& part) {
  const JsonPart pattern = part.At("pattern");
  if (pattern.is_null() || !pattern.value->is_object() || pattern.value->size() != 1) {
    return pattern.Bad("must be {\"Regex\": ...} or {\"String\": ...}");
  }
  const bool is_regex = !pattern.At("Regex").is_null();
  const char* key = is_regex ? "Regex" : "String";
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, StringAt(pattern, key));
  const std::string where = pattern.At(key).where;
  return is_regex ? Pattern::Compile(text, where) : Pattern::Literal(text, where);
}

absl::StatusOr<Normalizer> ParseNormalizer(const JsonPart& part) {
  Normalizer steps;
  if (part.is_null()) return steps;
  TRAINCTL_RETURN_IF_ERROR(AddSteps(part, steps));
  return steps;
}

absl::Status Normalize(const Normalizer& normalizer, std::string& text, Scratch& scratch) {
  const size_t before = text.size();
  for (const auto& step : normalizer) {
    TRAINCTL_RETURN_IF_ERROR(step->Apply(text, scratch));
    if (text.size() > MostBytes(before)) return GrowsTooMuch(before);
  }
  return absl::OkStatus();
}

bool MayRemoveFront(const Normalizer& normalizer) {
  return std::any_of(normalizer.begin(), normalizer.end(),
                     [](const auto& step) { return step->MayRemoveFront(); });
}

absl::Status ReplaceMatches(const Pattern& pattern, absl::string_view content, std::string& text,
                            Scratch& scratch) {
  scratch.matches.clear();
  TRAINCTL_RETURN_IF_ERROR(pattern.FindAll(text, scratch.match, &scratch.matches));
  std::string replaced;
  replaced.reserve(text.size() + text.size() / 4);
  const size_t most_bytes = MostBytes(text.size());
  for (const Match& match : scratch.matches) {
    if (replaced.size() > most_bytes) return GrowsTooMuch(text.size());
    if (match.is_match) {
      absl::StrAppend(&replaced, content);
    } else {
      replaced.append(text, match.span.begin, match.span.end - match.span.begin);
    }
  }
  text = std::move(replaced);
  return absl::OkStatus();
}

}  // namespace trainctl::tokenizer
