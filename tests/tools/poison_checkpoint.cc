// Writes a checkpoint anew with a NaN as the first element of one tensor, as a build would have that saved
// whatever the weights were:  poison_checkpoint RUN/checkpoints/step-00000004 TENSOR

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint_io.h"

namespace trainctl::checkpoint {
namespace {

absl::Status Poison(const std::string& path, const std::string& tensor) {
  TRAINCTL_ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(path));
  const std::vector<Slice>& slices = reader.tensors();
  std::vector<std::vector<std::byte>> contents;
  for (const Slice& slice : slices) {
    contents.emplace_back(static_cast<size_t>(slice.count() * DTypeBytes(slice.dtype)));
  }
  const auto at = [&](size_t slice, int64_t begin) {
    return contents[slice].data() + begin * DTypeBytes(slices[slice].dtype);
  };
  TRAINCTL_RETURN_IF_ERROR(
      reader.Read(slices, [&](size_t slice, int64_t begin, absl::Span<const std::byte> bytes) {
        std::memcpy(at(slice, begin), bytes.data(), bytes.size());
        return absl::OkStatus();
      }));
  bool found = false;
  for (size_t i = 0; i < slices.size(); ++i) {
    if (slices[i].name != tensor || slices[i].dtype != DType::kF32) continue;
    const float nan = std::nanf("");
    std::memcpy(contents[i].data(), &nan, sizeof(nan));
    found = true;
  }
  if (!found) return UsageError(absl::StrCat(path, " has no F32 tensor ", tensor));
  const CheckpointMeta meta = reader.meta();
  CheckpointWriter writer(std::filesystem::path(path).parent_path().string(), meta.step, 0, 1);
  TRAINCTL_RETURN_IF_ERROR(writer.Begin());
  TRAINCTL_RETURN_IF_ERROR(
      writer.Write(slices, [&](size_t slice, int64_t begin, absl::Span<std::byte> bytes) {
        std::memcpy(bytes.data(), at(slice, begin), bytes.size());
        return absl::OkStatus();
      }));
  return writer.Commit(meta);
}

}  // namespace
}  // namespace trainctl::checkpoint

int main(int argc, char** argv) {
  const absl::Status status = argc == 3 ? trainctl::checkpoint::Poison(argv[1], argv[2])
                                        : trainctl::UsageError("poison_checkpoint FOLDER TENSOR");
  if (!status.ok()) std::fprintf(stderr, "poison_checkpoint: %s\n", std::string(status.message()).c_str());
  return static_cast<int>(trainctl::ExitCodeFor(status));
}
