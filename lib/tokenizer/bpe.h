// Byte pair encoding: a word's symbols are merged pair by pair, always the pair that was learned first, of
// equal ones the leftmost. Ids are those of the reference implementation for every word.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/model.h"

namespace trainctl::tokenizer {

struct BpeOptions {
  // Symbols are bytes and tokens are spelled in GPT-2's alphabet for them; else symbols are characters.
  bool byte_level = false;
  bool byte_fallback = false;  // characters that are no token become <0xNN> tokens
  bool fuse_unk = false;
  bool ignore_merges = false;  // a word that is a token is that token
  std::string unk_token;       // empty: what is no token is left out
};

class BpeModel : public Model {
 public:
  // Merges in the order in which they were learned. BadDataError names `what` and the merge that makes no
  // token.
  static absl::StatusOr<std::unique_ptr<BpeModel>> Create(
      const std::vector<std::string>& tokens, const std::vector<std::pair<std::string, std::string>>& merges,
      const BpeOptions& options, absl::string_view what);

  void EncodeWord(absl::string_view word, Scratch& scratch, std::vector<int32_t>* ids) const override;

 private:
  struct Merge {
    int32_t rank;
    int32_t merged_id;
  };

  BpeModel() = default;
  absl::Status AddMerges(const absl::flat_hash_map<absl::string_view, int32_t>& ids,
                         const std::vector<std::pair<std::string, std::string>>& merges,
                         absl::string_view what);
  void EncodeUncached(absl::string_view word, Scratch& scratch, std::vector<int32_t>* ids) const;
  void EncodeCached(absl::string_view word, Scratch& scratch, std::vector<int32_t>* ids) const;
  void FirstSymbols(absl::string_view word, std::vector<Scratch::Symbol>& symbols) const;
  void MergeShort(Scratch& scratch) const;
  void MergeLong(Scratch& scratch) const;
  const Merge* Find(int32_t left, int32_t right) const;

  BpeOptions options_;
  // A space mark (U+2581) behind anything else begins a word of its own: no merge goes over it.
  bool cuts_at_space_marks_ = false;
  int32_t unk_id_ = -1;
  std::array<int32_t, 256> byte_ids_{};                   // of bytes, or of ASCII characters
  std::array<int32_t, 256> fallback_ids_{};               // of <0xNN>
  absl::flat_hash_map<uint32_t, int32_t> character_ids_;  // beyond ASCII
  absl::flat_hash_map<std::string, int32_t> word_ids_;    // for ignore_merges
  absl::flat_hash_map<uint64_t, Merge> merges_;
};

// GPT-2's alphabet: each byte as a character that can be printed.
uint32_t ByteCharacter(uint8_t byte);
// The bytes that a token spells in that alphabet; false where a character is not in it.
bool BytesOfToken(absl::string_view token, std::string* bytes);

}  // namespace trainctl::tokenizer
