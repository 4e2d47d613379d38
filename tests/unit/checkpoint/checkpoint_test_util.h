// Shared by the checkpoint tests: a temporary folder, tensors whose bytes follow from name and
// element, and a save of them by several writers.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/counter_rng.h"
#include "base/files.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/file_ops.h"
#include "checkpoint/safetensors.h"

namespace trainctl::checkpoint {

class TempFolder {
 public:
  explicit TempFolder(const std::string& parent = testing::TempDir()) {
    std::string pattern = parent + "/trainctl_checkpoint_XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  TempFolder(const TempFolder&) = delete;
  ~TempFolder() { (void)RemoveAll(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The byte `index` of a flattened tensor in generation `seed`; `stream` is StreamOf(its name).
inline std::byte ExpectedByte(uint64_t seed, uint64_t stream, int64_t index) {
  uint64_t x = (stream ^ seed * 0x9e3779b97f4a7c15) + static_cast<uint64_t>(index) * 0xd1342543de82ef95;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93;
  return static_cast<std::byte>(x >> 56);
}

inline SliceReader ContentsOf(uint64_t seed) {
  return [seed](const Slice& slice, absl::Span<std::byte> bytes) {
    const int64_t width = DTypeBytes(slice.dtype);
    const uint64_t stream = StreamOf(slice.name);
    EXPECT_EQ(static_cast<int64_t>(bytes.size()), slice.count * width);
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = ExpectedByte(seed, stream, slice.begin * width + static_cast<int64_t>(i));
    }
    return absl::OkStatus();
  };
}

inline Slice Whole(const std::string& name, DType dtype, std::vector<int64_t> shape) {
  const int64_t count = *NumElements(shape);
  return Slice{name, dtype, std::move(shape), 0, count};
}

// Reads `slices` and expects each byte of each exactly once, with the contents of `seed`.
inline void ExpectContents(const CheckpointReader& reader, const std::vector<Slice>& slices, uint64_t seed) {
  std::map<std::string, std::vector<int>> seen;  // times that each byte was delivered
  std::map<std::string, std::vector<int>> expected;
  for (const Slice& slice : slices) {
    const int64_t width = DTypeBytes(slice.dtype);
    const size_t total = static_cast<size_t>(*TensorBytes(slice.dtype, slice.shape));
    seen[slice.name].resize(total);
    expected[slice.name].resize(total);
    for (int64_t i = slice.begin * width; i < (slice.begin + slice.count) * width; ++i)
      ++expected[slice.name][i];
  }
  int64_t wrong = 0;
  const absl::Status status = reader.Read(slices, [&](const Slice& part, absl::Span<const std::byte> bytes) {
    const int64_t width = DTypeBytes(part.dtype);
    const uint64_t stream = StreamOf(part.name);
    std::vector<int>& times = seen[part.name];
    EXPECT_EQ(static_cast<int64_t>(bytes.size()), part.count * width);
    for (size_t i = 0; i < bytes.size(); ++i) {
      const int64_t index = part.begin * width + static_cast<int64_t>(i);
      wrong += bytes[i] != ExpectedByte(seed, stream, index);
      ++times[index];
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(seen, expected);
}

// Saves by one writer per list of slices, committed by rank 0; the first error.
inline absl::Status Save(const std::string& root, int64_t step, const std::vector<std::vector<Slice>>& slices,
                         uint64_t seed, FileOps* ops = nullptr, const std::string& state = "{}") {
  std::vector<CheckpointWriter> writers;
  for (size_t rank = 0; rank < slices.size(); ++rank) {
    writers.emplace_back(root, step, static_cast<int>(rank), static_cast<int>(slices.size()), ops);
  }
  absl::Status status = writers[0].Begin();
  for (size_t rank = 0; rank < slices.size() && status.ok(); ++rank) {
    status = writers[rank].Write(slices[rank], ContentsOf(seed));
  }
  if (!status.ok()) return status;
  CheckpointMeta meta;
  meta.step = step;
  meta.state_json = state;
  return writers[0].Commit(meta);
}

inline std::string StepPath(const std::string& root, int64_t step) {
  char name[32];
  std::snprintf(name, sizeof(name), "/step-%08lld", static_cast<long long>(step));
  return root + name;
}

inline std::string ReadOrDie(const std::string& path) {
  const auto contents = ReadFile(path);
  EXPECT_TRUE(contents.ok()) << contents.status();
  return contents.ok() ? *contents : "";
}

// Replaces the file, without a sync.
inline void WriteOrDie(const std::string& path, absl::string_view contents) {
  ::unlink(path.c_str());
  ASSERT_TRUE(AppendFile(path, contents).ok()) << path;
}

// "embed" lies in both ranks' files.
inline std::vector<std::vector<Slice>> TwoRanks() {
  Slice first = Whole("embed", DType::kF32, {30});
  Slice second = first;
  first.count = second.begin = 17;
  second.count = 13;
  return {{first, Whole("norm", DType::kBF16, {5})}, {second}};
}

inline std::vector<Slice> TwoRanksWhole() {
  return {Whole("embed", DType::kF32, {30}), Whole("norm", DType::kBF16, {5})};
}

}  // namespace trainctl::checkpoint
