// Damaged and unknown files; what encoding gives is compared with the reference implementation in
// tests/tokenizer.
#include "tokenizer/sentencepiece.h"

#include <gmock/gmock.h>

#include <cstring>
#include <set>

#include "absl/strings/str_join.h"
#include "base/status.h"
#include "tokenizer/chars_map.h"
#include "tokenizer/model.h"

namespace trainctl::tokenizer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Bytes(int number, absl::string_view value) {
  std::string out(1, static_cast<char>(number << 3 | 2));
  out.push_back(static_cast<char>(value.size()));
  return absl::StrCat(out, value);
}

std::string Varint(int number, int value) {
  std::string out;
  for (uint32_t tag = static_cast<uint32_t>(number) << 3; tag > 0; tag >>= 7) {
    out.push_back(static_cast<char>((tag & 0x7F) | (tag > 0x7F ? 0x80 : 0)));
  }
  out.push_back(static_cast<char>(value));
  return out;
}

std::string Piece(absl::string_view text, float score, int type) {
  std::string fixed(4, '\0');
  std::memcpy(fixed.data(), &score, 4);
  return Bytes(1, absl::StrCat(Bytes(1, text), std::string(1, (2 << 3) | 5), fixed, Varint(3, type)));
}

constexpr absl::string_view kMark = "\xE2\x96\x81";

std::vector<std::string> Fields(int model_type) {
  return {Piece("<unk>", 0, 2),
          Piece("<s>", 0, 3),
          Piece("</s>", 0, 3),
          Piece(kMark, -4, 1),
          Piece("a", -3, 1),
          Piece("b", -3.5F, 1),
          Piece("ab", -1, 1),
          Piece(absl::StrCat(kMark, "a"), -2, 1),
          Bytes(2, Varint(3, model_type)),
          Bytes(3, Varint(3, 1))};
}

std::string Small(int model_type) { return absl::StrJoin(Fields(model_type), ""); }

TEST(SentencePiece, EncodesByScoreOrByLikelihood) {
  for (const int model_type : {1, 2}) {
    const auto tokenizer = Tokenizer::Parse(Small(model_type), "t.model");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ((*tokenizer)->vocab_size(), 8);
    EXPECT_EQ((*tokenizer)->end_of_document_id(), 2);
    std::vector<int32_t> ids;
    ASSERT_TRUE((*tokenizer)->EncodeDocument("ab  a xy", &ids).ok());
    EXPECT_THAT(ids, ElementsAre(3, 6, 7, 3, 0))
        << model_type;  // "ab" is worth more than a space with its "a"
    EXPECT_EQ(*(*tokenizer)->Decode({1, 3, 6, 7, 2}, false), "ab a");
    EXPECT_EQ(ExitCodeFor((*tokenizer)->Decode({8}, false).status()), ExitCode::kUsage);
  }
}

// An unused piece is what it was made of; one character is made of nothing.
TEST(SentencePiece, UnusedPiecesAreNotGiven) {
  std::vector<std::string> fields = Fields(2);
  fields[4] = Piece("a", -3, 5);
  fields[6] = Piece("ab", -1, 5);
  const auto tokenizer = Tokenizer::Parse(absl::StrJoin(fields, ""), "t.model");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::vector<int32_t> ids;
  ASSERT_TRUE((*tokenizer)->EncodeDocument("bab", &ids).ok());
  EXPECT_THAT(ids, ElementsAre(3, 5, 0, 5));
}

TEST(SentencePiece, MorePiecesThanIdsAreRefused) {
  std::string bytes = Small(2);
  for (int64_t i = 0; i < kMaxVocab; ++i) bytes.append("\x0A\x00", 2);
  const auto tokenizer = Tokenizer::Parse(bytes, "t.model");
  EXPECT_EQ(ExitCodeFor(tokenizer.status()), ExitCode::kBadData);
  EXPECT_THAT(tokenizer.status().message(), HasSubstr("t.model: more than 4194304 pieces"));
}

TEST(SentencePiece, FilesThatAreDamagedOrUnknownAreRefused) {
  const std::string good = Small(2);
  std::set<size_t> ends;  // of each field
  size_t end = 0;
  for (const std::string& field : Fields(2)) ends.insert(end += field.size());
  for (size_t bytes = 0; bytes <= good.size(); ++bytes) {
    const auto tokenizer = Tokenizer::Parse(absl::string_view(good).substr(0, bytes), "t.model");
    // A file that ends between two fields of the message is one; any other is not.
    if (ends.count(bytes) > 0) {
      EXPECT_TRUE(tokenizer.ok()) << bytes << ": " << tokenizer.status();
    } else {
      EXPECT_EQ(ExitCodeFor(tokenizer.status()), ExitCode::kBadData) << bytes;
      EXPECT_THAT(tokenizer.status().message(), HasSubstr("nor a complete SentencePiece")) << bytes;
    }
  }
  EXPECT_THAT(Tokenizer::Parse("", "t.model").status().message(), HasSubstr("t.model: is empty"));
  EXPECT_THAT(Tokenizer::Parse(Small(3), "t.model").status().message(),
              HasSubstr("model_type = 3 is not supported"));
  EXPECT_THAT(Tokenizer::Parse(good + Piece("ab", 0, 1), "t.model").status().message(),
              HasSubstr("pieces[8] ('ab') occurs twice"));
  EXPECT_THAT(Tokenizer::Parse(good + Piece("<0x41>", 0, 6), "t.model").status().message(),
              HasSubstr("pieces[8]"));
  EXPECT_THAT(Tokenizer::Parse(good + Piece("<u>", 0, 2), "t.model").status().message(),
              HasSubstr("second piece"));
  EXPECT_THAT(
      Tokenizer::Parse(good + Bytes(3, Varint(3, 1) + Bytes(2, "abcdef")), "t.model").status().message(),
      HasSubstr("precompiled_charsmap is damaged"));
  EXPECT_THAT(
      Tokenizer::Parse(good + Bytes(3, Varint(4, 1)) + Bytes(5, Bytes(2, "x")), "t.model").status().message(),
      HasSubstr("denormalizer_spec"));
}

TEST(SentencePiece, ATableOfAnyUnitsIsReadWithinItsBounds) {
  for (uint32_t seed = 1; seed < 200; ++seed) {
    std::string bytes(4 + 64 + 3, 'x');
    const uint32_t trie_bytes = 64;
    std::memcpy(bytes.data(), &trie_bytes, 4);
    uint32_t state = seed;
    for (size_t i = 4; i < 68; ++i) {
      state = state * 1664525 + 1013904223;
      bytes[i] = static_cast<char>(state >> 24);
    }
    const auto map = CharsMap::Parse(bytes, "t.model");
    ASSERT_TRUE(map.ok());
    for (int c = 0; c < 128; ++c) {
      absl::string_view replacement;
      EXPECT_LE(map->Longest(std::string(5, static_cast<char>(c)), &replacement), 5U);
      EXPECT_LE(replacement.size(), 3U);
    }
  }
}

}  // namespace
}  // namespace trainctl::tokenizer
