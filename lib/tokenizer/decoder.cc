#include "tokenizer/decoder.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "tokenizer/bpe.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/utf8.h"

namespace trainctl::tokenizer {
namespace {

constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";

class ByteLevelStep : public DecoderStep {
 public:
  absl::Status Apply(std::vector<std::string>& tokens, Scratch&) const override {
    std::string text;
    std::string bytes;
    for (const std::string& token : tokens) text += BytesOfToken(token, &bytes) ? bytes : token;
    tokens = {RepairUtf8(text)};
    return absl::OkStatus();
  }
};

class MetaspaceStep : public DecoderStep {
 public:
  MetaspaceStep(std::string mark, bool prepends) : mark_(std::move(mark)), prepends_(prepends) {}
  absl::Status Apply(std::vector<std::string>& tokens, Scratch&) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = absl::StrReplaceAll(tokens[i], {{mark_, i == 0 && prepends_ ? "" : " "}});
    }
    return absl::OkStatus();
  }

 private:
  std::string mark_;
  bool prepends_;
};

class ReplaceTokenStep : public DecoderStep {
 public:
  ReplaceTokenStep(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  absl::Status Apply(std::vector<std::string>& tokens, Scratch& scratch) const override {
    for (std::string& token : tokens) {
      TRAINCTL_RETURN_IF_ERROR(ReplaceMatches(pattern_, content_, token, scratch));
    }
    return absl::OkStatus();
  }

 private:
  Pattern pattern_;
  std::string content_;
};

// Rows of <0xNN> become the characters that they spell, or U+FFFD for each byte where they spell none.
class ByteFallbackStep : public DecoderStep {
 public:
  absl::Status Apply(std::vector<std::string>& tokens, Scratch&) const override {
    std::vector<std::string> out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (IsUtf8(bytes)) {
        out.push_back(bytes);
      } else {
        for (size_t i = 0; i < bytes.size(); ++i) out.emplace_back(kReplacement);
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      const int byte = ByteOf(token);
      if (byte >= 0) {
        bytes.push_back(static_cast<char>(byte));
        continue;
      }
      flush();
      out.push_back(std::move(token));
    }
    flush();
    tokens = std::move(out);
    return absl::OkStatus();
  }

 private:
  static int ByteOf(absl::string_view token) {
    if (token.size() != 6 || !absl::StartsWith(token, "<0x") || token.back() != '>') return -1;
    int value = 0;
    for (const char c : token.substr(3, 2)) {
      const auto digit = static_cast<unsigned char>(c);
      if (!absl::ascii_isxdigit(digit)) return -1;
      value = value * 16 + (absl::ascii_isdigit(digit) ? digit - '0' : absl::ascii_tolower(digit) - 'a' + 10);
    }
    return value;
  }
};

class FuseStep : public DecoderStep {
 public:
  absl::Status Apply(std::vector<std::string>& tokens, Scratch&) const override {
    tokens = {absl::StrJoin(tokens, "")};
    return absl::OkStatus();
  }
};

class StripTokenStep : public DecoderStep {
 public:
  StripTokenStep(std::string content, int64_t start, int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  absl::Status Apply(std::vector<std::string>& tokens, Scratch&) const override {
    for (std::string& token : tokens) {
      size_t begin = 0;
      size_t end = token.size();
      for (int64_t i = 0; i < start_ && absl::StartsWith(absl::string_view(token).substr(begin), content_);
           ++i) {
        begin += content_.size();
      }
      for (int64_t i = 0; i < stop_ && end > begin; ++i) {
        if (!absl::EndsWith(absl::string_view(token).substr(begin, end - begin), content_)) break;
        end -= content_.size();
      }
      token = token.substr(begin, end - begin);
    }
    return absl::OkStatus();
  }

 private:
  std::string content_;
  int64_t start_;
  int64_t stop_;
};

absl::StatusOr<std::string> CharacterAt(const JsonPart& part, absl::string_view key) {
  TRAINCTL_ASSIGN_OR_RETURN(std::string text, StringAt(part, key));
  if (text.empty() || CharBytes(text.front()) != text.size())
    return part.At(key).Bad("must be one character");
  return text;
}

absl::Status AddStrip(const JsonPart& part, Decoder& steps) {
  TRAINCTL_ASSIGN_OR_RETURN(std::string content, CharacterAt(part, "content"));
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t start, IntAt(part, "start"));
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t stop, IntAt(part, "stop"));
  if (start < 0 || stop < 0) return part.Bad("has a negative start or stop");
  steps.push_back(std::make_unique<StripTokenStep>(std::move(content), start, stop));
  return absl::OkStatus();
}

absl::Status AddSteps(const JsonPart& part, Decoder& steps) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string type, TypeOf(part));
  if (type == "Sequence") {
    const JsonPart list = part.At("decoders");
    if (list.is_null() || !list.value->is_array()) return list.Bad("must be a list");
    for (size_t i = 0; i < list.value->size(); ++i) TRAINCTL_RETURN_IF_ERROR(AddSteps(list.At(i), steps));
  } else if (type == "ByteLevel") {
    steps.push_back(std::make_unique<ByteLevelStep>());
  } else if (type == "ByteFallback") {
    steps.push_back(std::make_unique<ByteFallbackStep>());
  } else if (type == "Fuse") {
    steps.push_back(std::make_unique<FuseStep>());
  } else if (type == "Metaspace") {
    TRAINCTL_ASSIGN_OR_RETURN(std::string mark, CharacterAt(part, "replacement"));
    TRAINCTL_ASSIGN_OR_RETURN(const std::string scheme, StringAt(part, "prepend_scheme", ""));
    TRAINCTL_ASSIGN_OR_RETURN(const bool prefix_space, BoolAt(part, "add_prefix_space", true));
    steps.push_back(std::make_unique<MetaspaceStep>(std::move(mark), prefix_space && scheme != "never"));
  } else if (type == "Replace") {
    TRAINCTL_ASSIGN_OR_RETURN(Pattern pattern, ParsePattern(part));
    TRAINCTL_ASSIGN_OR_RETURN(std::string content, StringAt(part, "content"));
    steps.push_back(std::make_unique<ReplaceTokenStep>(std::move(pattern), std::move(content)));
  } else if (type == "Strip") {
    return AddStrip(part, steps);
  } else {
    return part.At("type").Bad(absl::StrCat(
        "= '", type,
        "' is not supported; use Sequence, ByteLevel, ByteFallback, Fuse, Metaspace, Replace or Strip"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Decoder> ParseDecoder(const JsonPart& part) {
  Decoder steps;
  if (part.is_null()) return steps;
  TRAINCTL_RETURN_IF_ERROR(AddSteps(part, steps));
  return steps;
}

}  // namespace trainctl::tokenizer
