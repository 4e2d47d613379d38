// The two models of sentencepiece. Thread safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tokenizer/byte_trie.h"
#include "tokenizer/model.h"
#include "tokenizer/sentencepiece_file.h"

namespace trainctl::tokenizer {

// What both ask about pieces.
struct PieceTable {
  std::vector<SentencePieceFile::Piece> pieces;
  // Of normal, user-defined and unused pieces: what can be found in a text.
  absl::flat_hash_map<std::string, int32_t> ids;
  ByteTrie user_defined;
  int32_t unk_id = -1;
  bool byte_fallback = false;  // then each byte has a piece
  std::array<int32_t, 256> byte_ids{};

  const SentencePieceFile::Piece& at(int32_t id) const { return pieces[static_cast<size_t>(id)]; }
  // What a stretch without a piece becomes.
  void AppendUnknown(absl::string_view text, std::vector<int32_t>* ids) const;
  // Length of the longest user-defined symbol at the front of `text`; 0: none.
  size_t UserDefinedBytes(absl::string_view text) const;
};

// Neighbours that make a piece together are joined, always those of the highest score, of equal ones the
// leftmost. An unknown character becomes its bytes, or unk_id.
std::unique_ptr<Model> MakePieceBpe(const PieceTable& table);

// The most likely row of pieces. The sums are single precision in the order of the reference implementation
// (0.2.3), as rounding decides between rows that are equally likely.
std::unique_ptr<Model> MakeUnigram(const PieceTable& table);

}  // namespace trainctl::tokenizer
