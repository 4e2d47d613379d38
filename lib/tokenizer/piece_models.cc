#include "tokenizer/piece_models.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <queue>
#include <utility>

#include "tokenizer/space_marks.h"
#include "tokenizer/utf8.h"

namespace trainctl::tokenizer {
namespace {

constexpr float kUnkPenalty = 10.0F;
constexpr float kRebaseScore = 100000.0F;

class PieceBpe : public Model {
 public:
  explicit PieceBpe(const PieceTable& table) : table_(table) {
    cuts_at_space_marks_ = std::none_of(table.pieces.begin(), table.pieces.end(),
                                        [](const auto& piece) { return HasMarkInside(piece.text); });
  }

  void EncodeWord(absl::string_view text, Scratch& scratch, std::vector<int32_t>* ids) const override {
    if (!cuts_at_space_marks_) return EncodePart(text, ids);
    // No piece goes over the beginning of a row of space marks, so the parts between can be kept.
    ForEachMarkedPart(text, [&](absl::string_view part) {
      scratch.cache.Append(part, ids, [&] { EncodePart(part, ids); });
    });
  }

 private:
  struct Symbol {
    int32_t previous;
    int32_t next;
    bool is_fixed;  // a user-defined symbol
    absl::string_view text;
  };
  struct Candidate {
    float score;
    int32_t left;
    int32_t right;
    size_t num_bytes;
    bool operator<(const Candidate& other) const {
      return score != other.score ? score < other.score : left > other.left;
    }
  };
  using Halves = absl::flat_hash_map<absl::string_view, std::pair<absl::string_view, absl::string_view>>;

  void EncodePart(absl::string_view text, std::vector<int32_t>* ids) const {
    std::vector<Symbol> symbols;
    while (!text.empty()) {
      const size_t fixed_bytes = table_.UserDefinedBytes(text);
      const size_t num_bytes = fixed_bytes > 0 ? fixed_bytes : CharBytes(text.front());
      const auto i = static_cast<int32_t>(symbols.size());
      symbols.push_back({i - 1, i + 1, fixed_bytes > 0, text.substr(0, num_bytes)});
      text.remove_prefix(num_bytes);
    }
    symbols.back().next = -1;
    Halves halves;
    Join(symbols, halves);
    std::vector<absl::string_view> to_split;  // an unused piece is given back as what it was made of
    for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
      to_split.push_back(symbols[static_cast<size_t>(i)].text);
      while (!to_split.empty()) {
        const absl::string_view piece = to_split.back();
        to_split.pop_back();
        const auto id = table_.ids.find(piece);
        const bool is_known = id != table_.ids.end();
        const auto half = halves.find(piece);
        const bool is_unused = is_known && table_.at(id->second).type == PieceType::kUnused;
        if (is_unused && half != halves.end()) {
          to_split.push_back(half->second.second);
          to_split.push_back(half->second.first);
        } else if (is_known && !is_unused) {
          ids->push_back(id->second);
        } else {
          table_.AppendUnknown(piece, ids);
        }
      }
    }
  }

  void Join(std::vector<Symbol>& symbols, Halves& halves) const {
    std::priority_queue<Candidate> candidates;
    const auto at = [&](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
    const auto add = [&](int32_t left, int32_t right) {
      if (left < 0 || right < 0 || at(left).is_fixed || at(right).is_fixed) return;
      const absl::string_view joined(at(left).text.data(), at(left).text.size() + at(right).text.size());
      const auto id = table_.ids.find(joined);
      if (id == table_.ids.end()) return;
      candidates.push({table_.at(id->second).score, left, right, joined.size()});
      if (table_.at(id->second).type == PieceType::kUnused) halves[joined] = {at(left).text, at(right).text};
    };
    for (size_t i = 1; i < symbols.size(); ++i) add(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));
    while (!candidates.empty()) {
      const Candidate top = candidates.top();
      candidates.pop();
      Symbol& left = at(top.left);
      Symbol& right = at(top.right);
      if (left.text.empty() || right.text.empty() || left.text.size() + right.text.size() != top.num_bytes)
        continue;
      left.text = absl::string_view(left.text.data(), top.num_bytes);
      left.next = right.next;
      if (right.next >= 0) at(right.next).previous = top.left;
      right.text = {};
      add(left.previous, top.left);
      add(top.left, left.next);
    }
  }

