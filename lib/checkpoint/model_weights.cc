#include "checkpoint/model_weights.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "checkpoint/float_values.h"
#include "checkpoint/safetensors.h"
#include "model/folder_form.h"

namespace trainctl::checkpoint {
namespace {

// If the weights belong to another model, nearly every tensor is wrong, so the first few suffice.
constexpr size_t kMostLines = 5;

// A tool that wraps a model: the prefix that its wrapper adds to every name, the tool's name, and the Python
// expression for the wrapped model.
struct Wrapper {
  const char* prefix;
  const char* tool;
  const char* inside;
};
constexpr Wrapper kWrappers[] = {
    {"_orig_mod.", "torch.compile", "model._orig_mod"},
    {"module.", "DistributedDataParallel", "model.module"},
    {"base_model.model.", "PEFT", "model.merge_and_unload()"},
};

// A tensor that the model needs.
struct NeededTensor {
  std::string name;
  std::vector<int64_t> shape;
};

// Compares tensors with those that the model needs, one after the other.
class Comparison {
 public:
  explicit Comparison(std::vector<NeededTensor> needed) : needed_(std::move(needed)) {
    for (const NeededTensor& tensor : needed_) open_.emplace(tensor.name, &tensor);
  }

  void See(const std::string& name, DType dtype, const std::vector<int64_t>& shape, bool is_loadable) {
    const auto found = open_.find(name);
    if (found == open_.end()) return Add(absl::StrCat("the model has no parameter ", name));
    const NeededTensor& needed = *found->second;
    open_.erase(found);
    if (shape != needed.shape) {
      problems_.push_back(
          absl::StrCat(name, " is ", ShapeText(shape), ", but the model's is ", ShapeText(needed.shape)));
    } else if (!is_loadable) {
      problems_.push_back(
          absl::StrCat(name, " is ", DTypeName(dtype), "; only F32, BF16 and F16 can be loaded"));
    }
  }

  void Add(std::string problem) { problems_.push_back(std::move(problem)); }

  absl::Status Result(const std::string& path) {
    for (const NeededTensor& tensor : needed_) {
      if (open_.contains(tensor.name)) problems_.push_back(absl::StrCat(tensor.name, " is missing"));
    }
    if (problems_.empty()) return absl::OkStatus();
    const size_t count = problems_.size();
    if (count > kMostLines) {
      problems_.resize(kMostLines);
      problems_.push_back(absl::StrCat("... and ", count - kMostLines, " more"));
    }
    return BadDataError(absl::StrCat(
        path, " does not contain the weights of the model described by config.json or the recipe's [model]: ",
        count, count == 1 ? " tensor does" : " tensors do",
        " not match. Use weights of this model, or, in a recipe, the folder's own config.json "
        "(model.from)\n  ",
        absl::StrJoin(problems_, "\n  ")));
  }

