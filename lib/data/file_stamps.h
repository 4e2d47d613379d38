// Whether the files of a run are still the ones that were opened: by inode, size and time of last change, one
// stat per file. If these differ, the bytes are compared, as on resume (Fingerprint). Not thread safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(FileStamps stamps, FileStamps::Take(recipe.data, data_record_path));  // then
//   open
//   ...
//   TRAINCTL_ASSIGN_OR_RETURN(const std::vector<std::string> touched, stamps.CheckUnchanged());
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

// Every file that the data section names, in a fixed order and once each: the tokenizer's, then those of the
// sources, of an indexed dataset both.
absl::StatusOr<std::vector<std::string>> DataFiles(const recipe::DataConfig& data);

struct FileStamp {
  std::string path;
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t size_bytes = 0;
  int64_t modified_ns = 0;  // since 1970
};

// BadDataError: no such file.
absl::StatusOr<FileStamp> StampFile(const std::string& path);

class FileStamps {
 public:
  // Before the files are opened, so that no change after that goes unseen. `record_path`: the file with their
  // fingerprints (data_record.h), which is read when a stamp differs. A file without a
  // fingerprint of all its bytes is taken as changed whenever its stamp differs.
  static absl::StatusOr<FileStamps> Take(const recipe::DataConfig& data, std::string record_path);

  // BadDataError names a file whose bytes were changed since, or which was removed. Returns the files that
  // have another stamp and the same bytes, each once: a copy put in their place, or `touch`.
  absl::StatusOr<std::vector<std::string>> CheckUnchanged();

 private:
  absl::StatusOr<bool> HasRecordedBytes(const std::string& path);

  std::string record_path_;
  std::optional<std::map<std::string, FileFingerprint>> recorded_;  // by path, once read
  std::vector<FileStamp> stamps_;
};

}  // namespace trainctl::data
