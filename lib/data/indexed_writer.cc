#include "data/indexed_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/files.h"
#include "base/folder_sync.h"
#include "base/lock_open_file.h"
#include "base/status.h"

namespace trainctl::data {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
// A longer document becomes several sequences of one document: a length in the index is an int32.
constexpr int64_t kMaxSequenceTokens = int64_t{1} << 30;

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
void AppendBytesOf(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

}  // namespace

IndexedWriter::IndexedWriter(std::string prefix, TokenType type) : prefix_(std::move(prefix)), type_(type) {}

absl::StatusOr<std::unique_ptr<IndexedWriter>> IndexedWriter::Open(const std::string& prefix,
                                                                   TokenType type) {
  if (type != TokenType::kU8 && type != TokenType::kU16 && type != TokenType::kI32) {
    return UsageError(
        absl::StrCat("token datasets are written as uint8, uint16 or int32, not ", TokenTypeName(type)));
  }
  std::unique_ptr<IndexedWriter> writer(new IndexedWriter(prefix, type));
  const std::string path = writer->documents_part();
  writer->is_kept_ = PathExists(path);
  while (true) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
      writer->is_kept_ = true;
      return ErrnoError("create", path, errno);
    }
    const absl::StatusOr<bool> is_locked = TryLockOpenFile(fd, LockKind::kExclusive, path);
    if (!is_locked.ok() || !*is_locked) {
      ::close(fd);
      writer->is_kept_ = true;  // it is another's
      TRAINCTL_RETURN_IF_ERROR(is_locked.status());
      return EnvironmentError(absl::StrCat(prefix,
                                           ".bin is being written by another process, which has locked ",
                                           path, "; wait for it, or choose another output"));
    }
    // The writer before may have removed the file between our opening and our lock.
    struct stat opened, named;
    if (::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
        opened.st_dev == named.st_dev) {
      writer->documents_fd_ = fd;
      return writer;
    }
    ::close(fd);
  }
}

absl::StatusOr<std::unique_ptr<IndexedWriter>> IndexedWriter::Create(const std::string& prefix,
                                                                     TokenType type) {
  TRAINCTL_ASSIGN_OR_RETURN(std::unique_ptr<IndexedWriter> writer, Open(prefix, type));
  writer->is_kept_ = false;
  TRAINCTL_RETURN_IF_ERROR(writer->CutBack(0, 0));
  return writer;
}

IndexedWriter::~IndexedWriter() {
  if (!is_kept_) {
    for (const std::string& path : {data_part(), index_part(), documents_part()}) ::unlink(path.c_str());
  }
  if (data_fd_ >= 0) ::close(data_fd_);
  if (documents_fd_ >= 0) ::close(documents_fd_);  // with its lock
}

absl::Status IndexedWriter::ReadDocuments(int64_t documents, int64_t tokens) {
  const std::string path = documents_part();
  TRAINCTL_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  if (documents < 0 || documents > static_cast<int64_t>(file.bytes().size() / sizeof(int64_t))) {
    return BadDataError(
        absl::StrCat(path, " has ", file.bytes().size(), " bytes, too few for ", documents, " documents"));
  }
  for (int64_t i = 0; i < documents; ++i) {
    int64_t count = 0;
    std::memcpy(&count, file.bytes().data() + i * static_cast<int64_t>(sizeof(count)), sizeof(count));
    if (count < 0 || count > tokens - num_tokens_) {
      return BadDataError(absl::StrCat(path, ": document ", i, " cannot have ", count, " tokens"));
    }
    CountTokens(count);
    EndDocument();
  }
  ended_.clear();
  if (num_tokens_ == tokens) return absl::OkStatus();
  return BadDataError(
      absl::StrCat(path, ": ", documents, " documents have ", num_tokens_, " tokens, not ", tokens));
}

absl::Status IndexedWriter::CutBack(int64_t documents, int64_t tokens) {
  buffer_.clear();
  ended_.clear();
  sequence_tokens_.clear();
  document_indices_ = {0};
  tokens_in_sequence_ = num_tokens_ = ended_tokens_ = 0;
  if (documents != 0 || tokens != 0) TRAINCTL_RETURN_IF_ERROR(ReadDocuments(documents, tokens));
  const std::string path = data_part();
  if (data_fd_ < 0) data_fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (data_fd_ < 0) return ErrnoError("create", path, errno);
  struct stat info;
  if (::fstat(data_fd_, &info) != 0) return ErrnoError("read", path, errno);
  const int64_t data_bytes = tokens * TokenBytes(type_);
  if (info.st_size < data_bytes) {
    return BadDataError(absl::StrCat(path, " has ", info.st_size, " bytes, too few for ", tokens, " tokens"));
  }
  const auto cut = [](int fd, const std::string& name, int64_t bytes) {
    if (::ftruncate(fd, bytes) != 0 || ::lseek(fd, bytes, SEEK_SET) < 0)
      return ErrnoError("cut", name, errno);
    return absl::OkStatus();
  };
  TRAINCTL_RETURN_IF_ERROR(cut(data_fd_, path, data_bytes));
  TRAINCTL_RETURN_IF_ERROR(
      cut(documents_fd_, documents_part(), documents * static_cast<int64_t>(sizeof(int64_t))));
  if (::unlink(index_part().c_str()) != 0 && errno != ENOENT)
    return ErrnoError("remove", index_part(), errno);
  buffer_.reserve(kBufferBytes);
  if (documents == 0) is_kept_ = false;
  return absl::OkStatus();
}

