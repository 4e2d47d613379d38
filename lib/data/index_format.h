// The index of a Megatron-compatible token dataset (`PREFIX.idx`), as bytes. All little-endian:
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
// Stricter than the format's other readers: sequences lie one behind the other and end where the
// data file ends, so that a pair of files that do not belong together is noticed. Reads bytes only,
// opens no file. Pure; thread safe.
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

// A checked index. Views the bytes it was made from, which must outlive it.
class IndexView {
 public:
  // Checks every field. `path` names the index in errors. BadDataError names the file and the field.
  static absl::StatusOr<IndexView> Parse(absl::Span<const uint8_t> index, absl::string_view path,
                                         int64_t data_bytes);

  TokenType token_type() const { return token_type_; }
  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_documents() const { return num_documents_; }
  int64_t num_tokens() const { return num_tokens_; }

  // Where a document starts in the data file, and how long it is.
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
    // Unsigned: a map that was overwritten after the check must not lead outside it.
    return static_cast<uint64_t>(sequence) < static_cast<uint64_t>(num_sequences_)
               ? At<int64_t>(pointers_, sequence)
               : end_offset_;
  }

  TokenType token_type_ = TokenType::kU8;
  int64_t token_bytes_ = 1;
  int64_t num_sequences_ = 0;
  int64_t num_documents_ = 0;
  int64_t num_tokens_ = 0;
  int64_t end_offset_ = 0;  // behind the last sequence
  const uint8_t* pointers_ = nullptr;
  const uint8_t* documents_ = nullptr;
};

}  // namespace trainctl::data
