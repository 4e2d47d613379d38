#include "tokenizer/bpe_trainer.h"

#include <algorithm>
#include <queue>
#include <set>

#include "absl/strings/str_format.h"
#include "base/json.h"
#include "base/status.h"
#include "base/units.h"
#include "tokenizer/bpe.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/utf8.h"

namespace trainctl::tokenizer {
namespace {

using Pair = std::pair<int32_t, int32_t>;

class Trainer {
 public:
  Trainer(const WordCounter& words, int32_t first_byte_id) {
    // Sorted, as the order of a hash map differs from run to run.
    std::vector<std::pair<absl::string_view, int64_t>> sorted(words.counts().begin(), words.counts().end());
    std::sort(sorted.begin(), sorted.end());
    for (const auto& [word, count] : sorted) {
      Word entry{{}, count};
      for (const char c : word) entry.ids.push_back(first_byte_id + static_cast<uint8_t>(c));
      if (entry.ids.size() > 1) words_.push_back(std::move(entry));
    }
    for (size_t w = 0; w < words_.size(); ++w) {
      for (size_t i = 0; i + 1 < words_[w].ids.size(); ++i) {
        Count({words_[w].ids[i], words_[w].ids[i + 1]}, words_[w].count, w);
      }
    }
    for (const auto& [pair, where] : pairs_) queue_.push({where.count, pair});
  }

  // The most frequent pair, which must be merged then; false when none stands there `min_frequency` times.
  bool FindNext(int64_t min_frequency, Pair* pair) {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(top.pair);
      if (found == pairs_.end()) continue;
      if (found->second.count != top.count) {  // rarer than it was when it was put there
        if (found->second.count > 0) queue_.push({found->second.count, top.pair});
        continue;
      }
      if (top.count < min_frequency) return false;
      *pair = top.pair;
      return true;
    }
    return false;
  }

  void Merge(Pair pair, int32_t merged_id) {
    const std::vector<size_t> in_words = std::move(pairs_[pair].words);
    pairs_.erase(pair);
    std::set<Pair> grown;
    for (const size_t w : in_words) {
      Word& word = words_[w];
      std::vector<int32_t>& ids = word.ids;
      size_t kept = 0;
      for (size_t i = 0; i < ids.size(); ++i) {
        const bool is_pair = i + 1 < ids.size() && ids[i] == pair.first && ids[i + 1] == pair.second;
        if (!is_pair) {
          ids[kept++] = ids[i];
          continue;
        }
        if (kept > 0) {
          Uncount({ids[kept - 1], pair.first}, word.count);
          Count({ids[kept - 1], merged_id}, word.count, w);
          grown.insert({ids[kept - 1], merged_id});
        }
        if (i + 2 < ids.size()) {
          Uncount({pair.second, ids[i + 2]}, word.count);
          // Where the next one is merged as well, this pair is uncounted there again.
          Count({merged_id, ids[i + 2]}, word.count, w);
          grown.insert({merged_id, ids[i + 2]});
        }
        ids[kept++] = merged_id;
        ++i;
      }
      ids.resize(kept);
    }
    for (const Pair& p : grown) {
      const auto found = pairs_.find(p);
      if (found != pairs_.end() && found->second.count > 0) queue_.push({found->second.count, p});
    }
  }

 private:
  struct Word {
    std::vector<int32_t> ids;
    int64_t count;
  };
  struct Where {
    int64_t count = 0;
    std::vector<size_t> words;  // where it was seen; it may be gone there, or be there twice
  };
  struct Candidate {
    int64_t count;
    Pair pair;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  void Count(Pair pair, int64_t count, size_t word) {
    Where& where = pairs_[pair];
    where.count += count;
    if (where.words.empty() || where.words.back() != word) where.words.push_back(word);
  }

  void Uncount(Pair pair, int64_t count) {
    const auto found = pairs_.find(pair);
    if (found != pairs_.end()) found->second.count -= count;
  }