  const PieceTable& table_;
  bool cuts_at_space_marks_ = false;
};

class Unigram : public Model {
 public:
  explicit Unigram(const PieceTable& table) : table_(table) {
    for (size_t i = 0; i < table.pieces.size(); ++i) {
      const SentencePieceFile::Piece& piece = table.pieces[i];
      if (piece.type == PieceType::kNormal) {
        min_score_ = std::min(min_score_, piece.score);
      }
      const auto id = table.ids.find(piece.text);
      if (id != table.ids.end() && id->second == static_cast<int32_t>(i) &&
          piece.type != PieceType::kUnused) {
        trie_.Add(piece.text, static_cast<int32_t>(i));
      }
    }
  }

  void EncodeWord(absl::string_view text, Scratch&, std::vector<int32_t>* ids) const override {
    struct Best {
      int32_t id = -1;
      float score = 0;
      int64_t begin = -1;
    };
    std::vector<Best> best(text.size() + 1);  // of the rows that end there
    const float unk_score = min_score_ - kUnkPenalty;
    size_t frontier = 0;  // the furthest end so far
    for (size_t begin = 0; begin < text.size();) {
      // Sums are taken back to zero now and then, where the reference does it: that too decides how they are
      // rounded.
      if (std::abs(best[begin].score) > kRebaseScore) {
        const float offset = best[begin].score;
        for (size_t i = begin; i <= frontier; ++i) {
          if (i == begin || best[i].begin >= 0) best[i].score -= offset;
        }
      }
      const float so_far = best[begin].score;
      const size_t character_bytes = CharBytes(text[begin]);
      bool has_character = false;
      const auto offer = [&](size_t end, float score, int32_t id) {
        frontier = std::max(frontier, end);
        if (best[end].begin >= 0 && score <= best[end].score) return;
        best[end] = {id, score, static_cast<int64_t>(begin)};
      };
      trie_.ForEachPrefix(text.substr(begin), [&](size_t length, int32_t id) {
        const SentencePieceFile::Piece& piece = table_.at(id);
        // User-defined symbols win over anything else.
        const float score = piece.type == PieceType::kUserDefined
                                ? static_cast<float>(0.1 * (static_cast<double>(length) - 1))
                                : piece.score;
        offer(begin + length, score + so_far, id);
        has_character = has_character || length == character_bytes;
      });
      if (!has_character) offer(begin + character_bytes, unk_score + so_far, table_.unk_id);
      begin += character_bytes;
    }
    std::vector<int64_t> ends;
    for (auto end = static_cast<int64_t>(text.size()); end > 0; end = best[static_cast<size_t>(end)].begin) {
      ends.push_back(end);
    }
    for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
      const Best& last = best[static_cast<size_t>(*end)];
      if (last.id != table_.unk_id) {
        ids->push_back(last.id);
      } else {
        table_.AppendUnknown(
            text.substr(static_cast<size_t>(last.begin), static_cast<size_t>(*end - last.begin)), ids);
      }
    }
  }

 private:
  const PieceTable& table_;
  ByteTrie trie_;
  float min_score_ = FLT_MAX;
};

}  // namespace

void PieceTable::AppendUnknown(absl::string_view text, std::vector<int32_t>* ids) const {
  if (!byte_fallback) return ids->push_back(unk_id);
  for (const char c : text) ids->push_back(byte_ids[static_cast<uint8_t>(c)]);
}

size_t PieceTable::UserDefinedBytes(absl::string_view text) const {
  size_t longest = 0;
  if (user_defined.empty()) return 0;
  user_defined.ForEachPrefix(text, [&](size_t length, int32_t) { longest = length; });
  return longest;
}

std::unique_ptr<Model> MakePieceBpe(const PieceTable& table) { return std::make_unique<PieceBpe>(table); }
std::unique_ptr<Model> MakeUnigram(const PieceTable& table) { return std::make_unique<Unigram>(table); }

}  // namespace trainctl::tokenizer
