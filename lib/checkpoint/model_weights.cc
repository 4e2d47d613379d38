#include "checkpoint/model_weights.h"

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "checkpoint/finite_values.h"
#include "checkpoint/safetensors.h"

namespace trainctl::checkpoint {
namespace {

// Of another model nearly every tensor is wrong, and the first ones say so.
constexpr size_t kMostLines = 5;

// The two names of one matrix if embeddings are tied.
constexpr char kEmbedding[] = "model.embed_tokens.weight";
constexpr char kHead[] = "lm_head.weight";

// Holds tensors against a model's parameters, one after the other.
class Comparison {
 public:
  explicit Comparison(absl::Span<const model::Parameter> parameters) : parameters_(parameters) {
    for (const model::Parameter& parameter : parameters) open_.emplace(parameter.name, &parameter);
    is_tied_ = !open_.contains(kHead);
  }

  bool is_tied() const { return is_tied_; }

  void See(const std::string& name, DType dtype, const std::vector<int64_t>& shape, bool is_loadable) {
    const auto found = open_.find(name);
    if (found == open_.end()) {
      const bool is_harmless = (is_tied_ && name == kHead) || absl::EndsWith(name, ".rotary_emb.inv_freq");
      if (!is_harmless) problems_.push_back(absl::StrCat("the model has no place for ", name));
      return;
    }
    const model::Parameter& parameter = *found->second;
    open_.erase(found);
    if (shape != parameter.shape) {
      problems_.push_back(
          absl::StrCat(name, " is ", ShapeText(shape), "; the model's is ", ShapeText(parameter.shape)));
    } else if (!is_loadable) {
      problems_.push_back(absl::StrCat(name, " is ", DTypeName(dtype), "; F32, BF16 and F16 can be loaded"));
    }
  }

  absl::Status Result(const std::string& path) {
    for (const model::Parameter& parameter : parameters_) {
      if (open_.contains(parameter.name)) problems_.push_back(absl::StrCat(parameter.name, " is missing"));
    }
    if (problems_.empty()) return absl::OkStatus();
    const size_t count = problems_.size();
    if (count > kMostLines) {
      problems_.resize(kMostLines);
      problems_.push_back(absl::StrCat("... and ", count - kMostLines, " more"));
    }
    return BadDataError(
        absl::StrCat(path, " does not hold the weights of the recipe's [model]: ", count,
                     count == 1 ? " tensor is" : " tensors are",
                     " not as it has them. Take the folder's own config.json (model.from), or "
                     "weights of this model\n  ",
                     absl::StrJoin(problems_, "\n  ")));
  }

 private:
  const absl::Span<const model::Parameter> parameters_;
  absl::flat_hash_map<std::string, const model::Parameter*> open_;  // not seen yet
  bool is_tied_ = false;
  std::vector<std::string> problems_;
};

absl::StatusOr<bool> HaveSameBytes(const ModelFolder& folder, const std::string& a, const std::string& b) {
  constexpr int64_t kAtOnce = int64_t{4} << 20;
  const ModelTensor& first = *folder.Find(a);
  const ModelTensor& second = *folder.Find(b);
  if (first.dtype != second.dtype || first.shape != second.shape) return false;
  std::vector<std::byte> of_first, of_second;
  for (int64_t done = 0; done < first.num_bytes; done += kAtOnce) {
    of_first.resize(static_cast<size_t>(std::min(kAtOnce, first.num_bytes - done)));
    of_second.resize(of_first.size());
    TRAINCTL_RETURN_IF_ERROR(folder.Read(first, done, absl::MakeSpan(of_first)));
    TRAINCTL_RETURN_IF_ERROR(folder.Read(second, done, absl::MakeSpan(of_second)));
    if (of_first != of_second) return false;
  }
  return true;
}

}  // namespace

bool IsLoadable(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16; }

absl::Status CheckWeights(const std::string& path, const ModelFolder& folder,
                          absl::Span<const model::Parameter> parameters) {
  Comparison comparison(parameters);
  const bool has_head_alone = comparison.is_tied() && folder.Find(kEmbedding) == nullptr;
  for (const ModelTensor& tensor : folder.tensors()) {
    const bool is_embedding = has_head_alone && tensor.name == kHead;
    comparison.See(is_embedding ? kEmbedding : tensor.name, tensor.dtype, tensor.shape,
                   IsLoadable(tensor.dtype));
  }
  TRAINCTL_RETURN_IF_ERROR(comparison.Result(path));
  if (!comparison.is_tied() || has_head_alone || folder.Find(kHead) == nullptr) return absl::OkStatus();
  TRAINCTL_ASSIGN_OR_RETURN(const bool same, HaveSameBytes(folder, kEmbedding, kHead));
  if (same) return absl::OkStatus();
  return BadDataError(absl::StrCat(path, ": config.json says that the embeddings are tied, but ", kHead,
                                   " is another matrix than ", kEmbedding,
                                   ". Set model.tie_embeddings = false to train both, or remove ", kHead,
                                   " if it is not used"));
}

const ModelTensor& WeightsOf(const ModelFolder& folder, const std::string& parameter) {
  const ModelTensor* tensor = folder.Find(parameter);
  if (tensor == nullptr && parameter == kEmbedding) tensor = folder.Find(kHead);
  TRAINCTL_CHECK(tensor != nullptr);
  return *tensor;
}

absl::Status CheckFinite(const ModelTensor& tensor, int64_t begin, absl::Span<const std::byte> bytes) {
  const int64_t first = FirstNonFinite(tensor.dtype, bytes);
  if (first < 0) return absl::OkStatus();
  int64_t row_size = 1;
  for (size_t i = 1; i < tensor.shape.size(); ++i) row_size *= tensor.shape[i];
  return BadDataError(absl::StrCat(tensor.name, ": row ", (begin + first) / row_size,
                                   " has a NaN or infinite value; a model with it cannot be trained. Take "
                                   "weights without it, or remove it from these"));
}

absl::Status CheckWeights(const std::string& path, const CheckpointReader& reader,
                          absl::Span<const model::Parameter> parameters) {
  Comparison comparison(parameters);
  for (const Slice& tensor : reader.tensors()) {
    if (IsOptimizerState(tensor)) continue;
    comparison.See(tensor.name, tensor.dtype, tensor.shape, IsLoadable(tensor.dtype));
  }
  return comparison.Result(path);
}

absl::Status CheckModelFolder(const std::string& path, const model::ModelSpec& spec) {
  TRAINCTL_ASSIGN_OR_RETURN(const ModelFolder folder, ModelFolder::Open(path));
  return CheckWeights(path, folder, model::Inventory(spec));
}

absl::Status CheckCheckpointFolder(const std::string& path, const model::ModelSpec& spec) {
  TRAINCTL_ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(path));
  return CheckWeights(path, reader, model::Inventory(spec));
}

}  // namespace trainctl::checkpoint
