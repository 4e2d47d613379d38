#include "tokenizer/text_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace trainctl::tokenizer {
namespace {

using Ids = std::vector<int32_t>;
using Json = nlohmann::json;

// Each id is a byte.
absl::StatusOr<std::string> BytesToText(absl::Span<const int32_t> ids) {
  return RepairUtf8(std::string(ids.begin(), ids.end()));
}

Ids BytesOf(absl::string_view text) {
  Ids ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

// What each id adds, and the end.
std::vector<std::string> PiecesOf(const TextStream::Decode& decode, const Ids& prompt, const Ids& ids) {
  TextStream stream(decode);
  EXPECT_TRUE(stream.Begin(prompt).ok());
  std::vector<std::string> pieces;
  for (const int32_t id : ids) pieces.push_back(*stream.Add(id));
  pieces.push_back(*stream.End());
  return pieces;
}

TEST(TextStream, ACharacterComesWithItsLastByte) {
  EXPECT_THAT(PiecesOf(BytesToText, BytesOf("x"), BytesOf("a\xC3\xA9 \xE4\xBD\xA0\xF0\x9F\x98\x80.")),
              testing::ElementsAre("a", "", "\xC3\xA9", " ", "", "", "\xE4\xBD\xA0", "", "", "",
                                   "\xF0\x9F\x98\x80", ".", ""));
}

TEST(TextStream, WhatNeverBecomesWholeIsReplaced) {
  EXPECT_THAT(PiecesOf(BytesToText, {}, BytesOf("\xC3")), testing::ElementsAre("", "\xEF\xBF\xBD"));
  EXPECT_THAT(PiecesOf(BytesToText, {}, BytesOf("\xE4\xBDz")),
              testing::ElementsAre("", "", "\xEF\xBF\xBDz", ""));
}

// A model that has learned nothing writes such bytes for as long as it likes.
TEST(TextStream, BytesWithoutMeaningAreNotHeldForEver) {
  const std::vector<std::string> pieces = PiecesOf(BytesToText, {}, Ids(1000, 0xFF));
  const auto last = std::find_if(pieces.rbegin(), pieces.rend(), [](const auto& p) { return !p.empty(); });
  EXPECT_LT(last - pieces.rbegin(), 32);
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  EXPECT_EQ(text, *BytesToText(Ids(1000, 0xFF)));
}

// In the style of sentencepiece: a mark instead of a space, and one space less at the beginning of a text.
// Characters without a token are bytes, and those of a row become U+FFFD all together where one is missing.
std::unique_ptr<Tokenizer> WithByteFallback() {
  Json vocab = {{"<unk>", 0}, {"\xE2\x96\x81", 1}, {"\xE2\x96\x81the", 2}, {"end", 3}};
  for (int byte = 0; byte < 256; ++byte) {
    constexpr char kHex[] = "0123456789ABCDEF";
    vocab[std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">"] = 4 + byte;
  }
  const Json mark = {{"type", "Replace"}, {"pattern", {{"String", "\xE2\x96\x81"}}}, {"content", " "}};
  const Json file = {{"version", "1.0"},
                     {"added_tokens", Json::array()},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", nullptr},
                     {"post_processor", nullptr},
                     {"decoder",
                      {{"type", "Sequence"},
                       {"decoders",
                        {mark,
                         {{"type", "ByteFallback"}},
                         {{"type", "Fuse"}},
                         {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
                     {"model",
                      {{"type", "BPE"},
                       {"unk_token", "<unk>"},
                       {"fuse_unk", true},
                       {"byte_fallback", true},
                       {"vocab", vocab},
                       {"merges", Json::array()}}}};
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Parse(file.dump(), "t.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

TEST(TextStream, PiecesTogetherAreTheTextOfAllIds) {
  const auto tokenizer = WithByteFallback();
  const auto decode = [&](absl::Span<const int32_t> ids) { return tokenizer->Decode(ids, true); };
  const Ids you = {4 + 0xE4, 4 + 0xBD, 4 + 0xA0};
  Ids ids = {2, 2, 3};
  for (int i = 0; i < 3; ++i) ids.insert(ids.end(), you.begin(), you.end());
  ids.insert(ids.end(), {1, 2, you[0], you[1], you[2], 3});
  const Ids prompt = {2};
  Ids all = prompt;
  all.insert(all.end(), ids.begin(), ids.end());
  std::string text = *decode(prompt);
  EXPECT_EQ(text, "the");
  for (const std::string& piece : PiecesOf(decode, prompt, ids)) {
    EXPECT_TRUE(IsUtf8(piece)) << piece;
    text += piece;
  }
  EXPECT_EQ(text, *decode(all));
  EXPECT_EQ(text.substr(0, 14), "the the theend");
}

// Half a character behind a whole one takes that one back, as the decoder sees it; it was shown already.
TEST(TextStream, WhatWasShownStays) {
  const auto tokenizer = WithByteFallback();
  const auto decode = [&](absl::Span<const int32_t> ids) { return tokenizer->Decode(ids, true); };
  const Ids accent = {4 + 0xC3, 4 + 0xA9};  // two bytes, and three where it is replaced
  EXPECT_THAT(PiecesOf(decode, {3}, {accent[0], accent[1], accent[0], 3}),
              testing::ElementsAre("", "\xC3\xA9", "",
                                   "\xEF\xBF\xBD"
                                   "end",
                                   ""));
}

}  // namespace
}  // namespace trainctl::tokenizer
