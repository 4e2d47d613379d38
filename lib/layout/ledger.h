// The ledger: the single definition of where each parameter is stored. For each logical parameter, it gives
// the box that each rank holds:
//
// 1. Tensor parallelism (tp) splits one dimension of the parameter into local parts, or replicates it.
// 2. The local parts of a block's parameters are stored one after the other in one bucket, a flat buffer.
// 3. Each bucket is divided into equal shards over dp_shard.
//
// Gradient sums, the gradient norm, clipping, initialization, checkpoint slices, memory estimates and the
// equivalence tests are derived from the ledger. Boxes refer to logical tensors without padding. Immutable;
// thread-safe.
//
//   const Ledger ledger(model::Inventory(spec), layout.mesh, layout.zero_stage);
//   for (const HeldBox& held : ledger.BoxesHeld(rank)) { ... }
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout/box.h"
#include "layout/mesh.h"
#include "model/parameters.h"

namespace trainctl::layout {

// A contiguous range of a rank's local part of a parameter, and its position in a shard.
struct ParameterRange {
  int parameter = 0;  // inventory index
  int64_t begin = 0;  // index of the first element in the row-major local part (LocalBox)
  int64_t count = 0;
  int64_t offset = 0;  // position of that element in the shard
};

// A box of a logical parameter in a rank's shard of a bucket. Its elements are stored there in row-major
// order without gaps.
struct HeldBox {
  int parameter = 0;  // inventory index
  Box box;            // in indices of the whole parameter
  int bucket = 0;
  int64_t offset = 0;  // position of its first element in the shard
};

// The flat buffer of one block's parameters. All sizes and offsets are in elements, and are the same on every
// rank.
struct Bucket {
  int id = 0;                    // index in Ledger::buckets()
  int block = 0;                 // the block that owns the parameters
  std::vector<int> parameters;   // inventory indices, in buffer order
  std::vector<int64_t> offsets;  // start of each parameter in the bucket
  int64_t numel = 0;             // sum of the local parts at tp coordinate 0, the largest; without padding
  int64_t shard_numel = 0;       // size of each dp_shard rank's shard, a multiple of kShardAlign
  int64_t padded_numel = 0;      // shard_numel * dp_shard
  std::vector<int> used_by;      // blocks that read it: its own, and the head if the embeddings are tied
};

// Makes shards start at multiples of 64 bytes in every dtype of at least two bytes.
inline constexpr int64_t kShardAlign = 32;

// A sum over ranks that training needs. Names are unique. The mutation tests omit and duplicate each one.
struct Reduction {
  std::string name;  // "gradient/3/dp_shard", "loss/dp_shard", "grad_norm/dp_shard", ...
  Axis axis = Axis::kDpShard;
};

class Ledger {
 public:
  // A `zero_stage` of 0 shards nothing, 1 shards optimizer state, 2 also gradients, and 3 also parameters.
  // `owners` has the pp coordinates that run each block, in ascending order. If it is empty, pp coordinate 0
  // runs all blocks. `sequence_parallel` is as in Layout: tp ranks split the tokens between the matrix
  // products.
  Ledger(std::vector<model::Parameter> inventory, Mesh mesh, int zero_stage,
         std::vector<std::vector<int>> owners = {}, bool sequence_parallel = true);

  const std::vector<model::Parameter>& inventory() const { return inventory_; }
  const Mesh& mesh() const { return mesh_; }
  int zero_stage() const { return zero_stage_; }
  bool optimizer_sharded() const { return zero_stage_ >= 1; }
  bool gradients_sharded() const { return zero_stage_ >= 2; }
  bool parameters_sharded() const { return zero_stage_ >= 3; }
  bool sequence_parallel() const { return sequence_parallel_; }

  const std::vector<Bucket>& buckets() const { return buckets_; }  // index = id
  int num_buckets() const { return static_cast<int>(buckets_.size()); }
  int num_blocks() const { return static_cast<int>(buckets_of_block_.size()); }
  // The bucket of a parameter, and the parameter's offset in it. Both are the same on every rank. If the
  // local parts of the ranks differ in size, the smaller ones are padded.
  int bucket_of(int parameter) const { return bucket_of_[static_cast<size_t>(parameter)]; }
  int64_t offset_of(int parameter) const { return offsets_[static_cast<size_t>(parameter)]; }
  // IDs of the buckets whose parameters a block reads: its own bucket, then those that it shares.
  const std::vector<int>& buckets_of_block(int block) const {
    return buckets_of_block_[static_cast<size_t>(block)];
  }

