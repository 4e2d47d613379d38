// The weights of Hugging Face model folders: model.safetensors, or model.safetensors.index.json with
// its shards. config.json and tokenizer files are not read or written here. Bytes only.
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
  int file = 0;              // ModelFolder::files()[file]
  int64_t offset_bytes = 0;  // from the start of that file
  int64_t num_bytes = 0;
};

// Safe to use from several threads.
class ModelFolder {
 public:
  // Reads the headers alone. EnvironmentError where there are no weights, or not all shards; BadDataError for
  // damage of any kind, a shard name that leads out of the folder, an index that names a tensor which its
  // shard lacks. Where a tensor lies in several shards, the index decides.
  static absl::StatusOr<ModelFolder> Open(const std::string& path);

  const std::vector<ModelTensor>& tensors() const { return tensors_; }  // by name
  const std::vector<std::string>& files() const { return files_; }      // names within the folder
  const ModelTensor* Find(const std::string& name) const;               // null: there is none

  // Fills `bytes` with the tensor's bytes from `begin_bytes` on. BadDataError when the file has
  // shrunk since Open, InternalError for a range beyond the tensor.
  absl::Status Read(const ModelTensor& tensor, int64_t begin_bytes, absl::Span<std::byte> bytes) const;

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

// Fills `bytes` with the bytes of `tensor` from `begin_bytes` on (whole elements, at most 1 MiB).
using ModelTensorReader = std::function<absl::Status(const ModelTensorSpec& tensor, int64_t begin_bytes,
                                                     absl::Span<std::byte> bytes)>;

// Writes model.safetensors, or when the tensors need more than max_shard_bytes
// model-00001-of-0000N.safetensors and the index, filled in the given order (one tensor may exceed
// the limit alone). Within a file, order and header are those of the reference library. Each file is
// synced under a temporary name, and all take their names at the end, the index last. UsageError
// when the folder already holds weights: mixing two models' shards is silent damage.
absl::Status WriteModelFolder(const std::string& path, absl::Span<const ModelTensorSpec> tensors,
                              const ModelTensorReader& read, int64_t max_shard_bytes);

// The parts of Open that read untrusted text, for the fuzzer: tensor -> file.
absl::StatusOr<absl::flat_hash_map<std::string, std::string>> ParseModelIndex(absl::string_view text,
                                                                              absl::string_view what);

}  // namespace trainctl::checkpoint
