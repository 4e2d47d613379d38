#include "data/indexed_dataset.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/lfs_pointer.h"
#include "base/status.h"
#include "data/data_file.h"

namespace trainctl::data {
namespace {

// The position of the first token outside [0, vocab), or `count`.
template <typename T>
int64_t Convert(const uint8_t* bytes, int64_t count, int64_t vocab, int32_t* tokens, int64_t& bad_token) {
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    const int64_t token = static_cast<int64_t>(value);
    if (token < 0 || token >= vocab) {
      bad_token = token;
      return i;
    }
    tokens[i] = static_cast<int32_t>(token);
  }
  return count;
}

int64_t ConvertAs(TokenType type, const uint8_t* bytes, int64_t count, int64_t vocab, int32_t* tokens,
                  int64_t& bad_token) {
  switch (type) {
    case TokenType::kU8:
      return Convert<uint8_t>(bytes, count, vocab, tokens, bad_token);
    case TokenType::kI8:
      return Convert<int8_t>(bytes, count, vocab, tokens, bad_token);
    case TokenType::kI16:
      return Convert<int16_t>(bytes, count, vocab, tokens, bad_token);
    case TokenType::kI32:
      return Convert<int32_t>(bytes, count, vocab, tokens, bad_token);
    case TokenType::kI64:
      return Convert<int64_t>(bytes, count, vocab, tokens, bad_token);
    case TokenType::kU16:
      return Convert<uint16_t>(bytes, count, vocab, tokens, bad_token);
  }
  return 0;
}

// Whether a token of this type may be outside [0, vocab).
bool CanBeOutside(TokenType type, int64_t vocab) {
  if (type == TokenType::kU8) return vocab <= UINT8_MAX;
  return type != TokenType::kU16 || vocab <= UINT16_MAX;
}

// The position of the first token outside [0, vocab), or -1. Two passes: nearly always none is, and the first
// pass has no branch.
template <typename T>
int64_t FirstOutside(const uint8_t* bytes, int64_t count, int64_t vocab) {
  const auto at = [&](int64_t i) {
    T value;
    std::memcpy(&value, bytes + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  };
  T least = at(0), most = at(0);
  for (int64_t i = 0; i < count; ++i) {
    least = std::min(least, at(i));
    most = std::max(most, at(i));
  }
  if (static_cast<int64_t>(least) >= 0 && static_cast<int64_t>(most) < vocab) return -1;
  int64_t i = 0;
  while (static_cast<int64_t>(at(i)) >= 0 && static_cast<int64_t>(at(i)) < vocab) ++i;
  return i;
}

int64_t FirstOutsideAs(TokenType type, const uint8_t* bytes, int64_t count, int64_t vocab) {
  switch (type) {
    case TokenType::kU8:
      return FirstOutside<uint8_t>(bytes, count, vocab);
    case TokenType::kI8:
      return FirstOutside<int8_t>(bytes, count, vocab);
    case TokenType::kI16:
      return FirstOutside<int16_t>(bytes, count, vocab);
    case TokenType::kI32:
      return FirstOutside<int32_t>(bytes, count, vocab);
    case TokenType::kI64:
      return FirstOutside<int64_t>(bytes, count, vocab);
    case TokenType::kU16:
      return FirstOutside<uint16_t>(bytes, count, vocab);
  }
  return -1;
}

absl::Status RefuseLfsPointer(const MappedFile& file) {
  return trainctl::RefuseLfsPointer({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()},
                                    file.path());
}

absl::Status CheckSize(const MappedFile& file) {
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t now_bytes, file.CurrentBytes());
  if (now_bytes == static_cast<int64_t>(file.bytes().size())) return absl::OkStatus();
  return FileChangedError(file.path(), static_cast<int64_t>(file.bytes().size()), now_bytes);
}

}  // namespace

