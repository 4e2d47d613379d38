#include "trainer/block_weights.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/json.h"
#include "checkpoint/examine.h"
#include "checkpoint/finite_values.h"
#include "checkpoint/model_weights.h"
#include "device/aten.h"
#include "layout/box.h"
#include "trainer/checkpointing.h"

namespace trainctl::trainer {

namespace {

// The name in recipes and in `checkpoint export --dtype`.
absl::string_view NameOf(DType dtype) {
  if (dtype == DType::kBF16) return "bf16";
  return dtype == DType::kF16 ? "fp16" : "fp32";
}

}  // namespace

BlockWeights::BlockWeights(const InferenceDeps& deps)
    : deps_(deps),
      spec_(deps.recipe->model.spec),
      ledger_(model::Inventory(spec_), layout::Mesh{}, 0),
      stays_(ledger_.buckets().size()),
      buckets_(ledger_.buckets().size()),
      graph_(model::BuildGraph(spec_, ledger_.inventory(), {})),
      bound_(graph_->blocks.size()) {
  int64_t total = 0, largest = 0;
  for (int block = 0; block < graph_->num_blocks(); ++block) {
    int64_t of_block = 0;
    for (const int bucket : ledger_.buckets_of_block(block))
      of_block += ledger_.buckets()[static_cast<size_t>(bucket)].numel;
    largest = std::max(largest, of_block);
  }
  for (const layout::Bucket& bucket : ledger_.buckets()) total += bucket.numel;
  constexpr int64_t kElement = sizeof(float);
  all_stay_ = deps.weight_bytes == 0 || total * kElement <= deps.weight_bytes;
  // They are asked for in a circle: a block that took the place of the one not used for longest would always
  // take that of the next.
  int64_t left = deps.weight_bytes - largest * kElement;
  for (const layout::Bucket& bucket : ledger_.buckets()) {
    left -= bucket.numel * kElement;
    stays_[static_cast<size_t>(bucket.id)] = all_stay_ || left >= 0;
  }
}

absl::StatusOr<std::unique_ptr<BlockWeights>> BlockWeights::Open(const InferenceDeps& deps) {
  std::unique_ptr<BlockWeights> weights(new BlockWeights(deps));
  if (!deps.checkpoint_path.empty()) {
    TRAINCTL_ASSIGN_OR_RETURN(weights->reader_, checkpoint::CheckpointReader::Open(deps.checkpoint_path));
    TRAINCTL_RETURN_IF_ERROR(
        checkpoint::CheckWeights(deps.checkpoint_path, *weights->reader_, weights->inventory()));
  } else if (deps.recipe->model.weights == "from") {
    const std::string& path = deps.recipe->model.from;
    TRAINCTL_ASSIGN_OR_RETURN(weights->folder_, checkpoint::ModelFolder::Open(path));
    TRAINCTL_RETURN_IF_ERROR(checkpoint::CheckWeights(path, *weights->folder_, weights->inventory()));
  }
  return weights;
}

DType BlockWeights::TypeOnDisk(const model::Parameter& parameter) const {
  if (reader_.has_value()) return reader_->Find(parameter.name)->dtype;
  return folder_.has_value() ? checkpoint::WeightsOf(*folder_, parameter).dtype : DType::kF32;
}

Json BlockWeights::Describe() const {
  std::set<absl::string_view> types;
  for (const model::Parameter& parameter : inventory()) types.insert(NameOf(TypeOnDisk(parameter)));
  const bool is_folder = deps_.checkpoint_path.empty();
  return {{is_folder ? "model" : "checkpoint", is_folder ? deps_.recipe->model.from : deps_.checkpoint_path},
          {"weights_dtype", absl::StrJoin(types, "+")},
          {"compute_dtype", std::string(NameOf(DType::kF32))}};
}

absl::Status BlockWeights::ReadCheckpoint(const model::Parameter& parameter, int64_t begin,
                                          absl::Span<float> values) const {
  const DType dtype = reader_->Find(parameter.name)->dtype;
  std::vector<checkpoint::Slice> slices;
  std::vector<float*> targets;
  float* next = values.data();
  for (const layout::Box& box :
       layout::BoxesOfRange(parameter.shape, begin, static_cast<int64_t>(values.size()))) {
    slices.push_back({parameter.name, dtype, parameter.shape, box});
    targets.push_back(next);
    next += box.Count();
  }
  bool is_finite = true;
  TRAINCTL_RETURN_IF_ERROR(
      reader_->Read(slices, [&](size_t slice, int64_t first, absl::Span<const std::byte> bytes) {
        is_finite = is_finite && checkpoint::AllFinite(dtype, bytes);
        ConvertToFloat(dtype, bytes.data(),
                       {targets[slice] + first, bytes.size() / static_cast<size_t>(DTypeBytes(dtype))});
        return absl::OkStatus();
      }));
  return is_finite ? absl::OkStatus() : checkpoint::NonFiniteError(deps_.checkpoint_path, {parameter.name});
}

absl::Status BlockWeights::Read(int parameter, int64_t begin, absl::Span<float> values) const {
  const model::Parameter& read = inventory()[static_cast<size_t>(parameter)];
  if (reader_.has_value()) return ReadCheckpoint(read, begin, values);
  if (folder_.has_value()) {
    return Annotate(ReadFloats(*folder_, read, begin, values), deps_.recipe->model.from);
  }
  parallel::DrawInitial(read, deps_.recipe->run.seed, begin, values);
  return absl::OkStatus();
}

absl::Status BlockWeights::ReadBucket(int bucket) {
  const layout::Bucket& read = ledger_.buckets()[static_cast<size_t>(bucket)];
  at::Tensor& kept = buckets_[static_cast<size_t>(bucket)];
  if (kept.defined()) return absl::OkStatus();
  at::Tensor data = at::empty({read.numel}, at::kFloat);
  for (size_t k = 0; k < read.parameters.size(); ++k) {
    const int64_t numel = inventory()[static_cast<size_t>(read.parameters[k])].numel;
    TRAINCTL_RETURN_IF_ERROR(
        Read(read.parameters[k], 0, {data.data_ptr<float>() + read.offsets[k], static_cast<size_t>(numel)}));
  }
  kept = std::move(data);  // what could not be read is not there
  return absl::OkStatus();
}

absl::StatusOr<const nn::BoundParameters*> BlockWeights::Of(int block) {
  nn::BoundParameters& bound = bound_[static_cast<size_t>(block)];
  if (all_stay_ && !bound.empty()) return &bound;
  const std::vector<int>& needed = ledger_.buckets_of_block(block);
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    const bool is_needed = std::find(needed.begin(), needed.end(), static_cast<int>(bucket)) != needed.end();
    if (!stays_[bucket] && !is_needed) buckets_[bucket].reset();
  }
  for (const int bucket : needed) TRAINCTL_RETURN_IF_ERROR(ReadBucket(bucket));
  bound.clear();
  for (const int parameter : graph_->blocks[static_cast<size_t>(block)].parameters) {
    const at::Tensor& bucket = buckets_[static_cast<size_t>(ledger_.bucket_of(parameter))];
    bound.push_back({.data = bucket.data_ptr<float>() + ledger_.offset_of(parameter)});
  }
  return &bound;
}

}  // namespace trainctl::trainer