  // The pp coordinates that hold a bucket, in ascending order: those that run a block that reads it. If there
  // are several, each computes a part of its gradient. Only the first counts it in the gradient norm and
  // writes it to checkpoints.
  const std::vector<int>& owners(int bucket) const { return owners_[static_cast<size_t>(bucket)]; }
  // The buckets that a pp coordinate holds, in ascending order.
  std::vector<int> BucketsOfOwner(int coordinate) const;

  // The local part of a parameter that tp assigns to a rank (model::ShareOf), before it is sharded over
  // dp_shard.
  Box LocalBox(int parameter, int rank) const;
  // Number of neighbouring tp coordinates that hold the same box of a parameter; 1 if every box is different.
  // Each such group starts at a multiple of this number.
  int Copies(int parameter) const;
  // Number of neighbouring tp coordinates over which a parameter's gradient must be summed; 1 if none. It is
  // Copies() if the copies compute different gradients. Copies of a parameter that tp splits (a key head, for
  // example) differ because their ranks have different query heads. With sequence parallelism, all copies
  // differ because their ranks have different tokens.
  int GradientCopies(int parameter) const;
  // The ranges of OptimizerRanges() whose gradient is summed over exactly `copies` neighbours
  // (GradientCopies).
  std::vector<ParameterRange> RangesOfCopies(int bucket, int rank, int copies) const;
  // An upper bound on the number of elements in RangesOfCopies(), valid for every rank.
  int64_t NumelOfCopies(int bucket, int copies) const;
  // The distinct values of GradientCopies() above 1 among the parameters of a bucket, in descending order.
  std::vector<int> CopiesOfBucket(int bucket) const;

  // The ranges of a rank's shard of a bucket, without padding, by offset. Optimizer state is stored for this
  // shard, which is the whole bucket if dp_shard = 1. The rank must hold the bucket (see owners()).
  std::vector<ParameterRange> OptimizerRanges(int bucket, int rank) const;
  // Number of elements in one rank's shard of a bucket, including padding. Each kind of optimizer state has
  // as many.
  int64_t optimizer_numel(int bucket) const;
  // The shards of a rank in all buckets that it holds, as boxes.
  std::vector<HeldBox> BoxesHeld(int rank) const;

  // The axes of degree above 1 over which a parameter's gradient is summed. Every coordinate of dp_replicate,
  // dp_shard and cp has different tokens. On pp, only the owners of the bucket take part in the sum. On tp,
  // only the copies do (GradientCopies).
  std::vector<Axis> GradientAxes(int parameter) const;
  // Whether a rank adds the squares of its part of a parameter to the gradient norm. The sum of squares is
  // reduced over dp_shard, tp and pp. It is already the same on all coordinates of the other axes.
  bool CountsInNorm(int parameter, int rank) const;

  // WriterIndex() is a rank's index among the ranks that write a checkpoint, 0 for rank 0. It is -1 if the
  // rank's dp_replicate or cp coordinate is not 0, because it then holds only copies.
  int num_writers() const { return static_cast<int>(mesh_.pp * mesh_.dp_shard * mesh_.tp); }
  int WriterIndex(int rank) const;
  bool WritesCheckpoint(int rank) const { return WriterIndex(rank) >= 0; }
  // The boxes of BoxesHeld(rank) that the rank writes to a checkpoint. Over all ranks, they contain each
  // element of each parameter exactly once.
  std::vector<HeldBox> BoxesToWrite(int rank) const;

  // The sums of gradients and scalars over ranks in a training step or an evaluation, except sums over cp.
  // Sums of activations over tp are not listed. The executor refuses to sum gradients or scalars under other
  // names. The mutation tests and `trainctl verify` also use this list.
  std::vector<Reduction> Reductions() const;

 private:
  void MakeBuckets();
  void PlaceOn(const std::vector<std::vector<int>>& owners_of_block);
  bool IsHeld(int bucket, int rank) const;

  std::vector<model::Parameter> inventory_;
  Mesh mesh_;
  int zero_stage_;
  bool sequence_parallel_;
  std::vector<Bucket> buckets_;
  std::vector<int> bucket_of_;    // by parameter
  std::vector<int64_t> offsets_;  // by parameter
  std::vector<std::vector<int>> buckets_of_block_;
  std::vector<std::vector<int>> owners_;  // by bucket
};

// Names of reductions, shared by the ledger and the executor so that they agree. `over` is the name of an
// axis or NameOfCopies().
std::string GradientReduction(int bucket, absl::string_view over);
// Returns "tp", or "2 of tp" if `copies` is 2 and the axis has more ranks.
std::string NameOfCopies(const Mesh& mesh, int copies);
inline constexpr char kLossTokensReduction[] = "loss_tokens";
inline constexpr char kLossReduction[] = "loss";
inline constexpr char kGradNormReduction[] = "grad_norm";
inline constexpr char kEvalReduction[] = "eval_loss";

}  // namespace trainctl::layout
