#include "tokenizer/bpe.h"

#include <gmock/gmock.h>

#include <random>

namespace trainctl::tokenizer {
namespace {

using testing::ElementsAre;
using Merges = std::vector<std::pair<std::string, std::string>>;

std::vector<int32_t> Encode(const BpeModel& model, absl::string_view word) {
  Scratch scratch;
  std::vector<int32_t> ids;
  model.EncodeWord(word, scratch, &ids);
  return ids;
}

// By the definition: as long as any pair is known, the leftmost of those learned first is merged.
std::vector<std::string> MergeByDefinition(std::vector<std::string> symbols, const Merges& merges) {
  while (true) {
    size_t best_rank = merges.size();
    size_t best = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank] != std::make_pair(symbols[i], symbols[i + 1])) continue;
        best_rank = rank;
        best = i;
      }
    }
    if (best_rank == merges.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(Bpe, WordsOfAnyLengthAreMergedByTheDefinition) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    // Merges of what there is already, over a small alphabet, so that most pairs of a word are known.
    std::vector<std::string> tokens = {"a", "b", "c", "\xE2\x96\x81"};
    Merges merges;
    while (merges.size() < 25) {
      std::pair<std::string, std::string> merge = {tokens[random() % tokens.size()],
                                                   tokens[random() % tokens.size()]};
      if (std::count(merges.begin(), merges.end(), merge) > 0) continue;
      const std::string merged = merge.first + merge.second;
      if (std::count(tokens.begin(), tokens.end(), merged) == 0) tokens.push_back(merged);
      merges.push_back(std::move(merge));
    }
    const auto model = BpeModel::Create(tokens, merges, {}, "t");
    ASSERT_TRUE(model.ok()) << model.status();
    for (const int length : {1, 2, 5, 39, 40, 41, 200}) {
      std::vector<std::string> symbols;
      std::string word;
      for (int i = 0; i < length; ++i) word += symbols.emplace_back(tokens[random() % 4]);
      std::vector<std::string> got;
      for (const int32_t id : Encode(**model, word)) got.push_back(tokens[static_cast<size_t>(id)]);
      EXPECT_EQ(got, MergeByDefinition(symbols, merges)) << word;
    }
  }
}

TEST(Bpe, UnknownCharactersFallBackToBytesOrAreOneUnknownOrEach) {
  std::vector<std::string> tokens = {"<unk>", "a", "<0xC3>", "<0xA9>"};
  BpeOptions options;
  options.unk_token = "<unk>";
  EXPECT_THAT(Encode(**BpeModel::Create(tokens, {}, options, "t"), "axya"), ElementsAre(1, 0, 0, 1));
  options.fuse_unk = true;
  EXPECT_THAT(Encode(**BpeModel::Create(tokens, {}, options, "t"), "axya"), ElementsAre(1, 0, 1));
  options.byte_fallback = true;
  EXPECT_THAT(Encode(**BpeModel::Create(tokens, {}, options, "t"), "a\u00E9"), ElementsAre(1, 2, 3));
  options.unk_token = "";
  EXPECT_THAT(Encode(**BpeModel::Create(tokens, {}, options, "t"), "axya"), ElementsAre(1, 1));
  options.unk_token = "<none>";
  EXPECT_THAT(BpeModel::Create(tokens, {}, options, "t.json").status().message(),
              testing::HasSubstr("t.json: model.unk_token '<none>' is not in model.vocab"));
}

TEST(Bpe, WhatIsLeftOutDoesNotKeepItsNeighboursApart) {
  const std::string mark = "\xE2\x96\x81";
  const auto model = BpeModel::Create({"a", mark, mark + mark}, {{mark, mark}}, {}, "t");
  ASSERT_TRUE(model.ok());
  EXPECT_THAT(Encode(**model, mark + "x" + mark), ElementsAre(2));
}

TEST(Bpe, AllBytesHaveACharacterAndBack) {
  std::set<uint32_t> characters;
  for (int byte = 0; byte < 256; ++byte) characters.insert(ByteCharacter(static_cast<uint8_t>(byte)));
  EXPECT_EQ(characters.size(), 256U);
  std::string bytes;
  ASSERT_TRUE(BytesOfToken("\u0120caf\u00C3\u00A9\u010A", &bytes));  // GPT-2's spelling of " café\n"
  EXPECT_EQ(bytes, " caf\u00E9\n");
  EXPECT_FALSE(BytesOfToken("a b", &bytes));
}

}  // namespace
}  // namespace trainctl::tokenizer
