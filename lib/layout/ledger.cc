#include "layout/ledger.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::layout {
namespace {

int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

Ledger::Ledger(std::vector<model::Parameter> inventory, Mesh mesh, int zero_stage,
               std::vector<std::vector<int>> owners)
    : inventory_(std::move(inventory)), mesh_(mesh), zero_stage_(zero_stage), offsets_(inventory_.size()) {
  int num_blocks = 0;
  for (const model::Parameter& parameter : inventory_) {
    num_blocks = std::max(num_blocks, parameter.block + 1);
    for (int block : parameter.used_by) num_blocks = std::max(num_blocks, block + 1);
  }
  buckets_.resize(static_cast<size_t>(num_blocks));
  buckets_of_block_.resize(static_cast<size_t>(num_blocks));
  for (int block = 0; block < num_blocks; ++block) {
    buckets_[static_cast<size_t>(block)].block = block;
    buckets_of_block_[static_cast<size_t>(block)].push_back(block);
  }
  for (size_t i = 0; i < inventory_.size(); ++i) {
    Bucket& bucket = buckets_[static_cast<size_t>(inventory_[i].block)];
    offsets_[i] = bucket.numel;
    bucket.parameters.push_back(static_cast<int>(i));
    bucket.offsets.push_back(bucket.numel);
    bucket.numel += inventory_[i].numel;
    for (int block : inventory_[i].used_by) {
      if (std::find(bucket.used_by.begin(), bucket.used_by.end(), block) == bucket.used_by.end()) {
        bucket.used_by.push_back(block);
      }
      std::vector<int>& used = buckets_of_block_[static_cast<size_t>(block)];
      if (std::find(used.begin(), used.end(), bucket.block) == used.end()) used.push_back(bucket.block);
    }
  }
  for (Bucket& bucket : buckets_) {
    bucket.shard_numel = RoundUp((bucket.numel + mesh_.dp_shard - 1) / mesh_.dp_shard, kShardAlign);
    bucket.padded_numel = bucket.shard_numel * mesh_.dp_shard;
  }
  owners_.assign(buckets_.size(), {});
  for (Bucket& bucket : buckets_) {
    std::vector<int>& of_bucket = owners_[static_cast<size_t>(bucket.block)];
    if (owners.empty()) {
      of_bucket = {0};
      continue;
    }
    for (int block : bucket.used_by) {
      const std::vector<int>& of_block = owners[static_cast<size_t>(block)];
      of_bucket.insert(of_bucket.end(), of_block.begin(), of_block.end());
    }
    std::sort(of_bucket.begin(), of_bucket.end());
    of_bucket.erase(std::unique(of_bucket.begin(), of_bucket.end()), of_bucket.end());
  }
}

std::vector<int> Ledger::BucketsOfOwner(int coordinate) const {
  std::vector<int> buckets;
  for (const Bucket& bucket : buckets_) {
    const std::vector<int>& owners = owners_[static_cast<size_t>(bucket.block)];
    if (std::find(owners.begin(), owners.end(), coordinate) != owners.end()) buckets.push_back(bucket.block);
  }
  return buckets;
}

std::vector<ParameterRange> Ledger::RangesOfShard(int bucket_index, int index) const {
  const Bucket& bucket = buckets_[static_cast<size_t>(bucket_index)];
  const int64_t shard_begin = bucket.shard_numel * index;
  const int64_t shard_end = shard_begin + bucket.shard_numel;
  std::vector<ParameterRange> ranges;
  for (size_t i = 0; i < bucket.parameters.size(); ++i) {
    const int64_t parameter_end =
        bucket.offsets[i] + inventory_[static_cast<size_t>(bucket.parameters[i])].numel;
    const int64_t begin = std::max(shard_begin, bucket.offsets[i]);
    const int64_t end = std::min(shard_end, parameter_end);
    if (begin >= end) continue;
    ranges.push_back({bucket.parameters[i], begin - bucket.offsets[i], end - begin, begin - shard_begin});
  }
  return ranges;
}

std::vector<ParameterRange> Ledger::OptimizerRanges(int bucket, int rank) const {
  return RangesOfShard(bucket, mesh_.coordinate(rank, Axis::kDpShard));
}

int64_t Ledger::optimizer_numel(int bucket) const {
  return buckets_[static_cast<size_t>(bucket)].shard_numel;
}

std::vector<Reduction> Ledger::Reductions() const {
  std::vector<Reduction> reductions;
  for (Axis axis : {Axis::kDpShard, Axis::kDpReplicate}) {
    if (mesh_.degree(axis) == 1) continue;
    for (const Bucket& bucket : buckets_) {
      reductions.push_back({GradientReduction(bucket.block, axis), axis});
    }
    for (absl::string_view name : {kLossTokensReduction, kLossReduction, kEvalReduction}) {
      reductions.push_back({absl::StrCat(name, "/", AxisName(axis)), axis});
    }
  }
  if (mesh_.dp_shard > 1) {
    reductions.push_back({absl::StrCat(kGradNormReduction, "/", AxisName(Axis::kDpShard)), Axis::kDpShard});
  }
  return reductions;
}

std::string GradientReduction(int bucket, Axis axis) {
  return absl::StrCat("gradient/", bucket, "/", AxisName(axis));
}

}  // namespace trainctl::layout
