// The ledger: the one place where a placement is written. For each logical parameter it says which rank holds
// which box: axes of the mesh cut its dimensions, the local part lies in one bucket (a flat buffer) at one
// offset, and buckets are cut into equal shards over dp_shard. Gradient sums, the norm, clipping,
// initialization, checkpoint slices, memory and the equivalence tests are derived from it. It speaks of
// logical, unpadded tensors. Pure; thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout/box.h"
#include "layout/mesh.h"
#include "model/model_spec.h"

namespace trainctl::layout {

// A contiguous run of the elements of a rank's part of a parameter, and where it lies.
struct ParameterRange {
  int parameter = 0;  // inventory index
  int64_t begin = 0;  // first element, in the row-major flattened part: of an uncut parameter, all of it
  int64_t count = 0;
  int64_t offset = 0;  // of its first element within the shard asked for
};

// A box of a logical parameter in a rank's shard of a bucket, where it lies in row-major order without gaps.
struct HeldBox {
  int parameter = 0;  // inventory index
  Box box;            // in the indices of the whole parameter
  int bucket = 0;
  int64_t offset = 0;  // of its first element within the shard
};

struct Bucket {
  int id = 0;                    // its index in Ledger::buckets
  int block = 0;                 // its parameters belong to this block
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
  // sequence_parallel: between its products each rank of tp runs on a part of the tokens.
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
  // The bucket of a parameter, and its offset there: the same on every rank, so that where the parts of ranks
  // differ, the smaller ones are padded.
  int bucket_of(int parameter) const { return bucket_of_[static_cast<size_t>(parameter)]; }
  int64_t offset_of(int parameter) const { return offsets_[static_cast<size_t>(parameter)]; }
  // Ids of the buckets whose parameters a block reads: its own first, then those it shares.
  const std::vector<int>& buckets_of_block(int block) const {
    return buckets_of_block_[static_cast<size_t>(block)];
  }

  // Coordinates on pp that hold a bucket, ascending: where the blocks run that read it. Where there are
  // several, each has a part of its gradient, and the first counts in the norm and writes the checkpoint.
  const std::vector<int>& owners(int bucket) const { return owners_[static_cast<size_t>(bucket)]; }
  // The buckets that a coordinate on pp holds, ascending.
  std::vector<int> BucketsOfOwner(int coordinate) const;

  // What tp leaves of a parameter to a rank (model::ShareOf), all shards of its dp_shard group together.
  Box LocalBox(int parameter, int rank) const;
  // Neighbours on tp that have the same box of a parameter, from a multiple of their number on; 1: each has
  // its own.
  int Copies(int parameter) const;
  // Of those that have a part of its gradient each: what is summed. Parts of the sequence are other tokens,
  // queries of other heads give other gradients of their keys. Otherwise copies have the same gradient.
  int GradientCopies(int parameter) const;
  // What of a rank's part of a bucket is summed over so many neighbours on tp.
  std::vector<ParameterRange> RangesOfCopies(int bucket, int rank, int copies) const;
  // At most so many elements of any rank's part, then.
  int64_t NumelOfCopies(int bucket, int copies) const;
  // The numbers of neighbours of such sums of a bucket, descending.
  std::vector<int> CopiesOfBucket(int bucket) const;

  // What a rank's optimizer state holds of a bucket, padding left out, by offset: its shard, which is all of
  // it where dp_shard = 1. For ranks that hold the bucket: see owners.
  std::vector<ParameterRange> OptimizerRanges(int bucket, int rank) const;
  // Elements of optimizer state that one rank holds for a bucket, padding included.
  int64_t optimizer_numel(int bucket) const;
  // The optimizer state of a rank in all buckets that it holds, as boxes.
  std::vector<HeldBox> BoxesHeld(int rank) const;

  // Axes, of more than one coordinate, over which a parameter's gradient is summed. Each coordinate of the
  // data axes and of cp sees other tokens. On tp the copies take part, on pp the owners of the bucket.
  std::vector<Axis> GradientAxes(int parameter) const;
  // Whether a rank adds the squares of its part of a parameter to the norm. The norm is summed over dp_shard,
  // tp and pp; every coordinate of the other axes computes the same one.
  bool CountsInNorm(int parameter, int rank) const;

  // The number of a rank among those that write a checkpoint, 0 for rank 0; -1: it holds only copies.
  int num_writers() const { return static_cast<int>(mesh_.pp * mesh_.dp_shard * mesh_.tp); }
  int WriterIndex(int rank) const;
  bool WritesCheckpoint(int rank) const { return WriterIndex(rank) >= 0; }
  // Those of BoxesHeld(rank) that the rank writes: over all ranks, each element of each parameter once.
  std::vector<HeldBox> BoxesToWrite(int rank) const;

  // Every sum of a step, for the executor and for the mutation tests.
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

// Names of the reductions, so that executor and ledger cannot drift apart.
std::string GradientReduction(int bucket, absl::string_view over);  // the name of an axis, or NameOfCopies
// "tp", or of less than the whole axis "2 of tp".
std::string NameOfCopies(const Mesh& mesh, int copies);
inline constexpr char kLossTokensReduction[] = "loss_tokens";
inline constexpr char kLossReduction[] = "loss";
inline constexpr char kGradNormReduction[] = "grad_norm";
inline constexpr char kEvalReduction[] = "eval_loss";

}  // namespace trainctl::layout