absl::StatusOr<IndexedDataset> IndexedDataset::Open(const std::string& prefix) {
  const std::string data_path = prefix + ".bin";
  const std::string index_path = prefix + ".idx";
  TRAINCTL_RETURN_IF_ERROR(CheckDataFile(data_path).status());
  const absl::Status has_index = CheckDataFile(index_path).status();
  if (!has_index.ok()) {
    return Annotate(
        has_index,
        absl::StrCat("an indexed dataset consists of two files, .bin and .idx; next to ", data_path));
  }
  TRAINCTL_ASSIGN_OR_RETURN(MappedFile data, MappedFile::Open(data_path));
  TRAINCTL_ASSIGN_OR_RETURN(MappedFile index, MappedFile::Open(index_path));
  TRAINCTL_RETURN_IF_ERROR(RefuseLfsPointer(data));
  TRAINCTL_RETURN_IF_ERROR(RefuseLfsPointer(index));
  TRAINCTL_ASSIGN_OR_RETURN(
      const IndexView view,
      IndexView::Parse(index.bytes(), index_path, static_cast<int64_t>(data.bytes().size())));
  return IndexedDataset(std::move(data), std::move(index), view);
}

absl::Status IndexedDataset::CheckUnchanged() const {
  TRAINCTL_RETURN_IF_ERROR(CheckSize(data_));
  return CheckSize(index_);
}

absl::Status IndexedDataset::CheckTokens(int64_t vocab,
                                         const std::function<void(int64_t bytes)>& bytes_read) const {
  constexpr int64_t kPieceBytes = int64_t{16} << 20;
  const TokenType type = view_.token_type();
  const int64_t token_bytes = TokenBytes(type);
  const int64_t data_bytes = static_cast<int64_t>(data_.bytes().size());
  if (!CanBeOutside(type, vocab) || data_bytes == 0) {
    if (bytes_read) bytes_read(data_bytes);
    return absl::OkStatus();
  }
  const int64_t stride = data_bytes / kMostCheckedBytes + 1;  // every so many pieces are read
  for (int64_t begin = 0; begin < data_bytes; begin += stride * kPieceBytes) {
    TRAINCTL_RETURN_IF_ERROR(CheckUnchanged());
    const int64_t count = std::min(kPieceBytes, data_bytes - begin) / token_bytes;
    const int64_t outside = FirstOutsideAs(type, data_.bytes().data() + begin, count, vocab);
    if (outside >= 0) return ErrorAt(begin / token_bytes + outside, vocab);
    if (bytes_read) bytes_read(std::min(stride * kPieceBytes, data_bytes - begin));
  }
  return absl::OkStatus();
}

absl::Status IndexedDataset::ErrorAt(int64_t token, int64_t vocab) const {
  const int64_t token_bytes = TokenBytes(view_.token_type());
  int64_t document = 0;  // the last that begins at or before the token
  for (int64_t end = view_.num_documents(); end - document > 1;) {
    const int64_t middle = document + (end - document) / 2;
    (view_.DocumentOffset(middle) <= token * token_bytes ? document : end) = middle;
  }
  int32_t ignored;
  return Read(document, token - view_.DocumentOffset(document) / token_bytes, 1, vocab, &ignored);
}

absl::Status IndexedDataset::Read(int64_t document, int64_t first, int64_t count, int64_t vocab,
                                  int32_t* tokens) const {
  if (count == 0) return absl::OkStatus();
  TRAINCTL_CHECK(document >= 0 && document < view_.num_documents());
  TRAINCTL_CHECK(first >= 0 && count > 0);
  const int64_t token_bytes = TokenBytes(view_.token_type());
  const int64_t document_offset = view_.DocumentOffset(document);
  const int64_t document_tokens = view_.DocumentTokens(document);
  const int64_t data_bytes = static_cast<int64_t>(data_.bytes().size());
  // The index was checked when it was opened; this notices one that was overwritten since.
  if (document_offset < 0 || first > document_tokens || count > document_tokens - first ||
      document_offset > data_bytes - (first + count) * token_bytes) {
    return BadDataError(absl::StrCat(index_.path(), ": the index has changed since it was opened"));
  }
  const int64_t offset = document_offset + first * token_bytes;
  int64_t bad_token = 0;
  const int64_t converted =
      ConvertAs(view_.token_type(), data_.bytes().data() + offset, count, vocab, tokens, bad_token);
  if (converted == count) return absl::OkStatus();
  return BadDataError(absl::StrCat(path(), ": document ", document, ", position ", first + converted,
                                   ": token ", bad_token, " is outside the vocabulary of ", vocab,
                                   "; raise model.vocab or prepare the data with the model's tokenizer"));
}

}  // namespace trainctl::data