  std::vector<Word> words_;
  absl::flat_hash_map<Pair, Where> pairs_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

absl::StatusOr<WordCounter> WordCounter::Create() {
  TRAINCTL_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Compile(kGpt2Pattern, "GPT-2's pattern"));
  return WordCounter(std::move(pattern));
}

absl::Status WordCounter::AddText(absl::string_view text) {
  std::string repaired;
  TRAINCTL_ASSIGN_OR_RETURN(text, CheckedText(text, SIZE_MAX, &repaired));
  MatchScratch scratch;
  return pattern_.ForEach(text, scratch, [&](const Match& match) {
    const absl::string_view word = text.substr(match.span.begin, match.span.end - match.span.begin);
    if (!word.empty()) ++counts_[word];
  });
}

void WordCounter::AddAll(const WordCounter& other) {
  for (const auto& [word, count] : other.counts_) counts_[word] += count;
}

absl::Status CheckTrainOptions(const TrainOptions& options) {
  std::set<std::string> seen;
  for (const std::string& token : options.special_tokens) {
    if (token.empty() || !IsUtf8(token)) return UsageError("a special token is empty or not UTF-8");
    std::string bytes;
    if (BytesOfToken(token, &bytes) && bytes.size() == 1) {
      return UsageError(absl::StrFormat(
          "the special token '%s' is the spelling of the byte 0x%02X in a tokenizer.json; choose another one",
          token, static_cast<uint8_t>(bytes[0])));
    }
    if (!seen.insert(token).second) {
      return UsageError(absl::StrCat("the special token '", token, "' was given twice"));
    }
  }
  if (options.min_frequency < 1) {
    return UsageError(absl::StrCat("--min-frequency ", options.min_frequency, ": must be at least 1"));
  }
  const auto num_special = static_cast<int64_t>(options.special_tokens.size());
  if (options.vocab < num_special + 256 || options.vocab > kMaxVocab) {
    return UsageError(absl::StrCat("--vocab ", options.vocab, ": must be from ", num_special + 256, " (",
                                   FormatNumberOf(num_special, "special token"), " and 256 bytes) to ",
                                   kMaxVocab));
  }
  return absl::OkStatus();
}

absl::StatusOr<TrainedBpe> TrainBpe(const WordCounter& words, const TrainOptions& options) {
  TRAINCTL_RETURN_IF_ERROR(CheckTrainOptions(options));
  TrainedBpe trained;
  trained.special_tokens = options.special_tokens;
  trained.tokens = options.special_tokens;
  for (int byte = 0; byte < 256; ++byte) {
    AppendUtf8(ByteCharacter(static_cast<uint8_t>(byte)), &trained.tokens.emplace_back());
  }
  Trainer trainer(words, static_cast<int32_t>(options.special_tokens.size()));
  absl::flat_hash_map<std::string, int32_t> ids;
  for (const std::string& token : trained.tokens) ids.emplace(token, static_cast<int32_t>(ids.size()));
  std::set<Pair> learned;
  Pair pair;
  while (static_cast<int64_t>(trained.tokens.size()) < options.vocab &&
         trainer.FindNext(options.min_frequency, &pair)) {
    std::string token =
        trained.tokens[static_cast<size_t>(pair.first)] + trained.tokens[static_cast<size_t>(pair.second)];
    // "ab" + "c" may follow "a" + "bc": another merge, the same token.
    const auto [place, is_new] = ids.try_emplace(token, static_cast<int32_t>(trained.tokens.size()));
    if (is_new) trained.tokens.push_back(std::move(token));
    if (learned.insert(pair).second) trained.merges.push_back(pair);
    trainer.Merge(pair, place->second);
  }
  return trained;
}

std::string TokenizerJson(const TrainedBpe& trained) {
  Json added = Json::array();
  for (size_t i = 0; i < trained.special_tokens.size(); ++i) {
    added.push_back({{"id", i},
                     {"content", trained.special_tokens[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  // Not as an ordered object, which looks for each new key among all others.
  std::string vocab = "{";
  for (size_t i = 0; i < trained.tokens.size(); ++i) {
    absl::StrAppend(&vocab, i > 0 ? ",\n      " : "\n      ", FormatJson(Json(trained.tokens[i])), ": ", i);
  }
  vocab += "\n    }";
  std::string merges = "[";
  for (size_t i = 0; i < trained.merges.size(); ++i) {
    const auto& [left, right] = trained.merges[i];
    const std::string merge = absl::StrCat(trained.tokens[static_cast<size_t>(left)], " ",
                                           trained.tokens[static_cast<size_t>(right)]);
    absl::StrAppend(&merges, i > 0 ? ",\n      " : "\n      ", FormatJson(Json(merge)));
  }
  merges += trained.merges.empty() ? "]" : "\n    ]";
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return absl::StrCat(
      "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": ",
      FormatJson(added), ",\n  \"normalizer\": null,\n  \"pre_tokenizer\": ", FormatJson(byte_level),
      ",\n  \"post_processor\": ", FormatJson(byte_level), ",\n  \"decoder\": ", FormatJson(byte_level),
      ",\n  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
      "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
      "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n"
      "    \"vocab\": ",
      vocab, ",\n    \"merges\": ", merges, "\n  }\n}\n");
}

}  // namespace trainctl::tokenizer
