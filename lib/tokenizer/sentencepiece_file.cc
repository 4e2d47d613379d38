#include "tokenizer/sentencepiece_file.h"

#include <cstring>

#include "absl/functional/function_ref.h"
#include "base/status.h"
#include "tokenizer/model.h"
#include "tokenizer/utf8.h"

namespace trainctl::tokenizer {
namespace {

constexpr size_t kMaxPieceBytes = 4096;

// One field of a message: a number, or bytes.
struct Field {
  uint32_t number = 0;
  uint32_t wire_type = 0;
  uint64_t value = 0;  // varint, fixed32 or fixed64
  absl::string_view bytes;
};

bool ReadVarint(absl::string_view& in, uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(in.front());
    in.remove_prefix(1);
    *value |= static_cast<uint64_t>(byte & 0x7FU) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool ReadFixed(absl::string_view& in, size_t num_bytes, uint64_t* value) {
  if (in.size() < num_bytes) return false;
  *value = 0;
  for (size_t i = 0; i < num_bytes; ++i)
    *value |= static_cast<uint64_t>(static_cast<uint8_t>(in[i])) << (8 * i);
  in.remove_prefix(num_bytes);
  return true;
}

bool ReadField(absl::string_view& in, Field* field) {
  uint64_t tag = 0;
  if (!ReadVarint(in, &tag) || tag >> 3 == 0 || tag >> 3 > (uint64_t{1} << 29)) return false;
  *field = {static_cast<uint32_t>(tag >> 3), static_cast<uint32_t>(tag & 7), 0, {}};
  switch (field->wire_type) {
    case 0:
      return ReadVarint(in, &field->value);
    case 1:
      return ReadFixed(in, 8, &field->value);
    case 2: {
      uint64_t length = 0;
      if (!ReadVarint(in, &length) || length > in.size()) return false;
      field->bytes = in.substr(0, length);
      in.remove_prefix(length);
      return true;
    }
    case 5:
      return ReadFixed(in, 4, &field->value);
    default:
      return false;
  }
}

// False where the bytes are no message.
bool ForEachField(absl::string_view message, absl::FunctionRef<void(const Field&)> see) {
  Field field;
  while (!message.empty()) {
    if (!ReadField(message, &field)) return false;
    see(field);
  }
  return true;
}

bool ReadPiece(absl::string_view message, SentencePieceFile::Piece* piece) {
  return ForEachField(message, [&](const Field& field) {
    if (field.number == 1 && field.wire_type == 2) piece->text = std::string(field.bytes);
    if (field.number == 2 && field.wire_type == 5) {
      const auto bits = static_cast<uint32_t>(field.value);
      std::memcpy(&piece->score, &bits, sizeof(bits));
    }
    if (field.number == 3 && field.wire_type == 0 && field.value >= 1 && field.value <= 6) {
      piece->type = static_cast<PieceType>(field.value);
    }
  });
}

class Reader {
 public:
  explicit Reader(absl::string_view what) : what_(what) {}

  absl::StatusOr<SentencePieceFile> Run(absl::string_view bytes) {
    bool is_message = true;
    bool is_too_large = false;
    const bool is_whole = ForEachField(bytes, [&](const Field& field) {
      if (field.wire_type != 2) return;
      if (field.number == 1) {
        is_too_large = file_.pieces.size() >= kMaxVocab;
        if (is_too_large) return;
        is_message = is_message && ReadPiece(field.bytes, &file_.pieces.emplace_back());
      }
      if (field.number == 2) is_message = is_message && ReadTrainer(field.bytes);
      if (field.number == 3) is_message = is_message && ReadNormalizer(field.bytes);
      if (field.number == 5) is_message = is_message && ReadDenormalizer(field.bytes);
    });
    if (!is_whole || !is_message || file_.pieces.empty()) {
      return BadDataError(
          absl::StrCat(what_, ": neither a tokenizer.json nor a complete SentencePiece .model file"));
    }
    if (is_too_large) return BadDataError(absl::StrCat(what_, ": more than ", kMaxVocab, " pieces"));
    TRAINCTL_RETURN_IF_ERROR(Check());
    return std::move(file_);
  }

 private:
  bool ReadTrainer(absl::string_view message) {
    return ForEachField(message, [&](const Field& field) {
      const bool is_number = field.wire_type == 0;
      if (field.number == 3 && is_number) model_type_ = field.value;
      if (field.number == 24 && is_number) file_.treat_whitespace_as_suffix = field.value != 0;
      if (field.number == 35 && is_number) file_.byte_fallback = field.value != 0;
      if (field.number == 42 && is_number) file_.eos_id = static_cast<int32_t>(field.value);
      if (field.number == 44 && field.wire_type == 2) file_.unk_surface = std::string(field.bytes);
    });
  }

  bool ReadNormalizer(absl::string_view message) {
    return ForEachField(message, [&](const Field& field) {
      if (field.number == 2 && field.wire_type == 2) file_.charsmap = std::string(field.bytes);
      if (field.wire_type != 0) return;
      if (field.number == 3) file_.add_dummy_prefix = field.value != 0;
      if (field.number == 4) file_.remove_extra_whitespaces = field.value != 0;
      if (field.number == 5) file_.escape_whitespaces = field.value != 0;
    });
  }

  bool ReadDenormalizer(absl::string_view message) {
    return ForEachField(message, [&](const Field& field) {
      if (field.number == 2 && !field.bytes.empty()) has_denormalizer_ = true;
    });
  }

  absl::Status Check() {
    constexpr uint64_t kUnigram = 1;
    constexpr uint64_t kBpe = 2;
    if (model_type_ != kUnigram && model_type_ != kBpe) {
      return BadDataError(absl::StrCat(what_, ": trainer_spec.model_type = ", model_type_,
                                       " is not supported; only 1 (Unigram) and 2 (BPE) are"));
    }
    file_.is_bpe = model_type_ == kBpe;
    if (has_denormalizer_) return BadDataError(absl::StrCat(what_, ": denormalizer_spec is not supported"));
    for (size_t i = 0; i < file_.pieces.size(); ++i) {
      const SentencePieceFile::Piece& piece = file_.pieces[i];
      if (piece.text.empty() || piece.text.size() > kMaxPieceBytes || !IsUtf8(piece.text)) {
        return BadDataError(absl::StrCat(what_, ": pieces[", i, "] is empty, longer than ", kMaxPieceBytes,
                                         " bytes or not UTF-8"));
      }
      if (!(piece.score > -1e30F && piece.score < 1e30F)) {
        return BadDataError(absl::StrCat(what_, ": pieces[", i, "].score is not a number"));
      }
    }
    return absl::OkStatus();
  }

  absl::string_view what_;
  SentencePieceFile file_;
  uint64_t model_type_ = 1;
  bool has_denormalizer_ = false;
};

}  // namespace

absl::StatusOr<SentencePieceFile> ParseSentencePieceFile(absl::string_view bytes, absl::string_view what) {
  return Reader(what).Run(bytes);
}

}  // namespace trainctl::tokenizer
