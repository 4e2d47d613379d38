#include "data/index_format.h"

#include <bit>

#include "base/status.h"

namespace trainctl::data {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is read in place");

template <typename T>
T ReadAt(absl::Span<const uint8_t> bytes, int64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

bool KnownType(uint8_t code) { return (code >= 1 && code <= 5) || code == 8; }

}  // namespace

int64_t TokenBytes(TokenType type) {
  switch (type) {
    case TokenType::kI64:
      return 8;
    case TokenType::kI32:
      return 4;
    case TokenType::kI16:
    case TokenType::kU16:
      return 2;
    default:
      return 1;
  }
}

absl::string_view TokenTypeName(TokenType type) {
  switch (type) {
    case TokenType::kU8:
      return "uint8";
    case TokenType::kI8:
      return "int8";
    case TokenType::kI16:
      return "int16";
    case TokenType::kI32:
      return "int32";
    case TokenType::kI64:
      return "int64";
    case TokenType::kU16:
      return "uint16";
  }
  return "?";
}

absl::StatusOr<IndexView> IndexView::Parse(absl::Span<const uint8_t> index, absl::string_view path,
                                           int64_t data_bytes) {
  const auto error = [&](const auto&... parts) { return BadDataError(absl::StrCat(path, ": ", parts...)); };
  const int64_t index_bytes = static_cast<int64_t>(index.size());
  if (index_bytes < kIndexHeaderBytes) {
    return error("the index has ", index_bytes, " bytes, but its header alone takes ", kIndexHeaderBytes);
  }
  if (std::memcmp(index.data(), kIndexMagic, sizeof(kIndexMagic)) != 0) {
    return error("magic: not the index of a token dataset (it must begin with MMIDIDX)");
  }
  const uint64_t version = ReadAt<uint64_t>(index, 9);
  if (version != kIndexVersion) {
    return error("version: ", version, ", but this program reads version ", kIndexVersion);
  }
  IndexView view;
  const uint8_t code = index[17];
  if (!KnownType(code)) {
    return error("dtype: code ", code,
                 " is not a token type (1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 8 uint16)");
  }
  view.token_type_ = static_cast<TokenType>(code);
  view.token_bytes_ = TokenBytes(view.token_type_);

  // Bounding both counts by the file's size first keeps the products below far from overflow.
  const uint64_t sequences = ReadAt<uint64_t>(index, 18);
  const uint64_t documents = ReadAt<uint64_t>(index, 26);
  const uint64_t body_bytes = static_cast<uint64_t>(index_bytes - kIndexHeaderBytes);
  if (sequences > body_bytes / 12) {
    return error("sequence count: ", sequences, " do not fit in an index of ", index_bytes, " bytes");
  }
  if (documents > body_bytes / 8) {
    return error("document count: ", documents, " do not fit in an index of ", index_bytes, " bytes");
  }
  if (documents == 0) return error("document count: 0, but at least the closing entry is required");
  const uint64_t expected_bytes = 12 * sequences + 8 * documents;
  if (expected_bytes != body_bytes) {
    return error("the index has ", index_bytes, " bytes, but ", sequences, " sequences and ", documents,
                 " document indices require ", kIndexHeaderBytes + expected_bytes);
  }
  view.num_sequences_ = static_cast<int64_t>(sequences);
  view.num_documents_ = static_cast<int64_t>(documents) - 1;
  const uint8_t* const lengths = index.data() + kIndexHeaderBytes;
  view.pointers_ = lengths + 4 * view.num_sequences_;
  view.documents_ = view.pointers_ + 8 * view.num_sequences_;

  int64_t offset = 0;
  for (int64_t i = 0; i < view.num_sequences_; ++i) {
    const int64_t length = At<int32_t>(lengths, i);
    const int64_t pointer = At<int64_t>(view.pointers_, i);
    if (length < 0) return error("length of sequence ", i, ": ", length, " is negative");
    if (pointer != offset) {
      return error("pointer of sequence ", i, ": ", pointer, ", but the sequences before it end at ", offset);
    }
    // offset <= data_bytes here, and the product is below 2^34.
    offset += length * view.token_bytes_;
    if (offset > data_bytes) {
      return error("sequence ", i, " ends at byte ", offset, " of a data file of ", data_bytes, " bytes");
    }
  }
  if (offset != data_bytes) {
    return error("the index covers ", offset, " bytes of a data file of ", data_bytes,
                 " bytes; the two files do not match");
  }
  view.end_offset_ = offset;
  view.num_tokens_ = offset / view.token_bytes_;

  int64_t previous = 0;
  for (int64_t i = 0; i <= view.num_documents_; ++i) {
    const int64_t first = At<int64_t>(view.documents_, i);
    if (i == 0 && first != 0) return error("document index 0: ", first, ", must be 0");
    if (first < previous || first > view.num_sequences_) {
      return error("document index ", i, ": ", first, " must be within ", previous, "..",
                   view.num_sequences_);
    }
    previous = first;
  }
  if (previous != view.num_sequences_) {
    return error("document index ", view.num_documents_, ": the last must be the number of sequences, ",
                 view.num_sequences_, ", not ", previous);
  }
  return view;
}

}  // namespace trainctl::data
