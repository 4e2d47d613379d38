// The binary format of the index of a Megatron-compatible token dataset (`PREFIX.idx`). All integers are
// little-endian:
//
//   9 bytes  magic "MMIDIDX\0\0"
//   u64      version, 1
//   u8       dtype code: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 8 uint16 (6, 7 are floats: refused)
//   u64      S, number of sequences
//   u64      D, number of document indices (documents + 1)
//   S x i32  tokens of each sequence
//   S x i64  byte offset of each sequence in `PREFIX.bin`
//   D x i64  first sequence of each document; the last is S
//
// Stricter than other readers of the format: sequences must be adjacent and end where the data file ends, so
// mismatched pairs of files are detected. Parses bytes without opening a file. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <cstring>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainctl::data {

inline constexpr char kIndexMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
inline constexpr uint64_t kIndexVersion = 1;
inline constexpr int64_t kIndexHeaderBytes = 34;

enum class TokenType : uint8_t { kU8 = 1, kI8 = 2, kI16 = 3, kI32 = 4, kI64 = 5, kU16 = 8 };

int64_t TokenBytes(TokenType type);
absl::string_view TokenTypeName(TokenType type);  // "uint8", "int32", ...

// A validated index. It is a view of the bytes passed to Parse, which must outlive it.
class IndexView {
 public:
  // Parses an index and validates every field. `path` names the index in error messages. Returns BadDataError
  // if a field is invalid; the message names it.
  static absl::StatusOr<IndexView> Parse(absl::Span<const uint8_t> index, absl::string_view path,
                                         int64_t data_bytes);

  TokenType token_type() const { return token_type_; }
  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_documents() const { return num_documents_; }
  int64_t num_tokens() const { return num_tokens_; }

  // The byte offset of a document in the data file, and the number of its tokens.
  int64_t DocumentOffset(int64_t document) const { return SequenceOffset(FirstSequence(document)); }
  int64_t DocumentTokens(int64_t document) const {
    return (DocumentOffset(document + 1) - DocumentOffset(document)) / token_bytes_;
  }

 private:
  template <typename T>
  static T At(const uint8_t* base, int64_t i) {
    T value;
    std::memcpy(&value, base + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  }
  int64_t FirstSequence(int64_t document) const { return At<int64_t>(documents_, document); }
  int64_t SequenceOffset(int64_t sequence) const {
    // Compared as unsigned, because a map that was overwritten after validation must not lead outside the
    // file.
    return static_cast<uint64_t>(sequence) < static_cast<uint64_t>(num_sequences_)
               ? At<int64_t>(pointers_, sequence)
               : end_offset_;
  }

  TokenType token_type_ = TokenType::kU8;
  int64_t token_bytes_ = 1;
  int64_t num_sequences_ = 0;
  int64_t num_documents_ = 0;
  int64_t num_tokens_ = 0;
  int64_t end_offset_ = 0;  // end of the last sequence
  const uint8_t* pointers_ = nullptr;
  const uint8_t* documents_ = nullptr;
};

}  // namespace trainctl::data
