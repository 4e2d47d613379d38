// Tracks the program files of a node's workers as they were at launch, because a restart must not use a
// different build. Not thread-safe.
//
//   const ProgramFiles files = ProgramFiles::Open(program, {});
//   ...
//   TRAINCTL_RETURN_IF_ERROR(files.CheckUnchanged());  // before a restart
#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trainctl::launcher {

// Returns the sorted paths of the LibTorch libraries that `programs` would load. Skips programs that do not
// exist. `variables` are added to this process's environment.
absl::StatusOr<std::vector<std::string>> FindLibTorch(const std::vector<std::string>& programs,
                                                      const std::map<std::string, std::string>& variables);

class ProgramFiles {
 public:
  ProgramFiles() = default;  // no files
  // Opens `program`, the CUDA plugin next to it, and the LibTorch libraries that they load. Skips files that
  // cannot be opened. The files remain open even if they are replaced on disk.
  static ProgramFiles Open(const std::string& program, const std::map<std::string, std::string>& variables);
  ProgramFiles(ProgramFiles&&) = default;
  ProgramFiles& operator=(ProgramFiles&& other) noexcept;
  ~ProgramFiles();

  // Returns EnvironmentError if a file was replaced, written to, or removed. A file with the same contents
  // does not count as changed, whether it was replaced by a copy, touched, or written again.
  absl::Status CheckUnchanged() const;

 private:
  struct File {
    std::string path;
    int fd = -1;
    int64_t modified_ns = 0;  // modification time in nanoseconds since 1970
    // Checksum of the contents at that time. nullopt if they changed meanwhile or cannot be read. Computed in
    // the background, because workers are starting.
    std::shared_future<std::optional<uint64_t>> checksum;
  };
  void Close();
  static absl::Status CheckUnchanged(const File& file);

  std::vector<File> files_;
};

}  // namespace trainctl::launcher
