// Layout: how one training step is distributed over the workers. The recipe constrains it, the planner's
// search proposes it, the plan stores it and the trainer runs it. All of them use this type. This header also
// defines the constraints that every layout must satisfy. Pure functions; thread-safe.
//
//   for (const Violation& violation : FindViolations(request)) Report(violation.fields, violation.message);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "layout/mesh.h"
#include "model/architecture.h"

namespace trainctl::layout {

// Activation recompute: the activations of a layer that its backward computes again instead of keeping.
//   kNone       none
//   kSelective  those that need no matrix product: norms, activation functions, rows gathered for tp
//   kAttention  same as kSelective, and also attention
//   kFull       all, from the layer's input
enum class Recompute : uint8_t { kNone, kSelective, kAttention, kFull };
// All values, from the least recompute to the most.
inline constexpr Recompute kRecomputes[] = {Recompute::kNone, Recompute::kSelective, Recompute::kAttention,
                                            Recompute::kFull};
absl::string_view RecomputeName(Recompute recompute);  // as in recipes: "none", "selective", ...
// Returns nullopt if there is no such name.
std::optional<Recompute> ParseRecompute(absl::string_view name);

// Returns Layout::recomputed_layers: the number of layers to recompute in each stage, at most the stage's
// number of layers. `asked` has one number per stage, or a single number that applies to every stage. Returns
// an empty list, which means all layers, if `asked` is empty or covers every layer.
std::vector<int64_t> RecomputedLayers(const std::vector<int64_t>& asked,
                                      const std::vector<int64_t>& stage_layers);

// Returns "DDP", "ZeRO-1", "ZeRO-2" or "ZeRO-3" for a ZeRO stage from 0 to 3.
absl::string_view StrategyName(int zero_stage);

// The value of Pipeline::order if the recipe lists the passes of each rank instead of naming a schedule.
inline constexpr char kOwnPasses[] = "own passes";

// The pipeline of a mesh with pp > 1.
struct Pipeline {
  std::string order;                // the pipeline schedule, such as "1f1b", or kOwnPasses; empty if pp = 1
  std::vector<std::string> passes;  // one line per rank (schedule/pipeline_file.h); only with kOwnPasses
  int64_t virtual_stages = 1;       // stages per rank
  // Layers per stage, in model order. The first stage also has the embedding, and the last one the head.
  std::vector<int64_t> stage_layers;

  bool HasOwnPasses() const { return !passes.empty(); }
  bool operator==(const Pipeline&) const = default;
};

// Returns the number of layers of each stage that minimizes the work of the busiest stage. `embedding` and
// `head` are the work of the first stage's embedding and the last stage's head, in units of one layer. Among
// equally busy stages, those in the middle take the extra layers first, then the first stage, then the last.
std::vector<int64_t> BalancedStageLayers(int64_t layers, int64_t num_stages, double embedding, double head);
// The same without embedding and head: the numbers of layers differ by at most one.
std::vector<int64_t> EvenStageLayers(int64_t layers, int64_t num_stages);
// Returns the first block of each stage, followed by the number of blocks. Block 0 is the embedding, the
// layers follow, and the last block is the head.
std::vector<int> StageBegins(const std::vector<int64_t>& stage_layers);

struct Layout {
  Mesh mesh;
  Pipeline pipeline;
  bool sequence_parallel = true;  // with tp > 1, ranks split the tokens between the matrix products
  int zero_stage = 0;             // shards over dp_shard: 1 optimizer, 2 also gradients, 3 also parameters
  int64_t micro_batch = 1;        // sequences that a worker processes at a time
  int64_t num_micro_batches = 1;  // gradient accumulation: batch / (micro_batch * data degree)
  Recompute recompute = Recompute::kNone;
  // With kFull, the number of layers to recompute in each stage, starting with its first layer. The other
  // layers keep their activations. Empty means all layers. The backward reaches the first layers last, after
  // the others have freed their activations, so no other choice of the same number of layers has a lower
  // memory peak.
  std::vector<int64_t> recomputed_layers;
  std::string ToString() const;  // "ZeRO-3 dp_shard=2 micro_batch=4 recompute=full"
  bool operator==(const Layout&) const = default;
};

// The constraints on a layout. Fields that are nullopt are free.
struct Request {
  const model::Architecture* spec = nullptr;
  int64_t nodes = 1;
  int64_t devices_per_node = 1;
  int64_t batch_sequences = 1;  // sequences per step, over all workers
  int64_t seq_len = 1;          // tokens
  std::optional<int64_t> dp_replicate, dp_shard, zero_stage, micro_batch;
  std::optional<Recompute> recompute;
  std::optional<std::vector<int64_t>> recomputed_layers;  // one number per stage, or one for every stage
  std::optional<int64_t> pp, tp;                          // the functions below use 1 if they are free
  std::optional<bool> sequence_parallel;                  // true if it is free
  std::optional<std::string> pipeline_order;
  std::vector<std::string> passes;  // as Pipeline::passes; empty if the recipe does not list passes
  std::optional<int64_t> virtual_stages;
  std::optional<std::vector<int64_t>> stage_layers;
  int64_t num_workers() const { return nodes * devices_per_node; }
  int64_t num_stages() const { return pp.value_or(1) * virtual_stages.value_or(1); }
  // Number of groups of workers that train on different sequences. The workers of one group share the model's
  // stages and tensor-parallel parts.
  int64_t data_workers() const { return num_workers() / (pp.value_or(1) * tp.value_or(1)); }
};

// The maximum number of workers of a layout.
inline constexpr int64_t kMaxWorkers = int64_t{1} << 20;
// The maximum number of blocks times micro-batches of a step, because a step is a list in memory.
inline constexpr int64_t kMaxBlockRuns = int64_t{1} << 18;

// Returns the smallest micro-batch that divides `share`, the number of sequences per worker and step, and
// keeps the step within kMaxBlockRuns. Tries only sizes below twice the lower bound that kMaxBlockRuns
// implies, and at most 4096 of them. Returns nullopt if none of these divides `share`.
std::optional<int64_t> LeastMicroBatch(const model::Architecture& spec, int64_t share);

struct Violation {
  std::vector<std::string> fields;  // the recipe's fields involved, the most likely culprit first
  std::string message;              // names the values and, if there are any, the nearest ones that work
};

// Returns all constraints that the request violates, or an empty list if some layout satisfies it. A
// constraint is skipped if it depends on a value that another violation makes meaningless, and constraints on
// the model are skipped if `spec` is null. Memory and the limits of pipeline schedules are checked elsewhere
// (schedule::CheckPipelineLayout).
//
// A free pp or tp counts as 1. There are two exceptions: a step has fewer sequences than data_workers(), or
// dp_replicate and dp_shard are both set and their product is below data_workers(). In these cases the
// request is also satisfied if PossibleCuts() is not empty.
std::vector<Violation> FindViolations(const Request& request);

// Returns a copy of the request for each pair of pp and tp that satisfies all constraints, in ascending order
// of tp, then pp. A degree that the request sets is kept. A free tp divides devices_per_node, so that it
// stays within a node, and is at most the number of heads. A free pp is at most the number of layers. The
// first entry is pp = tp = 1 if that is possible. `spec` must not be null.
std::vector<Request> PossibleCuts(const Request& request);

}  // namespace trainctl::layout
