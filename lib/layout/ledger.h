// The ledger: the one place where a placement is written. Each parameter lies in one bucket (its
// block's flat buffer) at one offset; buckets are cut into equal shards over dp_shard. Gradient
// sums, the norm, clipping, initialization, checkpoint slices, memory and the equivalence tests are
// derived from it. It speaks of logical, unpadded tensors. Pure; thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout/mesh.h"
#include "model/model_spec.h"

namespace trainctl::layout {

// A contiguous run of a parameter's elements, and where it lies.
struct ParameterRange {
  int parameter = 0;  // inventory index
  int64_t begin = 0;  // first element, in the row-major flattened parameter
  int64_t count = 0;
  int64_t offset = 0;  // of its first element within the shard (or bucket) asked for
};

struct Bucket {
  int block = 0;
  std::vector<int> parameters;   // inventory indices, in buffer order
  std::vector<int64_t> offsets;  // elements from the bucket's start
  int64_t numel = 0;             // without padding
  int64_t shard_numel = 0;       // per dp_shard rank, a multiple of kShardAlign
  int64_t padded_numel = 0;      // shard_numel * dp_shard
  std::vector<int> used_by;      // blocks that read it (its own, and the head for tied embeddings)
};

// Shards start on 64-byte borders in every dtype of two bytes or more.
inline constexpr int64_t kShardAlign = 32;

// A sum over ranks that training needs. The names are unique; the mutation tests leave out and
// double each of them.
struct Reduction {
  std::string name;  // "gradient/3/dp_shard", "loss/world", "grad_norm/dp_shard", ...
  Axis axis = Axis::kDpShard;
};

class Ledger {
 public:
  // zero_stage: 0 = nothing sharded, 1 = optimizer, 2 = and gradients, 3 = and parameters.
  // owners: for each block the coordinates on pp that run it, ascending; empty: all of them lie on 0.
  Ledger(std::vector<model::Parameter> inventory, Mesh mesh, int zero_stage,
         std::vector<std::vector<int>> owners = {});

  const std::vector<model::Parameter>& inventory() const { return inventory_; }
  const Mesh& mesh() const { return mesh_; }
  int zero_stage() const { return zero_stage_; }
  bool optimizer_sharded() const { return zero_stage_ >= 1; }
  bool gradients_sharded() const { return zero_stage_ >= 2; }
  bool parameters_sharded() const { return zero_stage_ >= 3; }

  const std::vector<Bucket>& buckets() const { return buckets_; }  // index = block
  int num_buckets() const { return static_cast<int>(buckets_.size()); }
  // Offset of a parameter within its bucket.
  int64_t offset_of(int parameter) const { return offsets_[static_cast<size_t>(parameter)]; }
  // Buckets whose parameters a block reads: its own first, then those it shares.
  const std::vector<int>& buckets_of_block(int block) const {
    return buckets_of_block_[static_cast<size_t>(block)];
  }

  // Coordinates on pp that hold a bucket, ascending: where the blocks run that read it. Where there are
  // several, each has a part of its gradient, and the first counts in the norm and writes the checkpoint.
  const std::vector<int>& owners(int bucket) const { return owners_[static_cast<size_t>(bucket)]; }
  // The buckets that a coordinate on pp holds, ascending.
  std::vector<int> BucketsOfOwner(int coordinate) const;

  // The parameter elements in shard `index` of a bucket (padding left out), by offset.
  std::vector<ParameterRange> RangesOfShard(int bucket, int index) const;
  // What a rank's optimizer state holds of a bucket: its shard, or all of it (index 0, dp_shard = 1).
  std::vector<ParameterRange> OptimizerRanges(int bucket, int rank) const;
  // Elements of optimizer state that one rank holds for a bucket, padding included.
  int64_t optimizer_numel(int bucket) const;

  // Which ranks write a checkpoint: the first replica, each its shard.
  bool WritesCheckpoint(int rank) const { return mesh_.coordinate(rank, Axis::kDpReplicate) == 0; }

  // Every sum of a step, for the executor and for the mutation tests.
  std::vector<Reduction> Reductions() const;

 private:
  std::vector<model::Parameter> inventory_;
  Mesh mesh_;
  int zero_stage_;
  std::vector<Bucket> buckets_;
  std::vector<int64_t> offsets_;
  std::vector<std::vector<int>> buckets_of_block_;
  std::vector<std::vector<int>> owners_;  // by bucket
};

// Names of the reductions, so that executor and ledger cannot drift apart.
std::string GradientReduction(int bucket, Axis axis);
inline constexpr char kLossTokensReduction[] = "loss_tokens";
inline constexpr char kLossReduction[] = "loss";
inline constexpr char kGradNormReduction[] = "grad_norm";
inline constexpr char kEvalReduction[] = "eval_loss";

}  // namespace trainctl::layout
