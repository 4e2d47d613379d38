#include "data/indexed_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/files.h"
#include "base/status.h"

namespace trainctl::data {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
// A longer document becomes several sequences of one document: a length in the index is an int32.
constexpr int64_t kMaxSequenceTokens = int64_t{1} << 30;

absl::Status WriteAll(int fd, const std::string& path, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoError("write", path, errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status Rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return ErrnoError("rename to", to, errno);
  return absl::OkStatus();
}

int64_t LargestToken(TokenType type) {
  switch (type) {
    case TokenType::kU8:
      return UINT8_MAX;
    case TokenType::kU16:
      return UINT16_MAX;
    default:
      return INT32_MAX;
  }
}

template <typename T>
void AppendValue(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

}  // namespace

IndexedWriter::IndexedWriter(std::string prefix, TokenType type)
    : prefix_(std::move(prefix)),
      type_(type),
      data_temporary_(absl::StrCat(prefix_, ".bin.tmp.", ::getpid())),
      index_temporary_(absl::StrCat(prefix_, ".idx.tmp.", ::getpid())) {}

absl::StatusOr<std::unique_ptr<IndexedWriter>> IndexedWriter::Create(const std::string& prefix,
                                                                     TokenType type) {
  if (type != TokenType::kU8 && type != TokenType::kU16 && type != TokenType::kI32) {
    return UsageError(
        absl::StrCat("token datasets are written as uint8, uint16 or int32, not ", TokenTypeName(type)));
  }
  std::unique_ptr<IndexedWriter> writer(new IndexedWriter(prefix, type));
  writer->data_fd_ = ::open(writer->data_temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (writer->data_fd_ < 0) return ErrnoError("create", writer->data_temporary_, errno);
  writer->buffer_.reserve(kBufferBytes);
  return writer;
}

IndexedWriter::~IndexedWriter() {
  if (data_fd_ < 0) return;
  ::close(data_fd_);
  ::unlink(data_temporary_.c_str());
  ::unlink(index_temporary_.c_str());
}

absl::Status IndexedWriter::Flush() {
  TRAINCTL_RETURN_IF_ERROR(WriteAll(data_fd_, data_temporary_, buffer_));
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status IndexedWriter::Put(const void* bytes, int64_t count) {
  buffer_.append(static_cast<const char*>(bytes), static_cast<size_t>(count));
  return buffer_.size() >= kBufferBytes ? Flush() : absl::OkStatus();
}

void IndexedWriter::CountTokens(int64_t count) {
  num_tokens_ += count;
  tokens_in_sequence_ += count;
  while (tokens_in_sequence_ > kMaxSequenceTokens) {
    sequence_tokens_.push_back(static_cast<int32_t>(kMaxSequenceTokens));
    tokens_in_sequence_ -= kMaxSequenceTokens;
  }
}

absl::Status IndexedWriter::Append(absl::Span<const int32_t> tokens) {
  const int64_t largest = LargestToken(type_);
  for (const int32_t token : tokens) {
    if (token < 0 || token > largest) {
      return UsageError(absl::StrCat("token ", token, " does not fit in ", TokenTypeName(type_)));
    }
  }
  for (const int32_t token : tokens) {  // little-endian: the low bytes come first
    TRAINCTL_RETURN_IF_ERROR(Put(&token, TokenBytes(type_)));
  }
  CountTokens(static_cast<int64_t>(tokens.size()));
  return absl::OkStatus();
}

absl::Status IndexedWriter::AppendBytes(absl::Span<const uint8_t> bytes) {
  if (type_ == TokenType::kU8) {
    TRAINCTL_RETURN_IF_ERROR(Put(bytes.data(), static_cast<int64_t>(bytes.size())));
  } else {
    for (const uint8_t byte : bytes) {
      const int32_t token = byte;
      TRAINCTL_RETURN_IF_ERROR(Put(&token, TokenBytes(type_)));
    }
  }
  CountTokens(static_cast<int64_t>(bytes.size()));
  return absl::OkStatus();
}

void IndexedWriter::EndDocument() {
  if (tokens_in_sequence_ > 0) sequence_tokens_.push_back(static_cast<int32_t>(tokens_in_sequence_));
  tokens_in_sequence_ = 0;
  document_indices_.push_back(static_cast<int64_t>(sequence_tokens_.size()));
}

absl::Status IndexedWriter::WriteIndex() {
  const int fd = ::open(index_temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoError("create", index_temporary_, errno);
  absl::Status status;
  std::string out(kIndexMagic, sizeof(kIndexMagic));
  const auto flush_if = [&](bool now) {
    if (!now || !status.ok()) return;
    status = WriteAll(fd, index_temporary_, out);
    out.clear();
  };
  AppendValue<uint64_t>(out, kIndexVersion);
  AppendValue<uint8_t>(out, static_cast<uint8_t>(type_));
  AppendValue<uint64_t>(out, sequence_tokens_.size());
  AppendValue<uint64_t>(out, document_indices_.size());
  for (const int32_t tokens : sequence_tokens_) {
    AppendValue<int32_t>(out, tokens);
    flush_if(out.size() >= kBufferBytes);
  }
  int64_t offset = 0;
  for (const int32_t tokens : sequence_tokens_) {
    AppendValue<int64_t>(out, offset);
    offset += tokens * TokenBytes(type_);
    flush_if(out.size() >= kBufferBytes);
  }
  for (const int64_t index : document_indices_) {
    AppendValue<int64_t>(out, index);
    flush_if(out.size() >= kBufferBytes);
  }
  flush_if(true);
  if (status.ok() && ::fsync(fd) != 0) status = ErrnoError("sync", index_temporary_, errno);
  if (::close(fd) != 0 && status.ok()) status = ErrnoError("close", index_temporary_, errno);
  return status;
}

absl::Status IndexedWriter::Finish() {
  TRAINCTL_CHECK(data_fd_ >= 0 && tokens_in_sequence_ == 0);
  TRAINCTL_RETURN_IF_ERROR(Flush());
  if (::fsync(data_fd_) != 0) return ErrnoError("sync", data_temporary_, errno);
  TRAINCTL_RETURN_IF_ERROR(WriteIndex());
  // Without its index a data file is not a dataset: take away the old index first, add the new one last.
  const std::string index_path = prefix_ + ".idx";
  if (::unlink(index_path.c_str()) != 0 && errno != ENOENT) return ErrnoError("replace", index_path, errno);
  TRAINCTL_RETURN_IF_ERROR(Rename(data_temporary_, prefix_ + ".bin"));
  TRAINCTL_RETURN_IF_ERROR(Rename(index_temporary_, index_path));
  ::close(std::exchange(data_fd_, -1));
  const std::string folder = std::filesystem::path(prefix_).parent_path().string();
  return SyncDir(folder.empty() ? "." : folder);
}

}  // namespace trainctl::data