absl::Status IndexedWriter::Flush() {
  TRAINCTL_RETURN_IF_ERROR(WriteAll(data_fd_, buffer_, data_part()));
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status IndexedWriter::Commit() {
  TRAINCTL_RETURN_IF_ERROR(Flush());
  TRAINCTL_RETURN_IF_ERROR(WriteAll(documents_fd_, ended_, documents_part()));
  ended_.clear();
  if (SyncOpenFile(data_fd_) != 0) return ErrnoError("sync", data_part(), errno);
  if (SyncOpenFile(documents_fd_) != 0) return ErrnoError("sync", documents_part(), errno);
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
  AppendBytesOf<int64_t>(ended_, num_tokens_ - ended_tokens_);
  ended_tokens_ = num_tokens_;
}

absl::Status IndexedWriter::WriteIndex() {
  const std::string path = index_part();
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoError("create", path, errno);
  absl::Status status;
  std::string out(kIndexMagic, sizeof(kIndexMagic));
  const auto flush_if = [&](bool now) {
    if (!now || !status.ok()) return;
    status = WriteAll(fd, out, path);
    out.clear();
  };
  AppendBytesOf<uint64_t>(out, kIndexVersion);
  AppendBytesOf<uint8_t>(out, static_cast<uint8_t>(type_));
  AppendBytesOf<uint64_t>(out, sequence_tokens_.size());
  AppendBytesOf<uint64_t>(out, document_indices_.size());
  for (const int32_t tokens : sequence_tokens_) {
    AppendBytesOf<int32_t>(out, tokens);
    flush_if(out.size() >= kBufferBytes);
  }
  int64_t offset = 0;
  for (const int32_t tokens : sequence_tokens_) {
    AppendBytesOf<int64_t>(out, offset);
    offset += tokens * TokenBytes(type_);
    flush_if(out.size() >= kBufferBytes);
  }
  for (const int64_t index : document_indices_) {
    AppendBytesOf<int64_t>(out, index);
    flush_if(out.size() >= kBufferBytes);
  }
  flush_if(true);
  if (status.ok() && SyncOpenFile(fd) != 0) status = ErrnoError("sync", path, errno);
  if (::close(fd) != 0 && status.ok()) status = ErrnoError("close", path, errno);
  return status;
}

absl::Status IndexedWriter::Seal() {
  TRAINCTL_CHECK(data_fd_ >= 0 && tokens_in_sequence_ == 0);
  TRAINCTL_RETURN_IF_ERROR(Commit());
  return WriteIndex();
}

absl::Status IndexedWriter::Publish(const std::function<void(const char*)>& reached) {
  const std::string index_path = prefix_ + ".idx";
  const std::string folder = std::filesystem::path(prefix_).parent_path().string();
  // Without its index a data file is not a dataset: take away the old index first, add the new one last.
  if (PathExists(index_part()) && ::unlink(index_path.c_str()) != 0 && errno != ENOENT) {
    return ErrnoError("replace", index_path, errno);
  }
  if (PathExists(data_part())) TRAINCTL_RETURN_IF_ERROR(Rename(data_part(), prefix_ + ".bin"));
  TRAINCTL_RETURN_IF_ERROR(SyncDir(folder.empty() ? "." : folder));
  if (reached) reached("renamed_data");
  if (PathExists(index_part())) TRAINCTL_RETURN_IF_ERROR(Rename(index_part(), index_path));
  TRAINCTL_RETURN_IF_ERROR(SyncDir(folder.empty() ? "." : folder));
  if (reached) reached("renamed_index");
  return absl::OkStatus();
}

absl::Status IndexedWriter::Finish() {
  TRAINCTL_RETURN_IF_ERROR(Seal());
  TRAINCTL_RETURN_IF_ERROR(Publish());
  is_kept_ = false;  // PREFIX.documents.part alone is left
  return absl::OkStatus();
}

}  // namespace trainctl::data
