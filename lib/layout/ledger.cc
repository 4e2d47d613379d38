#include "layout/ledger.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::layout {
namespace {

int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

template <typename T>
bool HasElement(const std::vector<T>& list, const T& element) {
  return std::find(list.begin(), list.end(), element) != list.end();
}

}  // namespace

Ledger::Ledger(std::vector<model::Parameter> inventory, Mesh mesh, int zero_stage,
               std::vector<std::vector<int>> owners, bool sequence_parallel)
    : inventory_(std::move(inventory)),
      mesh_(mesh),
      zero_stage_(zero_stage),
      sequence_parallel_(sequence_parallel) {
  MakeBuckets();
  PlaceOn(owners);
}

// A bucket for each block, in the order of the blocks.
void Ledger::MakeBuckets() {
  int num_blocks = 0;
  for (const model::Parameter& parameter : inventory_) {
    num_blocks = std::max(num_blocks, parameter.block + 1);
    for (int block : parameter.used_by) num_blocks = std::max(num_blocks, block + 1);
  }
  std::vector<int> own_bucket(static_cast<size_t>(num_blocks));
  for (int block = 0; block < num_blocks; ++block) {
    const int id = num_buckets();
    buckets_.push_back({.id = id, .block = block});
    buckets_of_block_.push_back({id});
    own_bucket[static_cast<size_t>(block)] = id;
  }
  for (size_t i = 0; i < inventory_.size(); ++i) {
    Bucket& bucket = buckets_[static_cast<size_t>(own_bucket[static_cast<size_t>(inventory_[i].block)])];
    bucket_of_.push_back(bucket.id);
    offsets_.push_back(bucket.numel);
    bucket.parameters.push_back(static_cast<int>(i));
    bucket.offsets.push_back(bucket.numel);
    bucket.numel += LocalBox(static_cast<int>(i), 0).Count();  // the first coordinates have the most
    for (int block : inventory_[i].used_by) {
      if (!HasElement(bucket.used_by, block)) bucket.used_by.push_back(block);
      std::vector<int>& used = buckets_of_block_[static_cast<size_t>(block)];
      if (!HasElement(used, bucket.id)) used.push_back(bucket.id);
    }
  }
  for (Bucket& bucket : buckets_) {
    bucket.shard_numel = RoundUp((bucket.numel + mesh_.dp_shard - 1) / mesh_.dp_shard, kShardAlign);
    bucket.padded_numel = bucket.shard_numel * mesh_.dp_shard;
  }
}

void Ledger::PlaceOn(const std::vector<std::vector<int>>& owners_of_block) {
  for (const Bucket& bucket : buckets_) {
    std::vector<int>& owners = owners_.emplace_back();
    if (owners_of_block.empty()) {
      owners = {0};
      continue;
    }
    for (int block : bucket.used_by) {
      const std::vector<int>& of_block = owners_of_block[static_cast<size_t>(block)];
      owners.insert(owners.end(), of_block.begin(), of_block.end());
    }
    std::sort(owners.begin(), owners.end());
    owners.erase(std::unique(owners.begin(), owners.end()), owners.end());
  }
}

std::vector<int> Ledger::BucketsOfOwner(int coordinate) const {
  std::vector<int> buckets;
  for (const Bucket& bucket : buckets_) {
    if (HasElement(owners(bucket.id), coordinate)) buckets.push_back(bucket.id);
  }
  return buckets;
}

Box Ledger::LocalBox(int parameter, int rank) const {
  const model::Parameter& whole = inventory_[static_cast<size_t>(parameter)];
  Box box = WholeBox(whole.shape);
  if (whole.tensor_dim < 0) return box;
  const model::TensorShare share = model::ShareOf(whole, mesh_.coordinate(rank, Axis::kTp), mesh_.tp);
  box.dims[static_cast<size_t>(whole.tensor_dim)] = {share.begin, share.begin + share.count};
  return box;
}

int Ledger::Copies(int parameter) const {
  const model::Parameter& whole = inventory_[static_cast<size_t>(parameter)];
  return static_cast<int>(whole.tensor_dim < 0 ? mesh_.tp : model::ShareOf(whole, 0, mesh_.tp).copies);
}

int Ledger::GradientCopies(int parameter) const {
  const model::Parameter& whole = inventory_[static_cast<size_t>(parameter)];
  const bool is_partial = whole.tensor_dim >= 0 || whole.is_read_in_parts;
  return is_partial || sequence_parallel_ ? Copies(parameter) : 1;
}

std::vector<int> Ledger::CopiesOfBucket(int bucket) const {
  std::vector<int> all;
  for (int parameter : buckets_[static_cast<size_t>(bucket)].parameters) {
    const int copies = GradientCopies(parameter);
    if (copies > 1 && !HasElement(all, copies)) all.push_back(copies);
  }
  std::sort(all.begin(), all.end(), std::greater<>());
  return all;
}

int64_t Ledger::NumelOfCopies(int bucket, int copies) const {
  int64_t numel = 0;
  for (int parameter : buckets_[static_cast<size_t>(bucket)].parameters) {
    if (GradientCopies(parameter) == copies) numel += LocalBox(parameter, 0).Count();
  }
  return std::min(numel, optimizer_numel(bucket));
}

std::vector<ParameterRange> Ledger::RangesOfCopies(int bucket, int rank, int copies) const {
  std::vector<ParameterRange> ranges = OptimizerRanges(bucket, rank);
  std::erase_if(ranges,
                [&](const ParameterRange& range) { return GradientCopies(range.parameter) != copies; });
  return ranges;
}