 private:
  const std::vector<NeededTensor> needed_;
  absl::flat_hash_map<std::string, const NeededTensor*> open_;  // not seen yet
  std::vector<std::string> problems_;
};

// Returns a tensor. Its name may lack the first part ("model.", for example) in a folder that was saved from
// the base model. Returns null if there is no such tensor.
const ModelTensor* FindTensor(const ModelFolder& folder, const std::string& name) {
  const ModelTensor* tensor = folder.Find(name);
  return tensor != nullptr ? tensor : folder.Find(name.substr(name.find('.') + 1));
}

// Returns the tensor that contains a parameter, or null if there is none.
const ModelTensor* FindWeights(const ModelFolder& folder, const model::Parameter& parameter) {
  const ModelTensor* tensor = FindTensor(folder, model::PlaceInFolder(parameter).tensor);
  return tensor == nullptr && !parameter.tied_head.empty() ? folder.Find(parameter.tied_head) : tensor;
}

// Reads a tensor in parts, and returns whether `holds` is true for all of them. Its arguments are the index
// of the part's first element and the part's bytes.
absl::StatusOr<bool> HoldsForAll(
    const ModelFolder& folder, const ModelTensor& tensor,
    absl::FunctionRef<absl::StatusOr<bool>(int64_t, absl::Span<const std::byte>)> holds) {
  constexpr int64_t kAtOnce = int64_t{1} << 20;
  const int64_t element_bytes = DTypeBytes(tensor.dtype);
  const int64_t count = tensor.num_bytes / element_bytes;
  std::vector<std::byte> bytes;
  for (int64_t done = 0; done < count; done += kAtOnce) {
    bytes.resize(static_cast<size_t>(std::min(kAtOnce, count - done) * element_bytes));
    TRAINCTL_RETURN_IF_ERROR(folder.Read(tensor, done * element_bytes, absl::MakeSpan(bytes)));
    TRAINCTL_ASSIGN_OR_RETURN(const bool ok, holds(done, bytes));
    if (!ok) return false;
  }
  return true;
}

// Returns whether two loadable tensors have the same shape and the same values. Their types may differ.
absl::StatusOr<bool> HaveSameValues(const ModelFolder& folder, const ModelTensor& a, const ModelTensor& b) {
  if (a.shape != b.shape || !IsLoadable(a.dtype) || !IsLoadable(b.dtype)) return false;
  std::vector<std::byte> bytes_of_b;
  std::vector<float> values_of_a, values_of_b;
  return HoldsForAll(
      folder, a, [&](int64_t begin, absl::Span<const std::byte> bytes) -> absl::StatusOr<bool> {
        const size_t count = bytes.size() / static_cast<size_t>(DTypeBytes(a.dtype));
        bytes_of_b.resize(count * static_cast<size_t>(DTypeBytes(b.dtype)));
        TRAINCTL_RETURN_IF_ERROR(folder.Read(b, begin * DTypeBytes(b.dtype), absl::MakeSpan(bytes_of_b)));
        if (a.dtype == b.dtype && std::equal(bytes.begin(), bytes.end(), bytes_of_b.begin())) return true;
        values_of_a.resize(count);
        values_of_b.resize(count);
        ConvertToFloat(a.dtype, bytes, absl::MakeSpan(values_of_a));
        ConvertToFloat(b.dtype, bytes_of_b, absl::MakeSpan(values_of_b));
        return values_of_a == values_of_b;
      });
}

// Returns whether all values of a tensor are 0. Its type must be loadable.
absl::StatusOr<bool> IsAllZero(const ModelFolder& folder, const ModelTensor& tensor) {
  std::vector<float> values;
  return HoldsForAll(folder, tensor, [&](int64_t, absl::Span<const std::byte> bytes) -> absl::StatusOr<bool> {
    values.resize(bytes.size() / static_cast<size_t>(DTypeBytes(tensor.dtype)));
    ConvertToFloat(tensor.dtype, bytes, absl::MakeSpan(values));
    return std::all_of(values.begin(), values.end(), [](float value) { return value == 0; });
  });
}

// Returns whether the tensor is a buffer that older folders contain, but that a model computes from its
// configuration.
bool IsBuffer(const ModelTensor& tensor) {
  const std::string name = absl::StrCat(".", tensor.name);  // so that a name may begin with "rotary_emb"
  for (const char* end : {".rotary_emb.inv_freq", ".rotary_emb.original_inv_freq", ".rotary_emb.cos_cached",
                          ".rotary_emb.sin_cached", ".masked_bias"}) {
    if (absl::EndsWith(name, end)) return true;
  }
  // A bias with four dimensions is the causal mask, as in GPT-2. The bias of a linear layer has one
  // dimension.
  return absl::EndsWith(name, ".bias") && tensor.shape.size() == 4 && tensor.shape[0] == 1 &&
         tensor.shape[1] == 1 && tensor.shape[2] == tensor.shape[3];
}

// Describes the problem with a tensor that the model does not need. Returns an empty string if the tensor has
// no effect. `embedding` may be null.
absl::StatusOr<std::string> ProblemOfExtra(const ModelFolder& folder, const ModelTensor& tensor,
                                           const ModelTensor* embedding) {
  if (IsBuffer(tensor)) return "";
  const std::string unknown = absl::StrCat("the model has no parameter ", tensor.name);
  if (absl::EndsWith(tensor.name, ".bias") && tensor.shape.size() == 1 && IsLoadable(tensor.dtype)) {
    TRAINCTL_ASSIGN_OR_RETURN(const bool is_zero, IsAllZero(folder, tensor));
    return is_zero ? "" : absl::StrCat(unknown, ", whose values are not all zero");
  }
  constexpr char kHead[] = "lm_head.weight";
  if (tensor.name != absl::StrCat("model.", kHead)) return unknown;
  const ModelTensor* head = folder.Find(kHead) != nullptr ? folder.Find(kHead) : embedding;
  if (head == nullptr) return unknown;
  TRAINCTL_ASSIGN_OR_RETURN(const bool is_copy, HaveSameValues(folder, tensor, *head));
  return is_copy ? "" : absl::StrCat(unknown, ", which differs from ", head->name);
}

absl::Status RefuseWrapped(const std::string& path, const ModelFolder& folder) {
  for (const Wrapper& wrapper : kWrappers) {
    const bool is_wrapped =
        std::all_of(folder.tensors().begin(), folder.tensors().end(),
                    [&](const auto& tensor) { return absl::StartsWith(tensor.name, wrapper.prefix); });
    if (!is_wrapped || folder.tensors().empty()) continue;
    return BadDataError(absl::StrCat(path, ": the names of all tensors begin with \"", wrapper.prefix,
                                     "\", which ", wrapper.tool, " adds. Save the model inside, ",
                                     wrapper.inside, ", instead of the wrapper"));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsLoadable(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16; }

absl::Status CheckWeights(const std::string& path, const ModelFolder& folder,
                          absl::Span<const model::Parameter> parameters, std::vector<std::string>* unused) {
  TRAINCTL_RETURN_IF_ERROR(RefuseWrapped(path, folder));
  std::vector<NeededTensor> needed;
  absl::flat_hash_map<const ModelTensor*, std::string> name_of;  // name of the tensor in transformers
  for (const model::Parameter& parameter : parameters) {
    const model::FolderPlace place = model::PlaceInFolder(parameter);
    if (place.first == 0) needed.push_back({place.tensor, place.shape});
    const ModelTensor* tensor = FindWeights(folder, parameter);
    if (tensor != nullptr) name_of.emplace(tensor, place.tensor);
  }
  Comparison comparison(std::move(needed));
  const std::string& tied_head = parameters.front().tied_head;
  const ModelTensor* embedding = FindWeights(folder, parameters.front());
  const ModelTensor* second_head = nullptr;  // stored in addition to the tied embeddings
  for (const ModelTensor& tensor : folder.tensors()) {
    if (const auto found = name_of.find(&tensor); found != name_of.end()) {
      comparison.See(found->second, tensor.dtype, tensor.shape, IsLoadable(tensor.dtype));
    } else if (!tied_head.empty() && tensor.name == tied_head) {
      second_head = &tensor;
    } else {
      TRAINCTL_ASSIGN_OR_RETURN(std::string problem, ProblemOfExtra(folder, tensor, embedding));
      if (!problem.empty()) {
        comparison.Add(std::move(problem));
      } else if (unused != nullptr) {
        unused->push_back(tensor.name);
      }
    }
  }
  TRAINCTL_RETURN_IF_ERROR(comparison.Result(path));
  if (second_head == nullptr) return absl::OkStatus();
  TRAINCTL_ASSIGN_OR_RETURN(const bool same, HaveSameValues(folder, *embedding, *second_head));
  if (same) return absl::OkStatus();
  return BadDataError(absl::StrCat(
      path, ": config.json says that the embeddings are tied, but ", tied_head, " differs from ",
      embedding->name,
      ". To use both, set \"tie_word_embeddings\": false there, or model.tie_embeddings = false in a recipe. "
      "If the former is unused, remove ",
      tied_head));
}

const ModelTensor& WeightsOf(const ModelFolder& folder, const model::Parameter& parameter) {
  const ModelTensor* tensor = FindWeights(folder, parameter);
  TRAINCTL_CHECK(tensor != nullptr);
  return *tensor;
}

absl::Status CheckWeights(const std::string& path, const CheckpointReader& reader,
                          absl::Span<const model::Parameter> parameters) {
  std::vector<NeededTensor> needed;
  for (const model::Parameter& parameter : parameters) needed.push_back({parameter.name, parameter.shape});
  Comparison comparison(std::move(needed));
  for (const Slice& tensor : reader.tensors()) {
    if (IsOptimizerState(tensor)) continue;
    comparison.See(tensor.name, tensor.dtype, tensor.shape, IsLoadable(tensor.dtype));
  }
  return comparison.Result(path);
}

absl::Status CheckModelFolder(const std::string& path, const model::Architecture& spec,
                              std::vector<std::string>* unused) {
  TRAINCTL_ASSIGN_OR_RETURN(const ModelFolder folder, ModelFolder::Open(path));
  return CheckWeights(path, folder, model::Inventory(spec), unused);
}

absl::Status CheckCheckpointFolder(const std::string& path, const model::Architecture& spec) {
  TRAINCTL_ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(path));
  return CheckWeights(path, reader, model::Inventory(spec));
}

}  // namespace trainctl::checkpoint
