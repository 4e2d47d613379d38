#include "data/fingerprint.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <set>

#include "base/files.h"
#include "base/status.h"
#include "data/batch_source.h"
#include "data/data_file.h"
#include "data/document_store.h"

namespace trainctl::data {

absl::StatusOr<FileFingerprint> FingerprintFile(const std::string& path) {
  TRAINCTL_RETURN_IF_ERROR(CheckDataFile(path).status());
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoError("open", path, errno);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  XXH3_state_t* const state = XXH3_createState();
  TRAINCTL_CHECK(state != nullptr);
  XXH3_64bits_reset(state);
  FileFingerprint fingerprint;
  fingerprint.path = path;
  std::string buffer(size_t{1} << 20, '\0');
  absl::Status status;
  while (true) {
    const ssize_t count = ::read(fd, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) status = ErrnoError("read", path, errno);
    if (count <= 0) break;
    XXH3_64bits_update(state, buffer.data(), static_cast<size_t>(count));
    fingerprint.size_bytes += count;
  }
  fingerprint.xxh3 = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  ::close(fd);
  if (!status.ok()) return status;
  return fingerprint;
}

absl::StatusOr<std::vector<FileFingerprint>> Fingerprint(const recipe::DataConfig& data) {
  std::vector<FileFingerprint> fingerprints;
  std::set<std::string> seen;
  for (const auto* sources : {&data.train, &data.eval}) {
    for (const recipe::DataSource& source : *sources) {
      for (const std::string& file : source.files) {
        TRAINCTL_ASSIGN_OR_RETURN(const SourceKind kind, KindOfFile(source, file));
        std::vector<std::string> paths = {file};
        if (kind == SourceKind::kIndexed) {
          const std::string prefix = IndexedPrefix(file);
          paths = {prefix + ".bin", prefix + ".idx"};
        }
        for (const std::string& path : paths) {
          if (!seen.insert(path).second) continue;
          TRAINCTL_ASSIGN_OR_RETURN(FileFingerprint fingerprint, FingerprintFile(path));
          fingerprints.push_back(std::move(fingerprint));
        }
      }
    }
  }
  return fingerprints;
}

}  // namespace trainctl::data
