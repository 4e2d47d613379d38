#include "checkpoint/model_weights.h"

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "checkpoint/safetensors.h"

namespace trainctl::checkpoint {
namespace {

// Of another model nearly every tensor is wrong, and the first ones say so.
constexpr size_t kMostLines = 5;

// Holds tensors against a model's parameters, one after the other.
class Comparison {
 public:
  explicit Comparison(absl::Span<const model::Parameter> parameters) : parameters_(parameters) {
    for (const model::Parameter& parameter : parameters) open_.emplace(parameter.name, &parameter);
    is_tied_ = !open_.contains("lm_head.weight");
  }

  void See(const std::string& name, DType dtype, const std::vector<int64_t>& shape, bool is_loadable) {
    const auto found = open_.find(name);
    if (found == open_.end()) {
      const bool is_harmless =
          (is_tied_ && name == "lm_head.weight") || absl::EndsWith(name, ".rotary_emb.inv_freq");
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

}  // namespace

bool IsLoadable(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16; }

absl::Status CheckWeights(const std::string& path, const ModelFolder& folder,
                          absl::Span<const model::Parameter> parameters) {
  Comparison comparison(parameters);
  for (const ModelTensor& tensor : folder.tensors()) {
    comparison.See(tensor.name, tensor.dtype, tensor.shape, IsLoadable(tensor.dtype));
  }
  return comparison.Result(path);
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
