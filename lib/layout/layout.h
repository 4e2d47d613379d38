// Layout: how one training step is spread over the workers. The recipe constrains it, the search proposes it,
// the plan stores it and the trainer runs it; there is no second type. Also the one list of what a layout
// must satisfy. Pure; thread safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "layout/mesh.h"
#include "model/model_spec.h"

namespace trainctl::layout {

// What a layer's backward computes again instead of keeping it: nothing; what takes no product (norms,
// activation functions, gathered rows); attention as well; everything, from the layer's input.
enum class Recompute : uint8_t { kNone, kSelective, kAttention, kFull };
// From little to much.
inline constexpr Recompute kRecomputes[] = {Recompute::kNone, Recompute::kSelective, Recompute::kAttention,
                                            Recompute::kFull};
absl::string_view RecomputeName(Recompute recompute);  // "none", "selective", ...: as in recipes
std::optional<Recompute> ParseRecompute(absl::string_view name);

// What a layout has of them, for stages of so many layers each: what `asked` says of each stage or, with one
// number, of all, and no more than a stage has. Empty: all.
std::vector<int64_t> RecomputedLayers(const std::vector<int64_t>& asked,
                                      const std::vector<int64_t>& stage_layers);

absl::string_view StrategyName(int zero_stage);  // "DDP", "ZeRO-1", ...

// How the order of a pipeline is called whose passes are stated one by one.
inline constexpr char kOwnPasses[] = "own passes";

// Of a mesh with pp > 1.
struct Pipeline {
  std::string order;  // in which ranks run their passes: "1f1b", kOwnPasses; empty: there is no pipeline
  std::vector<std::string> passes;  // of each rank (schedule/pipeline_file.h), if the order has no name
  int64_t virtual_stages = 1;       // of each rank
  // Of each stage, in the order of the model. The first has the embedding as well, the last the head.
  std::vector<int64_t> stage_layers;

  bool HasOwnPasses() const { return !passes.empty(); }
  bool operator==(const Pipeline&) const = default;
};

// Of each stage so many that the one with most to do has least. The embedding of the first and the head of
// the last count as so many layers. Of stages with as much to do those in the middle take more, then the
// first.
std::vector<int64_t> BalancedStageLayers(int64_t layers, int64_t num_stages, double embedding, double head);
// As even as they come.
std::vector<int64_t> EvenStageLayers(int64_t layers, int64_t num_stages);
// The first block of each stage, then the number of blocks.
std::vector<int> StageBegins(const std::vector<int64_t>& stage_layers);

struct Layout {
  Mesh mesh;
  Pipeline pipeline;
  bool sequence_parallel = true;  // with tp > 1: between its products each rank has a part of the tokens
  int zero_stage = 0;             // 1..3 shard over dp_shard: optimizer, + gradients, + parameters
  int64_t micro_batch = 1;        // sequences per worker at a time
  int64_t num_micro_batches = 1;  // accumulation: batch / (micro_batch * data degree)
  Recompute recompute = Recompute::kNone;
  // With kFull: so many of each stage's layers, in the order of the model, the first ones; the others keep
  // what their backward reads. Empty: all. The backward comes to the first layers last, when the others have
  // given back what they kept: no other choice of as many layers has a lower peak.
  std::vector<int64_t> recomputed_layers;
  std::string ToString() const;  // "ZeRO-3 dp_shard=2 micro_batch=4 recompute=full"
  bool operator==(const Layout&) const = default;
};

// What is asked for. std::nullopt: free to choose.
struct Request {
  const model::ModelSpec* spec = nullptr;
  int64_t nodes = 1;
  int64_t devices_per_node = 1;
  int64_t batch_sequences = 1;  // of a step, over all workers
  int64_t seq_len = 1;          // tokens
  std::optional<int64_t> dp_replicate, dp_shard, zero_stage, micro_batch;
  std::optional<Recompute> recompute;
  std::optional<std::vector<int64_t>> recomputed_layers;  // of each stage; one number: of every stage
  std::optional<int64_t> pp, tp;                          // free: 1 for what is derived from them
  std::optional<bool> sequence_parallel;                  // free: true
  std::optional<std::string> pipeline_order;
  std::vector<std::string> passes;  // the order, where it has no name
  std::optional<int64_t> virtual_stages;
  std::optional<std::vector<int64_t>> stage_layers;
  int64_t num_workers() const { return nodes * devices_per_node; }
  int64_t num_stages() const { return pp.value_or(1) * virtual_stages.value_or(1); }
  // Groups of workers that see other sequences than one another.
  int64_t data_workers() const { return num_workers() / (pp.value_or(1) * tp.value_or(1)); }
};

// Workers that a layout can have, and blocks run forward and backward in one step: a step is a list in
// memory.
inline constexpr int64_t kMaxWorkers = int64_t{1} << 20;
inline constexpr int64_t kMaxBlockRuns = int64_t{1} << 18;

// The smallest micro-batch with which a step of `share` sequences a worker is not too long a list, if one
// below twice that size divides it.
std::optional<int64_t> LeastMicroBatch(const model::ModelSpec& spec, int64_t share);

struct Violation {
  std::vector<std::string> fields;  // of the recipe, the one to blame first
  std::string message;              // names the values, and the nearest that work
};

// Every constraint that the request violates, whatever else is wrong. Empty if some layout satisfies it. Free
// degrees of pp and tp count as 1, unless a step has fewer sequences than workers, or both degrees of data
// parallelism are stated and too small: then a cut of the model that gives each worker a part satisfies the
// request as well.
std::vector<Violation> FindViolations(const Request& request);

// The request with each pair of pp and tp that it leaves open, if it has no violations then: tp within a
// node, at least one layer per stage. In ascending order of tp, then pp; the first is pp = tp = 1 if that is
// possible.
std::vector<Request> PossibleCuts(const Request& request);

}  // namespace trainctl::layout
