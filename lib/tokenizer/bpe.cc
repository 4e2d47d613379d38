#include "tokenizer/bpe.h"

#include <algorithm>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "tokenizer/space_marks.h"
#include "tokenizer/utf8.h"

namespace trainctl::tokenizer {
namespace {

// Up to here looking at all pairs again after each merge is faster than a heap.
constexpr size_t kShortWordSymbols = 40;
constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Of the characters that stand for bytes: itself and 1; 0 for any other.
std::array<uint16_t, 512> MakeByteOfCharacter() {
  std::array<uint16_t, 512> bytes{};
  for (int byte = 0; byte < 256; ++byte) {
    bytes[ByteCharacter(static_cast<uint8_t>(byte))] = static_cast<uint16_t>(byte + 1);
  }
  return bytes;
}

bool IsBefore(const Scratch::Candidate& a, const Scratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;  // a heap has its greatest on top
}

}  // namespace

uint32_t ByteCharacter(uint8_t byte) {
  const auto is_shown = [](uint32_t b) {
    return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
  };
  if (is_shown(byte)) return byte;
  uint32_t number = 256;
  for (uint32_t b = 0; b < byte; ++b) number += is_shown(b) ? 0 : 1;
  return number;
}

bool BytesOfToken(absl::string_view token, std::string* bytes) {
  static const std::array<uint16_t, 512> kByteOf = MakeByteOfCharacter();
  bytes->clear();
  while (!token.empty()) {
    const uint32_t character = FrontCodePoint(token);
    if (character >= kByteOf.size() || kByteOf[character] == 0) return false;
    bytes->push_back(static_cast<char>(kByteOf[character] - 1));
    token.remove_prefix(CharBytes(token.front()));
  }
  return true;
}

absl::StatusOr<std::unique_ptr<BpeModel>> BpeModel::Create(
    const std::vector<std::string>& tokens, const std::vector<std::pair<std::string, std::string>>& merges,
    const BpeOptions& options, absl::string_view what) {
  std::unique_ptr<BpeModel> model(new BpeModel());
  model->options_ = options;
  model->byte_ids_.fill(-1);
  model->fallback_ids_.fill(-1);
  absl::flat_hash_map<absl::string_view, int32_t> ids;
  ids.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string& token = tokens[i];
    if (token.empty()) continue;
    const auto id = static_cast<int32_t>(i);
    ids.emplace(token, id);
    std::string bytes = token;
    if (options.byte_level && !BytesOfToken(token, &bytes)) continue;
    if (options.ignore_merges) model->word_ids_.emplace(bytes, id);
    if (bytes.size() == 1) model->byte_ids_[static_cast<uint8_t>(bytes[0])] = id;
    if (!options.byte_level && bytes.size() > 1 && CharBytes(bytes[0]) == bytes.size()) {
      model->character_ids_.emplace(FrontCodePoint(bytes), id);
    }
  }
  if (options.byte_fallback) {
    for (int byte = 0; byte < 256; ++byte) {
      const auto found = ids.find(absl::StrFormat("<0x%02X>", byte));
      if (found != ids.end()) model->fallback_ids_[static_cast<size_t>(byte)] = found->second;
    }
  }
  if (!options.unk_token.empty()) {
    const auto found = ids.find(options.unk_token);
    if (found == ids.end()) {
      return BadDataError(
          absl::StrCat(what, ": model.unk_token '", options.unk_token, "' is not in model.vocab"));
    }
    model->unk_id_ = found->second;
  }
  TRAINCTL_RETURN_IF_ERROR(model->AddMerges(ids, merges, what));
  // Without an unknown token characters may be left out, and what stood around them be merged.
  const bool keeps_all = model->unk_id_ >= 0;
  model->cuts_at_space_marks_ =
      !options.byte_level && !options.ignore_merges && keeps_all && ids.contains(kSpaceMark) &&
      std::none_of(merges.begin(), merges.end(),
                   [](const auto& merge) { return HasMarkInside(absl::StrCat(merge.first, merge.second)); });
  return model;
}

absl::Status BpeModel::AddMerges(const absl::flat_hash_map<absl::string_view, int32_t>& ids,
                                 const std::vector<std::pair<std::string, std::string>>& merges,
                                 absl::string_view what) {
  merges_.reserve(merges.size());
  std::string merged;
  auto merged_id = ids.end();
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto& [left, right] = merges[i];
    // Files that were made from tiktoken's have all merges to one token side by side.
    if (i == 0 || merged.size() != left.size() + right.size() || !absl::StartsWith(merged, left) ||
        !absl::EndsWith(merged, right)) {
      merged = absl::StrCat(left, right);
      merged_id = ids.find(merged);
    }
    const auto left_id = ids.find(left);
    const auto right_id = ids.find(right);
    if (left_id == ids.end() || right_id == ids.end() || merged_id == ids.end()) {
      const std::string& lacking = left_id == ids.end() ? left : right_id == ids.end() ? right : merged;
      return BadDataError(absl::StrCat(what, ": model.merges[", i, "] ('", left, "' and '", right,
                                       "') requires the token '", lacking, "', which is not in model.vocab"));
    }
    // Of a pair that is there twice the reference implementation keeps the later place.
    merges_[PairKey(left_id->second, right_id->second)] = {static_cast<int32_t>(i), merged_id->second};
  }
  return absl::OkStatus();
}

