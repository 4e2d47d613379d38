// Parses a sentencepiece .model, which is a protobuf message, and reads only the fields needed for encoding.
// Checks every length in the file against the file's size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::tokenizer {

enum class PieceType { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct SentencePieceFile {
  struct Piece {
    std::string text;
    float score = 0;
    PieceType type = PieceType::kNormal;
  };
  std::vector<Piece> pieces;  // pieces by id
  bool is_bpe = false;        // true for BPE, false for Unigram
  bool byte_fallback = false;
  bool treat_whitespace_as_suffix = false;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  int32_t eos_id = 2;
  std::string unk_surface = " \xE2\x81\x87 ";
  std::string charsmap;  // normalization table; may be empty
};

// Returns BadDataError "<what>: ..." if the bytes are not such a message or the kind of model is not
// supported.
absl::StatusOr<SentencePieceFile> ParseSentencePieceFile(absl::string_view bytes, absl::string_view what);

}  // namespace trainctl::tokenizer
