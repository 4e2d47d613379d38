// The bytes of a sentencepiece .model: a protobuf message, of which only what encoding needs is read.
// Bounded: nothing is believed that the bytes do not hold.
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
  std::vector<Piece> pieces;  // by id
  bool is_bpe = false;        // else Unigram
  bool byte_fallback = false;
  bool treat_whitespace_as_suffix = false;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  int32_t eos_id = 2;
  std::string unk_surface = " \xE2\x81\x87 ";
  std::string charsmap;  // of the normalizer; may be empty
};

// BadDataError: "<what>: ..." for bytes that are no such message, and for kinds of models that are not known
// here.
absl::StatusOr<SentencePieceFile> ParseSentencePieceFile(absl::string_view bytes, absl::string_view what);

}  // namespace trainctl::tokenizer
