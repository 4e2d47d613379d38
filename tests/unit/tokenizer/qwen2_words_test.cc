#include "tokenizer/qwen2_words.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_replace.h"

namespace trainctl::tokenizer {
namespace {

// Taken from Qwen2.5-0.5B's tokenizer.json.
constexpr char kQwen[] = R"json({
  "normalizer": {"type": "NFC"},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
     "behavior": "Isolated", "invert": false},
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}]}
})json";

TEST(CutsAsQwen2, OnlyWhatTransformersWouldPutThereIsTheSame) {
  EXPECT_TRUE(CutsAsQwen2(kQwen));
  EXPECT_TRUE(CutsAsQwen2(absl::StrReplaceAll(kQwen, {{", \"invert\": false", ""}})));
  EXPECT_TRUE(
      CutsAsQwen2(absl::StrReplaceAll(kQwen, {{"\"trim_offsets\": false", "\"trim_offsets\": true"}})));
  // Each changes the tokens of some text.
  for (const auto& [from, to] : {std::pair{"\"NFC\"", "\"NFD\""},
                                 {"{\"type\": \"NFC\"}", "null"},
                                 {"|\\\\p{N}| ?", "|\\\\p{N}{1,3}| ?"},
                                 {"\"Isolated\"", "\"Removed\""},
                                 {"\"invert\": false", "\"invert\": true"},
                                 {"\"add_prefix_space\": false", "\"add_prefix_space\": true"},
                                 {", \"use_regex\": false", ""},
                                 {"\"Split\"", "\"Digits\""},
                                 {"\"pretokenizers\": [", "\"pretokenizers\": [{\"type\": \"Digits\"},"}}) {
    const std::string other = absl::StrReplaceAll(kQwen, {{from, to}});
    ASSERT_NE(other, kQwen) << from;
    EXPECT_FALSE(CutsAsQwen2(other)) << to;
  }
  for (const char* none : {"", "[]", "{}", "null", R"({"pre_tokenizer": null, "normalizer": null})",
                           R"({"pre_tokenizer": {"type": "ByteLevel"}, "normalizer": {"type": "NFC"}})"}) {
    EXPECT_FALSE(CutsAsQwen2(none)) << none;
  }
}

}  // namespace
}  // namespace trainctl::tokenizer