const BpeModel::Merge* BpeModel::Find(int32_t left, int32_t right) const {
  const auto found = merges_.find(PairKey(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BpeModel::EncodeWord(absl::string_view word, Scratch& scratch, std::vector<int32_t>* ids) const {
  if (!cuts_at_space_marks_) return EncodeCached(word, scratch, ids);
  ForEachMarkedPart(word, [&](absl::string_view part) { EncodeCached(part, scratch, ids); });
}

void BpeModel::EncodeCached(absl::string_view word, Scratch& scratch, std::vector<int32_t>* ids) const {
  scratch.cache.Append(word, ids, [&] { EncodeUncached(word, scratch, ids); });
}

void BpeModel::EncodeUncached(absl::string_view word, Scratch& scratch, std::vector<int32_t>* ids) const {
  if (options_.ignore_merges) {
    const auto found = word_ids_.find(word);
    if (found != word_ids_.end()) return ids->push_back(found->second);
  }
  FirstSymbols(word, scratch.symbols);
  if (scratch.symbols.size() <= kShortWordSymbols) {
    MergeShort(scratch);
  } else {
    MergeLong(scratch);
  }
  for (const Scratch::Symbol& symbol : scratch.symbols) {
    if (!symbol.is_gone) ids->push_back(symbol.id);
  }
}

void BpeModel::FirstSymbols(absl::string_view word, std::vector<Scratch::Symbol>& symbols) const {
  symbols.clear();
  // What is no token waits here, as the ones that follow may be joined to it.
  bool unk_waits = false;
  const auto add = [&](int32_t id) { symbols.push_back({id, 0, 0, false}); };
  const auto add_known = [&](int32_t id) {
    if (unk_waits) add(unk_id_);
    unk_waits = false;
    add(id);
  };
  const auto add_unknown = [&] {
    if (unk_id_ < 0) return;
    if (unk_waits && !options_.fuse_unk) add(unk_id_);
    unk_waits = true;
  };
  while (!word.empty()) {
    const size_t length = options_.byte_level ? 1 : CharBytes(word.front());
    int32_t id = -1;
    if (length == 1) {
      id = byte_ids_[static_cast<uint8_t>(word.front())];
    } else {
      const auto found = character_ids_.find(FrontCodePoint(word));
      if (found != character_ids_.end()) id = found->second;
    }
    const absl::string_view character = word.substr(0, length);
    word.remove_prefix(length);
    if (id >= 0) {
      add_known(id);
      continue;
    }
    const bool falls_back = options_.byte_fallback && !options_.byte_level &&
                            std::all_of(character.begin(), character.end(),
                                        [&](char c) { return fallback_ids_[static_cast<uint8_t>(c)] >= 0; });
    if (!falls_back) {
      add_unknown();
      continue;
    }
    // As the reference implementation: what waits goes on waiting.
    for (const char c : character) add(fallback_ids_[static_cast<uint8_t>(c)]);
  }
  if (unk_waits) add(unk_id_);
}

void BpeModel::MergeShort(Scratch& scratch) const {
  std::vector<Scratch::Symbol>& symbols = scratch.symbols;
  std::vector<int32_t>& ranks = scratch.ranks;  // of the pair of each symbol with the next one
  const auto rank_at = [&](size_t i) {
    const Merge* merge = i + 1 < symbols.size() ? Find(symbols[i].id, symbols[i + 1].id) : nullptr;
    return merge == nullptr ? kNoRank : merge->rank;
  };
  ranks.resize(symbols.size());
  for (size_t i = 0; i < symbols.size(); ++i) ranks[i] = rank_at(i);
  while (true) {
    const auto best = std::min_element(ranks.begin(), ranks.end());
    if (best == ranks.end() || *best == kNoRank) return;
    const auto i = static_cast<size_t>(best - ranks.begin());
    symbols[i].id = Find(symbols[i].id, symbols[i + 1].id)->merged_id;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(i) + 1);
    ranks.erase(ranks.begin() + static_cast<ptrdiff_t>(i) + 1);
    ranks[i] = rank_at(i);
    if (i > 0) ranks[i - 1] = rank_at(i - 1);
  }
}

void BpeModel::MergeLong(Scratch& scratch) const {
  std::vector<Scratch::Symbol>& symbols = scratch.symbols;
  std::vector<Scratch::Candidate>& heap = scratch.heap;
  const auto at = [&](int32_t position) -> Scratch::Symbol& {
    return symbols[static_cast<size_t>(position)];
  };
  heap.clear();
  const auto count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    at(i).previous = i - 1;
    at(i).next = i + 1 < count ? i + 1 : -1;
    if (i == 0) continue;
    const Merge* merge = Find(at(i - 1).id, at(i).id);
    if (merge != nullptr) heap.push_back({merge->rank, i - 1});
  }
  std::make_heap(heap.begin(), heap.end(), IsBefore);
  const auto push = [&](int32_t left) {
    if (left < 0 || at(left).next < 0) return;
    const Merge* merge = Find(at(left).id, at(at(left).next).id);
    if (merge == nullptr) return;
    heap.push_back({merge->rank, left});
    std::push_heap(heap.begin(), heap.end(), IsBefore);
  };
  while (!heap.empty()) {
    const Scratch::Candidate top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), IsBefore);
    heap.pop_back();
    Scratch::Symbol& left = at(top.position);
    if (left.is_gone || left.next < 0) continue;
    Scratch::Symbol& right = at(left.next);
    const Merge* merge = Find(left.id, right.id);
    if (merge == nullptr || merge->rank != top.rank) continue;  // one of the two has changed since
    left.id = merge->merged_id;
    left.next = right.next;
    right.is_gone = true;
    if (left.next >= 0) at(left.next).previous = top.position;
    push(left.previous);
    push(top.position);
  }
}

}  // namespace trainctl::tokenizer
