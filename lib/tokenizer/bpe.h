// Byte-pair encoding: merges the symbols of a word pair by pair. The pair that was learned first is merged
// first, and if it occurs several times, from left to right. For every word, the ids equal those of the
// reference implementation.
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
  // Whether symbols are bytes, with tokens spelled in GPT-2's byte alphabet. If false, symbols are
  // characters.
  bool byte_level = false;
  bool byte_fallback = false;  // unknown characters become <0xNN> tokens
  bool fuse_unk = false;
  bool ignore_merges = false;  // a word that is a token is not split
  std::string unk_token;       // if empty, unknown text is dropped
};

class BpeModel : public Model {
 public:
  // `merges` must be in the order learned. Returns a BadDataError, beginning with `what`, that names the
  // merge if its result is not a token.
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
  // Whether a space mark (U+2581) after any other character begins a new word, which no merge crosses.
  bool cuts_at_space_marks_ = false;
  int32_t unk_id_ = -1;
  std::array<int32_t, 256> byte_ids_{};                   // ids of all bytes, or of the ASCII characters
  std::array<int32_t, 256> fallback_ids_{};               // ids of <0xNN>
  absl::flat_hash_map<uint32_t, int32_t> character_ids_;  // ids of other characters
  absl::flat_hash_map<std::string, int32_t> word_ids_;    // only for ignore_merges
  absl::flat_hash_map<uint64_t, Merge> merges_;
};

// Returns the character for `byte` in GPT-2's alphabet, which represents each byte by a printable character.
uint32_t ByteCharacter(uint8_t byte);
// Sets `bytes` to the bytes that a token spells in GPT-2's alphabet. Returns false if it contains any other
// character.
bool BytesOfToken(absl::string_view token, std::string* bytes);

}  // namespace trainctl::tokenizer
