#include "tokenizer/qwen2_words.h"

#include "tokenizer/tokenizer_file.h"

namespace trainctl::tokenizer {
namespace {

// PRETOKENIZE_REGEX of transformers, models/qwen2/tokenization_qwen2.py.
constexpr char kPattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Null if there is no such member.
Json At(const Json& object, const char* key) {
  return object.is_object() ? object.value(key, Json()) : Json();
}

bool IsSplitOfQwen(const Json& step) {
  return At(step, "type") == "Split" && At(At(step, "pattern"), "Regex") == kPattern &&
         At(step, "behavior") == "Isolated" && At(step, "invert") != true;
}

// A byte-level step without a leading space and without GPT-2's pattern.
bool IsPlainByteLevel(const Json& step) {
  return At(step, "type") == "ByteLevel" && At(step, "add_prefix_space") == false &&
         At(step, "use_regex") == false;
}

}  // namespace

bool CutsAsQwen2(absl::string_view tokenizer_json) {
  const absl::StatusOr<Json> file = ParseJson(tokenizer_json, "tokenizer.json");
  if (!file.ok() || At(At(*file, "normalizer"), "type") != "NFC") return false;
  const Json steps = At(At(*file, "pre_tokenizer"), "pretokenizers");
  return steps.is_array() && steps.size() == 2 && IsSplitOfQwen(steps[0]) && IsPlainByteLevel(steps[1]);
}

}  // namespace trainctl::tokenizer
