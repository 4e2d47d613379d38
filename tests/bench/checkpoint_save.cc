// How fast a checkpoint is saved, against plain sequential writing of the same bytes with the same
// syncs: one data file, two small ones, their folder, a rename, the folder above.
//
//   checkpoint_save ours|plain FOLDER BYTES
//
// Prints the seconds. FOLDER must be new or empty; what is written stays there.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "checkpoint/checkpoint_io.h"

namespace trainctl {
namespace {

constexpr int64_t kTensorBytes = int64_t{32} << 20;
constexpr size_t kWriteBytes = size_t{1} << 20;  // as `dd bs=1M`
constexpr char kSmallFile[] = "{}\n";

// What a state holds: values that no file system can compress away.
std::vector<float> MakeState(int64_t num_bytes) {
  std::vector<float> values(static_cast<size_t>(num_bytes) / sizeof(float));
  uint64_t bits = 1;
  for (float& value : values) {
    bits = bits * 6364136223846793005u + 1442695040888963407u;
    const auto word = static_cast<uint32_t>(bits >> 32);
    std::memcpy(&value, &word, sizeof(word));
  }
  return values;
}

absl::Status SaveOurs(const std::string& folder, const std::vector<float>& state) {
  std::vector<checkpoint::Slice> slices;
  const auto total = static_cast<int64_t>(state.size());
  for (int64_t begin = 0; begin < total; begin += kTensorBytes / 4) {
    const int64_t count = std::min<int64_t>(total - begin, kTensorBytes / 4);
    slices.push_back({absl::StrCat("tensor.", slices.size()), DType::kF32, {count}, {{{0, count}}}});
  }
  checkpoint::CheckpointWriter writer(folder, 1, 0, 1);
  TRAINCTL_RETURN_IF_ERROR(writer.Begin());
  TRAINCTL_RETURN_IF_ERROR(
      writer.Write(slices, [&](size_t slice, int64_t begin, absl::Span<std::byte> bytes) {
        const int64_t tensor = static_cast<int64_t>(slice);
        std::memcpy(bytes.data(), state.data() + tensor * (kTensorBytes / 4) + begin, bytes.size());
        return absl::OkStatus();
      }));
  return writer.Commit({.step = 1});
}

absl::Status WriteAndSync(const std::string& path, const char* data, size_t num_bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoError("create", path, errno);
  for (size_t done = 0; done < num_bytes;) {
    const ssize_t written = write(fd, data + done, std::min(kWriteBytes, num_bytes - done));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoError("write", path, errno);
    done += static_cast<size_t>(written);
  }
  if (fsync(fd) != 0) return ErrnoError("sync", path, errno);
  if (close(fd) != 0) return ErrnoError("close", path, errno);
  return absl::OkStatus();
}

absl::Status SavePlain(const std::string& folder, const std::vector<float>& state) {
  const std::string temporary = folder + "/temporary";
  if (mkdir(temporary.c_str(), 0755) != 0) return ErrnoError("create folder", temporary, errno);
  TRAINCTL_RETURN_IF_ERROR(WriteAndSync(temporary + "/data", reinterpret_cast<const char*>(state.data()),
                                        state.size() * sizeof(float)));
  for (const char* name : {"/index", "/manifest"}) {
    TRAINCTL_RETURN_IF_ERROR(WriteAndSync(temporary + name, kSmallFile, sizeof(kSmallFile) - 1));
  }
  TRAINCTL_RETURN_IF_ERROR(SyncDir(temporary));
  const std::string committed = folder + "/committed";
  if (rename(temporary.c_str(), committed.c_str()) != 0) return ErrnoError("rename to", committed, errno);
  return SyncDir(folder);
}

int Main(int argc, char** argv) {
  int64_t num_bytes = 0;
  const std::string what = argc == 4 ? argv[1] : "";
  if ((what != "ours" && what != "plain") || !absl::SimpleAtoi(argv[3], &num_bytes) || num_bytes < 4) {
    std::fprintf(stderr, "usage: checkpoint_save ours|plain FOLDER BYTES\n");
    return 2;
  }
  const std::string folder = argv[2];
  absl::Status status = MakeDirs(folder);
  const std::vector<float> state = MakeState(num_bytes);
  const auto begin = std::chrono::steady_clock::now();
  if (status.ok()) status = what == "ours" ? SaveOurs(folder, state) : SavePlain(folder, state);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (!status.ok()) {
    std::fprintf(stderr, "checkpoint_save: %s\n", std::string(status.message()).c_str());
    return static_cast<int>(ExitCodeFor(status));
  }
  std::printf("%.6f\n", seconds.count());
  return 0;
}

}  // namespace
}  // namespace trainctl

int main(int argc, char** argv) { return trainctl::Main(argc, argv); }
