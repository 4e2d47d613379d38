// The two kinds of sentencepiece models. Thread-safe.
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

// The pieces, as both models use them.
struct PieceTable {
  std::vector<SentencePieceFile::Piece> pieces;
  // Ids of the pieces that can occur in a text: the normal, user-defined and unused ones.
  absl::flat_hash_map<std::string, int32_t> ids;
  ByteTrie user_defined;
  int32_t unk_id = -1;
  bool byte_fallback = false;  // whether every byte has a piece
  std::array<int32_t, 256> byte_ids{};

  const SentencePieceFile::Piece& at(int32_t id) const { return pieces[static_cast<size_t>(id)]; }
  // Appends the ids for text that matches no piece.
  void AppendUnknown(absl::string_view text, std::vector<int32_t>* ids) const;
  // Returns the length of the longest user-defined symbol that is a prefix of `text`, or 0 if there is none.
  size_t UserDefinedBytes(absl::string_view text) const;
};

// Makes a model that merges adjacent symbols into pieces, in order of decreasing score and, for equal scores,
// from left to right. An unknown character becomes its bytes or unk_id.
std::unique_ptr<Model> MakePieceBpe(const PieceTable& table);

// Makes a model that finds the most likely sequence of pieces. It sums scores in single precision and in the
// same order as the reference implementation (0.2.3), because rounding decides between equally likely
// sequences.
std::unique_ptr<Model> MakeUnigram(const PieceTable& table);

}  // namespace trainctl::tokenizer
