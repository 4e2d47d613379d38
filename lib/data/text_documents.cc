#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/files.h"
#include "base/status.h"
#include "data/data_file.h"
#include "data/document_store.h"
#include "data/text_encoding.h"
#include "data/unpacked_file.h"

namespace trainctl::data {
namespace {

class File {
 public:
  explicit File(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Files are opened for each read instead of mapped: a source may have more of them than a process may hold
// open, and pread reports a file that shrank where a map would end the process.
class TextDocuments : public DocumentStore {
 public:
  TextDocuments(std::vector<std::string> paths, std::vector<int64_t> sizes_bytes,
                std::vector<uint8_t> marks_bytes, bool end_of_document)
      : paths_(std::move(paths)),
        sizes_bytes_(std::move(sizes_bytes)),
        marks_bytes_(std::move(marks_bytes)),
        end_of_document_(end_of_document) {}

  int64_t num_documents() const override { return static_cast<int64_t>(paths_.size()); }

  int64_t DocumentTokens(int64_t document) const override {
    const size_t index = static_cast<size_t>(document);
    const int64_t text_bytes = sizes_bytes_[index] - marks_bytes_[index];
    return text_bytes + (end_of_document_ && text_bytes > 0 ? 1 : 0);
  }

  absl::Status Read(int64_t document, int64_t first, int64_t count, int32_t* tokens,
                    uint8_t* learn) const override {
    const std::string& path = paths_[static_cast<size_t>(document)];
    const int64_t size_bytes = sizes_bytes_[static_cast<size_t>(document)];
    first += marks_bytes_[static_cast<size_t>(document)];
    std::fill_n(learn, count, uint8_t{1});
    if (first + count > size_bytes) tokens[--count] = kEndOfDocument;
    if (count <= 0) return absl::OkStatus();
    const File file(path);
    if (file.fd() < 0) return ErrnoError("open", path, errno);
    struct stat info;
    if (::fstat(file.fd(), &info) != 0) return ErrnoError("stat", path, errno);
    if (info.st_size != size_bytes) return FileChangedError(path, size_bytes, info.st_size);
    std::array<uint8_t, 16384> buffer;
    for (int64_t done = 0; done < count;) {
      const size_t wanted = static_cast<size_t>(std::min<int64_t>(count - done, buffer.size()));
      const ssize_t got = ::pread(file.fd(), buffer.data(), wanted, first + done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return ErrnoError("read", path, errno);
      if (got == 0) return FileChangedError(path, size_bytes, first + done);
      std::copy_n(buffer.begin(), got, tokens + done);
      done += got;
    }
    return absl::OkStatus();
  }

 private:
  std::vector<std::string> paths_;
  std::vector<int64_t> sizes_bytes_;
  std::vector<uint8_t> marks_bytes_;  // byte order marks
  bool end_of_document_;
};

absl::Status PackedTextError(const std::string& file, Compression compression) {
  return UsageError(absl::StrCat(
      file, " is compressed (", compression == Compression::kGzip ? "gzip" : "zstd",
      "), but training needs random access to text files. Prepare it once with: trainctl data prepare ", file,
      " --out PREFIX, and use PREFIX.bin in the recipe; or decompress it (",
      compression == Compression::kGzip ? "gzip" : "zstd", " -d)"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DocumentStore>> OpenTextDocuments(std::vector<std::string> files,
                                                                 bool end_of_document) {
  std::vector<int64_t> sizes_bytes;
  std::vector<uint8_t> marks_bytes;
  sizes_bytes.reserve(files.size());
  marks_bytes.reserve(files.size());
  for (const std::string& file : files) {
    TRAINCTL_ASSIGN_OR_RETURN(const int64_t size_bytes, CheckDataFile(file));
    TRAINCTL_ASSIGN_OR_RETURN(const std::string first_bytes, FirstBytesOfFile(file));
    TRAINCTL_ASSIGN_OR_RETURN(
        const Compression compression,
        RecognizeCompression(
            absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(first_bytes.data()), first_bytes.size()),
            file));
    if (compression != Compression::kNone) return PackedTextError(file, compression);
    TRAINCTL_ASSIGN_OR_RETURN(const size_t mark_bytes, ByteOrderMarkBytes(first_bytes, file));
    sizes_bytes.push_back(size_bytes);
    marks_bytes.push_back(static_cast<uint8_t>(mark_bytes));
  }
  return std::make_unique<TextDocuments>(std::move(files), std::move(sizes_bytes), std::move(marks_bytes),
                                         end_of_document);
}

}  // namespace trainctl::data
