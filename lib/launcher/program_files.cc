#include "launcher/program_files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <memory>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/shared_libraries.h"
#include "base/status.h"
#include "launcher/worker_contract.h"

namespace trainctl::launcher {
namespace {

// Larger files are not compared, because the comparison blocks the agent.
constexpr int64_t kMostComparedBytes = int64_t{1} << 30;
constexpr int kLowPriority = 10;  // as of nice(1)

int64_t ModifiedNs(const struct stat& info) {
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

// The checksum of an open file of at most kMostComparedBytes. nullopt if it was modified after `modified_ns`.
std::optional<uint64_t> ChecksumOf(int fd, int64_t modified_ns) {
  struct stat before, after;
  if (::fstat(fd, &before) != 0 || before.st_size > kMostComparedBytes) return std::nullopt;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  if (state == nullptr) return std::nullopt;
  XXH3_64bits_reset(state.get());
  std::vector<char> bytes(1 << 20);
  for (int64_t offset = 0; offset < before.st_size;) {
    const ssize_t count = ::pread(fd, bytes.data(), bytes.size(), offset);
    if (count <= 0) return std::nullopt;
    XXH3_64bits_update(state.get(), bytes.data(), static_cast<size_t>(count));
    offset += count;
  }
  if (::fstat(fd, &after) != 0 || ModifiedNs(after) != modified_ns) return std::nullopt;
  return XXH3_64bits_digest(state.get());
}

struct OpenFile {
  int fd = -1;
  int64_t modified_ns = 0;
};

// Starts to compute the checksums of `files`, one after another, and closes them. Without a thread, there are
// none.
std::vector<std::shared_future<std::optional<uint64_t>>> StartChecksums(const std::vector<OpenFile>& files) {
  const auto promises = std::make_shared<std::vector<std::promise<std::optional<uint64_t>>>>(files.size());
  std::vector<std::shared_future<std::optional<uint64_t>>> checksums;
  for (auto& promise : *promises) checksums.push_back(promise.get_future().share());
  const auto compute = [files, promises](bool has_thread) {
    for (size_t i = 0; i < files.size(); ++i) {
      (*promises)[i].set_value(has_thread ? ChecksumOf(files[i].fd, files[i].modified_ns) : std::nullopt);
      ::close(files[i].fd);
    }
  };
  try {
    std::thread([compute] {
      (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kLowPriority);  // of this thread
      compute(true);
    }).detach();
  } catch (const std::system_error&) {
    compute(false);
  }
  return checksums;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> FindLibTorch(const std::vector<std::string>& programs,
                                                      const std::map<std::string, std::string>& variables) {
  std::set<std::string> paths;
  for (const std::string& program : programs) {
    if (!PathExists(program)) continue;
    TRAINCTL_ASSIGN_OR_RETURN(const std::vector<SharedLibrary> libraries,
                              FindSharedLibraries(program, variables));
    for (const SharedLibrary& library : libraries) {
      const bool is_of_torch =
          absl::StartsWith(library.name, "libtorch") || absl::StartsWith(library.name, "libc10");
      if (is_of_torch) paths.insert(library.path);
    }
  }
  return std::vector<std::string>(paths.begin(), paths.end());
}

ProgramFiles ProgramFiles::Open(const std::string& program,
                                const std::map<std::string, std::string>& variables) {
  std::vector<std::string> paths = {program, CudaPluginOf(program)};
  if (const auto libraries = FindLibTorch(paths, variables); libraries.ok()) {
    paths.insert(paths.end(), libraries->begin(), libraries->end());
  }
  ProgramFiles files;
  for (const std::string& path : paths) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    if (fd >= 0 && ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
      files.files_.push_back({path, fd, ModifiedNs(info), {}});
    } else if (fd >= 0) {
      ::close(fd);
    }
  }
  std::vector<OpenFile> opened;
  for (const File& file : files.files_) {
    opened.push_back({::fcntl(file.fd, F_DUPFD_CLOEXEC, 0), file.modified_ns});
  }
  const auto checksums = StartChecksums(opened);
  for (size_t i = 0; i < checksums.size(); ++i) files.files_[i].checksum = checksums[i];
  return files;
}

ProgramFiles& ProgramFiles::operator=(ProgramFiles&& other) noexcept {
  Close();
  files_ = std::exchange(other.files_, {});
  return *this;
}

ProgramFiles::~ProgramFiles() { Close(); }

void ProgramFiles::Close() {
  for (const File& file : files_) ::close(file.fd);
  files_.clear();
}

absl::Status ProgramFiles::CheckUnchanged() const {
  for (const File& file : files_) TRAINCTL_RETURN_IF_ERROR(CheckUnchanged(file));
  return absl::OkStatus();
}

absl::Status ProgramFiles::CheckUnchanged(const File& file) {
  const auto changed = [&](absl::string_view what) {
    return EnvironmentError(absl::StrCat(file.path, what,
                                         " since the launch, and the run does not switch to another program "
                                         "by itself. To use the new one, run: trainctl resume"));
  };
  const int fd = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) return changed(" was removed");
    return ErrnoError("open", file.path, error);
  }
  const absl::Cleanup close = [fd] { ::close(fd); };
  struct stat before, now;
  if (::fstat(file.fd, &before) != 0 || ::fstat(fd, &now) != 0) return ErrnoError("read", file.path, errno);
  const bool is_same_file = before.st_dev == now.st_dev && before.st_ino == now.st_ino;
  if (is_same_file && ModifiedNs(now) == file.modified_ns) return absl::OkStatus();
  const std::optional<uint64_t> checksum = file.checksum.get();
  if (checksum.has_value() && ChecksumOf(fd, ModifiedNs(now)) == checksum) return absl::OkStatus();
  return changed(is_same_file ? " was modified" : " was replaced");
}

}  // namespace trainctl::launcher
