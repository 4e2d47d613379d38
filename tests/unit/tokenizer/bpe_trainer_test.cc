#include "tokenizer/bpe_trainer.h"

#include <gmock/gmock.h>

#include <map>
#include <random>

#include "base/status.h"
#include "tokenizer/tokenizer.h"

namespace trainctl::tokenizer {
namespace {

using testing::HasSubstr;

WordCounter CounterOf(const std::vector<std::string>& texts) {
  WordCounter counter = *WordCounter::Create();
  for (const std::string& text : texts) EXPECT_TRUE(counter.AddText(text).ok());
  return counter;
}

TrainOptions Options(int64_t vocab) {
  TrainOptions options;
  options.vocab = vocab;
  return options;
}

// By the definition: all pairs are counted anew before each merge. Texts of letters only, one word each.
std::vector<std::string> TokensByDefinition(const std::map<std::string, int64_t>& words, size_t num_tokens) {
  std::vector<std::pair<std::vector<std::string>, int64_t>> split;
  for (const auto& [word, count] : words) {
    std::vector<std::string> symbols;
    for (const char c : word) symbols.emplace_back(1, c);
    split.emplace_back(symbols, count);
  }
  // Ties go to the smaller ids: bytes in their order, then what was learned first.
  std::vector<std::string> learned;
  const auto id_of = [&](const std::string& s) {
    if (s.size() == 1) return static_cast<int64_t>(s[0]);
    return 256 + (std::find(learned.begin(), learned.end(), s) - learned.begin());
  };
  while (learned.size() < num_tokens) {
    std::map<std::pair<std::string, std::string>, int64_t> counts;
    for (const auto& [symbols, count] : split) {
      for (size_t i = 0; i + 1 < symbols.size(); ++i) counts[{symbols[i], symbols[i + 1]}] += count;
    }
    std::pair<std::string, std::string> best;
    int64_t most = 1;
    for (const auto& [pair, count] : counts) {
      const auto ids = std::make_pair(id_of(pair.first), id_of(pair.second));
      if (count > most ||
          (count == most && most > 1 && ids < std::make_pair(id_of(best.first), id_of(best.second)))) {
        best = pair;
        most = count;
      }
    }
    if (most < 2) break;
    for (auto& entry : split) {
      std::vector<std::string> merged;
      for (size_t i = 0; i < entry.first.size(); ++i) {
        if (i + 1 < entry.first.size() && entry.first[i] == best.first && entry.first[i + 1] == best.second) {
          merged.push_back(best.first + best.second);
          ++i;
        } else {
          merged.push_back(entry.first[i]);
        }
      }
      entry.first = merged;
    }
    const std::string token = best.first + best.second;
    if (std::find(learned.begin(), learned.end(), token) == learned.end()) learned.push_back(token);
  }
  return learned;
}

TEST(BpeTrainer, LearnsWhatTheDefinitionSays) {
  std::mt19937 random(11);
  for (int round = 0; round < 20; ++round) {
    std::map<std::string, int64_t> words;
    std::vector<std::string> texts;
    for (int i = 0; i < 80; ++i) {
      std::string word;
      for (int length = 1 + static_cast<int>(random() % 9); length > 0; --length) {
        word.push_back("aaab"[random() % (2 + round % 3)]);
      }
      const int times = 1 + static_cast<int>(random() % 5);
      words[word] += times;
      for (int t = 0; t < times; ++t) texts.push_back(word);
    }
    const auto trained = TrainBpe(CounterOf(texts), Options(257 + 40));
    ASSERT_TRUE(trained.ok()) << trained.status();
    const std::vector<std::string> learned(trained->tokens.begin() + 257, trained->tokens.end());
    EXPECT_EQ(learned, TokensByDefinition(words, 40)) << round;
  }
}

TEST(BpeTrainer, WhatItWritesReadsAnyTextBack) {
  const auto trained = TrainBpe(
      CounterOf({"the theme of the thesis, \u00E9t\u00E9 \u00E9t\u00E9", "\"\\\n\t the\x01"}), Options(270));
  ASSERT_TRUE(trained.ok()) << trained.status();
  const auto tokenizer = Tokenizer::Parse(TokenizerJson(*trained), "trained");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->end_of_document_id(), 0);
  std::string all;
  for (int i = 0; i < 128; ++i) all.push_back(static_cast<char>(i));
  for (const std::string& text : {all, std::string("the \u4E16\u754C\U0001F600 th"), std::string()}) {
    std::vector<int32_t> ids;
    ASSERT_TRUE((*tokenizer)->EncodeDocument(text, &ids).ok());
    EXPECT_EQ(*(*tokenizer)->Decode(ids, false), text);
  }
  std::vector<int32_t> ids;
  ASSERT_TRUE((*tokenizer)->Encode(" the", &ids).ok());
  EXPECT_LT(ids.size(), 3U);
}

TEST(BpeTrainer, WhatCannotBeIsRefused) {
  const WordCounter words = CounterOf({"a b c"});
  EXPECT_THAT(TrainBpe(words, Options(256)).status().message(),
              HasSubstr("--vocab 256: must be from 257 (1 special token and 256 bytes) to "));
  EXPECT_EQ(ExitCodeFor(TrainBpe(words, Options(int64_t{1} << 40)).status()), ExitCode::kUsage);
  TrainOptions options = Options(300);
  options.special_tokens = {"<s>", "<s>"};
  EXPECT_THAT(TrainBpe(words, options).status().message(), HasSubstr("'<s>' was given twice"));
  options.special_tokens = {"\u00E9"};
  EXPECT_THAT(TrainBpe(words, options).status().message(),
              HasSubstr("'\u00E9' is the spelling of the byte 0xE9"));
  options = Options(300);
  options.min_frequency = -5;
  EXPECT_THAT(TrainBpe(words, options).status().message(),
              HasSubstr("--min-frequency -5: must be at least 1"));
  EXPECT_EQ(TrainBpe(words, Options(300))->tokens.size(), 257U);  // no pair is there twice
}

}  // namespace
}  // namespace trainctl::tokenizer
