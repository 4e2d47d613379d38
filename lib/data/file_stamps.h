// Checks, by inode, size, and modification time, that a run's files are still the ones that were opened.
// Costs one stat per file. If a stamp differs, compares the contents as far as they are known. Not
// thread-safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(FileStamps stamps, FileStamps::Take(recipe.data, data_record_path));
//   ...  // open and use the files
//   TRAINCTL_ASSIGN_OR_RETURN(const std::vector<TouchedFile> touched, stamps.CheckUnchanged());
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/batch_source.h"
#include "recipe/recipe.h"

namespace trainctl::data {

// Returns every file that the data section refers to, once each and in a fixed order: the tokenizer file,
// then the sources' files, including both files of an indexed dataset.
absl::StatusOr<std::vector<std::string>> DataFiles(const recipe::DataConfig& data);

struct FileStamp {
  std::string path;
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t size_bytes = 0;
  int64_t modified_ns = 0;  // in nanoseconds since 1970
};

// Returns BadDataError if the file does not exist.
absl::StatusOr<FileStamp> StampFile(const std::string& path);

// A file that has a new stamp and, as far as is known, the same contents.
struct TouchedFile {
  std::string path;
  bool sampled = false;  // whether only its size and kFingerprintPieces pieces were compared
  bool operator==(const TouchedFile&) const = default;
};

class FileStamps {
 public:
  // Takes the stamps. Call this before the files are opened, so that no later change goes unnoticed.
  // `record_path` is the file that contains their fingerprints (data_record.h); it is read only if a stamp
  // differs. If the fingerprint of a file covers only samples of it, so does the comparison, except that all
  // bytes of a dataset of up to 4 GiB are compared with the checksum that `data prepare` stored.
  static absl::StatusOr<FileStamps> Take(const recipe::DataConfig& data, std::string record_path);

  // Returns BadDataError, naming the file, if a file's contents have changed or the file was removed.
  // Otherwise returns the files that have a new stamp but the same contents, because they were touched or
  // replaced by a copy. Later calls do not return a file again unless its stamp changes again.
  absl::StatusOr<std::vector<TouchedFile>> CheckUnchanged();

 private:
  enum class Compared : uint8_t { kSame, kSameSamples, kDifferent };
  absl::StatusOr<Compared> CompareBytes(const std::string& path);

  std::string record_path_;
  std::optional<std::map<std::string, FileFingerprint>> recorded_;  // keyed by path; set once read
  std::vector<FileStamp> stamps_;
};

}  // namespace trainctl::data
