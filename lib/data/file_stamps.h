// Whether the files of a run are still the ones that were opened: by inode, size and time of last change, one
// stat a file. Not by their bytes, as resume does (Fingerprint): that is too slow to be done while training.
// Thread safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(const FileStamps stamps, FileStamps::Take(recipe.data));  // then open them
//   ...
//   TRAINCTL_RETURN_IF_ERROR(stamps.CheckUnchanged());
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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
  // Before the files are opened, so that no change after that goes unseen.
  static absl::StatusOr<FileStamps> Take(const recipe::DataConfig& data);

  // BadDataError names a file that was written, replaced or removed since.
  absl::Status CheckUnchanged() const;

 private:
  std::vector<FileStamp> stamps_;
};

}  // namespace trainctl::data