std::vector<ParameterRange> Ledger::OptimizerRanges(int bucket_id, int rank) const {
  const Bucket& bucket = buckets_[static_cast<size_t>(bucket_id)];
  const int64_t shard_begin = bucket.shard_numel * mesh_.coordinate(rank, Axis::kDpShard);
  const int64_t shard_end = shard_begin + bucket.shard_numel;
  std::vector<ParameterRange> ranges;
  for (size_t i = 0; i < bucket.parameters.size(); ++i) {
    const int64_t parameter_end = bucket.offsets[i] + LocalBox(bucket.parameters[i], rank).Count();
    const int64_t begin = std::max(shard_begin, bucket.offsets[i]);
    const int64_t end = std::min(shard_end, parameter_end);
    if (begin >= end) continue;
    ranges.push_back({bucket.parameters[i], begin - bucket.offsets[i], end - begin, begin - shard_begin});
  }
  return ranges;
}

int64_t Ledger::optimizer_numel(int bucket) const {
  return buckets_[static_cast<size_t>(bucket)].shard_numel;
}

bool Ledger::IsHeld(int bucket, int rank) const {
  return HasElement(owners(bucket), mesh_.coordinate(rank, Axis::kPp));
}

std::vector<HeldBox> Ledger::BoxesHeld(int rank) const {
  std::vector<HeldBox> held;
  for (const Bucket& bucket : buckets_) {
    if (!IsHeld(bucket.id, rank)) continue;
    for (const ParameterRange& range : OptimizerRanges(bucket.id, rank)) {
      const Box local = LocalBox(range.parameter, rank);
      std::vector<int64_t> local_shape;
      for (const Interval& dim : local.dims) local_shape.push_back(dim.count());
      int64_t offset = range.offset;
      for (Box& box : BoxesOfRange(local_shape, range.begin, range.count)) {
        const int64_t count = box.Count();
        for (size_t d = 0; d < box.dims.size(); ++d) {
          box.dims[d].begin += local.dims[d].begin;
          box.dims[d].end += local.dims[d].begin;
        }
        held.push_back({range.parameter, std::move(box), bucket.id, offset});
        offset += count;
      }
    }
  }
  return held;
}

std::vector<Axis> Ledger::GradientAxes(int parameter) const {
  std::vector<Axis> axes;
  if (owners(bucket_of(parameter)).size() > 1) axes.push_back(Axis::kPp);
  for (Axis axis : {Axis::kDpReplicate, Axis::kDpShard, Axis::kCp}) {
    if (mesh_.degree(axis) > 1) axes.push_back(axis);
  }
  if (GradientCopies(parameter) > 1) axes.push_back(Axis::kTp);
  return axes;
}

bool Ledger::CountsInNorm(int parameter, int rank) const {
  return mesh_.coordinate(rank, Axis::kPp) == owners(bucket_of(parameter)).front() &&
         mesh_.coordinate(rank, Axis::kTp) % Copies(parameter) == 0;
}

int Ledger::WriterIndex(int rank) const {
  if (mesh_.coordinate(rank, Axis::kDpReplicate) != 0 || mesh_.coordinate(rank, Axis::kCp) != 0) return -1;
  const int shard = mesh_.coordinate(rank, Axis::kPp) * mesh_.degree(Axis::kDpShard) +
                    mesh_.coordinate(rank, Axis::kDpShard);
  return shard * mesh_.degree(Axis::kTp) + mesh_.coordinate(rank, Axis::kTp);
}

// Of the copies of an element, the writer's is the one that counts in the norm of the first replica.
std::vector<HeldBox> Ledger::BoxesToWrite(int rank) const {
  if (WriterIndex(rank) < 0) return {};
  std::vector<HeldBox> held = BoxesHeld(rank);
  std::erase_if(held, [&](const HeldBox& box) { return !CountsInNorm(box.parameter, rank); });
  return held;
}

std::vector<Reduction> Ledger::Reductions() const {
  std::vector<Reduction> reductions;
  for (Axis axis : {Axis::kDpShard, Axis::kDpReplicate}) {
    if (mesh_.degree(axis) == 1) continue;
    for (const Bucket& bucket : buckets_) {
      reductions.push_back({GradientReduction(bucket.id, AxisName(axis)), axis});
    }
    for (absl::string_view name : {kLossTokensReduction, kLossReduction, kEvalReduction}) {
      reductions.push_back({absl::StrCat(name, "/", AxisName(axis)), axis});
    }
  }
  for (Axis axis : {Axis::kDpShard, Axis::kTp}) {
    if (mesh_.degree(axis) > 1)
      reductions.push_back({absl::StrCat(kGradNormReduction, "/", AxisName(axis)), axis});
  }
  for (const Bucket& bucket : buckets_) {
    for (const int copies : CopiesOfBucket(bucket.id))
      reductions.push_back({GradientReduction(bucket.id, NameOfCopies(mesh_, copies)), Axis::kTp});
  }
  if (mesh_.pp > 1) {
    for (const Bucket& bucket : buckets_) {
      if (owners(bucket.id).size() > 1)
        reductions.push_back({GradientReduction(bucket.id, AxisName(Axis::kPp)), Axis::kPp});
    }
    // The last stage alone knows the loss; every one has its part of the norm.
    for (absl::string_view name : {kLossReduction, kEvalReduction, kGradNormReduction}) {
      reductions.push_back({absl::StrCat(name, "/", AxisName(Axis::kPp)), Axis::kPp});
    }
  }
  return reductions;
}

std::string NameOfCopies(const Mesh& mesh, int copies) {
  const absl::string_view axis = AxisName(Axis::kTp);
  return copies == mesh.tp ? std::string(axis) : absl::StrCat(copies, " of ", axis);
}

std::string GradientReduction(int bucket, absl::string_view over) {
  return absl::StrCat("gradient/", bucket, "/", over);
}

}  // namespace trainctl::layout
