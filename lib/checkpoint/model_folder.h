// Reads and writes the weights in a Hugging Face model folder: model.safetensors, or
// model.safetensors.index.json and its shards. Other code handles config.json and the tokenizer files. This
// code handles only bytes and does not convert them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/dtype.h"

namespace trainctl::checkpoint {

struct ModelTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int file = 0;              // index into ModelFolder::files()
  int64_t offset_bytes = 0;  // offset from the start of that file
  int64_t num_bytes = 0;
};

// A folder opened for reading. Thread-safe.
class ModelFolder {
 public:
  // Opens a folder, reading only the headers. Returns EnvironmentError if there are no weights or a shard is
  // missing. Returns BadDataError for any damage, a shard name that points outside the folder, or an index
  // that lists a tensor missing from its shard. If several shards contain a tensor, the index decides which
  // one is used.
  static absl::StatusOr<ModelFolder> Open(const std::string& path);

  const std::vector<ModelTensor>& tensors() const { return tensors_; }  // sorted by name
  const std::vector<std::string>& files() const { return files_; }      // paths relative to the folder
  const ModelTensor* Find(const std::string& name) const;               // null if there is no such tensor

  // Fills `bytes` with the tensor's bytes that start at `begin_bytes`. Returns BadDataError if the file has
  // shrunk since Open, and InternalError if the range exceeds the tensor.
  absl::Status Read(const ModelTensor& tensor, int64_t begin_bytes, absl::Span<std::byte> bytes) const;
  // Like Read, but fills `bytes` with pieces of `piece_bytes` bytes. Each begins `stride_bytes` after the one
  // before.
  absl::Status ReadPieces(const ModelTensor& tensor, int64_t begin_bytes, int64_t piece_bytes,
                          int64_t stride_bytes, absl::Span<std::byte> bytes) const;

 private:
  ModelFolder() = default;
  absl::Status AddFile(const std::string& name, const absl::flat_hash_map<std::string, std::string>* file_of);
  std::string path_;
  std::vector<ModelTensor> tensors_;
  std::vector<std::string> files_;
  absl::flat_hash_map<std::string, size_t> index_of_;
};

struct ModelTensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

// Fills `bytes` with the bytes of `tensor` that start at `begin_bytes`: whole elements, at most 1 MiB.
using ModelTensorReader = std::function<absl::Status(const ModelTensorSpec& tensor, int64_t begin_bytes,
                                                     absl::Span<std::byte> bytes)>;

// Writes model.safetensors, or if the tensors exceed max_shard_bytes in total,
// model-00001-of-0000N.safetensors and the index. Fills the shards in the given order; a shard may exceed the
// limit only if it consists of a single tensor. Within a file, the tensor order and header match the
// reference library's. Each file is written and synced under a temporary name, and all are renamed at the
// end, the index last. Returns UsageError if the folder already contains weights, because a mixture of two
// models' shards would go unnoticed.
absl::Status WriteModelFolder(const std::string& path, absl::Span<const ModelTensorSpec> tensors,
                              const ModelTensorReader& read, int64_t max_shard_bytes);

// Parses the index and returns the file of each tensor. This is the part of Open that reads untrusted text,
// exposed for the fuzzer.
absl::StatusOr<absl::flat_hash_map<std::string, std::string>> ParseModelIndex(absl::string_view text,
                                                                              absl::string_view what);

}  // namespace trainctl::checkpoint
