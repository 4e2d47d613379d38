// Shared by the checkpoint tests: a temporary folder, tensors whose bytes follow from name and
// element, and a save of them by several writers.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/counter_rng.h"
#include "base/files.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/examine.h"
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

// The byte `index` of a flattened tensor in generation `seed`; `stream` is StreamOf(its name). Two bits are
// never set, without which no type of float is NaN or infinite.
inline std::byte ExpectedByte(uint64_t seed, uint64_t stream, int64_t index) {
  uint64_t x = (stream ^ seed * 0x9e3779b97f4a7c15) + static_cast<uint64_t>(index) * 0xd1342543de82ef95;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93;
  return static_cast<std::byte>(x >> 56 & 0xfa);
}

// For each element of a slice's box, in its row-major order, where it lies in the flattened tensor.
inline std::vector<int64_t> FlatIndices(const Slice& slice) {
  std::vector<int64_t> flat = {0};
  for (size_t d = 0; d < slice.shape.size(); ++d) {
    std::vector<int64_t> longer;
    for (const int64_t outer : flat) {
      for (int64_t i = slice.box.dims[d].begin; i < slice.box.dims[d].end; ++i)
        longer.push_back(outer * slice.shape[d] + i);
    }
    flat = std::move(longer);
  }
  return flat;
}

// f(place in the slice's bytes, index in the tensor's bytes), for `num_bytes` bytes from element `begin` on.
template <typename F>
void ForEachByte(const std::vector<int64_t>& flat, int64_t width, int64_t begin, size_t num_bytes, F f) {
  EXPECT_LE(static_cast<size_t>(begin * width) + num_bytes, flat.size() * static_cast<size_t>(width));
  for (size_t i = 0; i < num_bytes; ++i) {
    const int64_t at = static_cast<int64_t>(i);
    f(i, flat[static_cast<size_t>(begin + at / width)] * width + at % width);
  }
}

inline SliceReader ContentsOf(std::vector<Slice> slices, uint64_t seed) {
  std::vector<std::vector<int64_t>> flat;
  for (const Slice& slice : slices) flat.push_back(FlatIndices(slice));
  return [slices = std::move(slices), flat = std::move(flat), seed](size_t slice, int64_t begin,
                                                                    absl::Span<std::byte> bytes) {
    const uint64_t stream = StreamOf(slices[slice].name);
    ForEachByte(flat[slice], DTypeBytes(slices[slice].dtype), begin, bytes.size(),
                [&](size_t i, int64_t index) { bytes[i] = ExpectedByte(seed, stream, index); });
    return absl::OkStatus();
  };
}

inline Slice Whole(const std::string& name, DType dtype, std::vector<int64_t> shape) {
  layout::Box box = layout::WholeBox(shape);
  return Slice{name, dtype, std::move(shape), std::move(box)};
}

// Elements [begin, begin + count) of a tensor of one dimension.
inline Slice PartOf(Slice whole, int64_t begin, int64_t count) {
  whole.box.dims = {{begin, begin + count}};
  return whole;
}

// Reads `slices` and expects each byte of each exactly once, with the contents of `seed`.
inline void ExpectContents(const CheckpointReader& reader, const std::vector<Slice>& slices, uint64_t seed) {
  std::vector<std::vector<int64_t>> flat;
  std::vector<std::vector<int>> seen;  // times that each byte was delivered
  for (const Slice& slice : slices) {
    flat.push_back(FlatIndices(slice));
    seen.emplace_back(flat.back().size() * static_cast<size_t>(DTypeBytes(slice.dtype)), 0);
  }
  int64_t wrong = 0;
  const absl::Status status =
      reader.Read(slices, [&](size_t slice, int64_t begin, absl::Span<const std::byte> bytes) {
        const int64_t width = DTypeBytes(slices[slice].dtype);
        const uint64_t stream = StreamOf(slices[slice].name);
        ForEachByte(flat[slice], width, begin, bytes.size(), [&](size_t i, int64_t index) {
          wrong += bytes[i] != ExpectedByte(seed, stream, index);
          ++seen[slice][static_cast<size_t>(begin * width) + i];
        });
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(wrong, 0);
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(std::count(seen[i].begin(), seen[i].end(), 1), static_cast<int64_t>(seen[i].size()))
        << slices[i].name << slices[i].box.ToString();
  }
}

// Saves by one writer per list of slices, committed by rank 0; the first error.
inline absl::Status Save(const std::string& root, int64_t step, const std::vector<std::vector<Slice>>& slices,
                         uint64_t seed, FileOps* ops = nullptr, const std::string& state = "{}") {
  std::vector<CheckpointWriter> writers;
  for (size_t rank = 0; rank < slices.size(); ++rank) {
    writers.emplace_back(root, step, static_cast<int>(rank), static_cast<int>(slices.size()), "", ops);
  }
  absl::Status status = writers[0].Begin();
  for (size_t rank = 0; rank < slices.size() && status.ok(); ++rank) {
    status = writers[rank].Write(slices[rank], ContentsOf(slices[rank], seed));
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

// The columns of "embed" lie in both ranks' files.
inline std::vector<std::vector<Slice>> TwoRanks() {
  Slice first = Whole("embed", DType::kF32, {6, 5});
  Slice second = first;
  first.box.dims[1].end = second.box.dims[1].begin = 3;
  return {{first, Whole("norm", DType::kBF16, {5})}, {second}};
}

inline std::vector<Slice> TwoRanksWhole() {
  return {Whole("embed", DType::kF32, {6, 5}), Whole("norm", DType::kBF16, {5})};
}

}  // namespace trainctl::checkpoint
