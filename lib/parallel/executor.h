// Runs the instructions of a step on this rank. The calling thread is the compute stream. Gathers and
// reductions run on their own streams, and overlap with it exactly as far as the step's waits allow. The
// executor makes no decisions: the step fixes order, slots and lifetimes. Activations are stored by the
// step's value ids and released when the step frees them. If a step has several classes (the ranks of a
// pipeline), the executor runs the program of this rank's class. Messages to and from each other class have
// their own streams.
//
//   Executor executor(spec, state, groups, options);
//   TRAINCTL_ASSIGN_OR_RETURN(StepResult result, executor.RunStep(step, micro_batches, update));
//
// RunStep, RunForward, SumOverRanks and CountVotes are collective over the world, and block until their work
// is done. Errors: WorkerError if a collective or a kernel failed, EnvironmentError if the system refused
// memory or a thread, InternalError for other exceptions. An error of an instruction names it, but a device
// may report a failed kernel later (see CheckOperators). Not thread-safe.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "device/graph.h"
#include "nn/segment_runner.h"
#include "parallel/groups.h"
#include "parallel/parameter_update.h"
#include "parallel/sharded_state.h"
#include "parallel/stream.h"
#include "schedule/build_step.h"

namespace trainctl::parallel {

struct StepResult {
  double loss = 0;          // mean over the global number of loss tokens
  double grad_norm = 0;     // before clipping
  int64_t loss_tokens = 0;  // loss tokens of the step on all ranks; if 0, nothing was updated
  bool finite = true;       // whether loss and norm are finite; if not, nothing was updated
};

struct EvalSums {
  double loss = 0;  // summed over this rank's loss tokens
  int64_t loss_tokens = 0;
};

// Called before each instruction by the thread that runs it, for fault injection and progress. Several
// threads may call it at the same time.
using InstructionHook = std::function<void(const schedule::Instruction&)>;

// Called after each instruction by the thread that ran it, with the instruction's index in the program. The
// instruction ran within [begin_ns, end_ns] of CLOCK_MONOTONIC. Its wait for earlier instructions is not
// included.
using SpanHook = std::function<void(size_t instruction, int64_t begin_ns, int64_t end_ns)>;

class Executor {
 public:
  Executor(const model::Architecture& spec, ShardedState& state, Groups& groups,
           const schedule::BuildOptions& options);
  ~Executor();

  // Runs one optimizer step. `micro_batches` has one view of host memory per micro-batch of this rank.
  absl::StatusOr<StepResult> RunStep(const schedule::Step& step,
                                     absl::Span<const nn::TokenView> micro_batches,
                                     const UpdateOptions& update);

  // Runs the forward and the loss of each micro-batch, and returns the sums of this rank only. If this fails
  // while a graph exists, frees the graph's memory and tries once more.
  absl::StatusOr<EvalSums> RunForward(const schedule::Step& step,
                                      absl::Span<const nn::TokenView> micro_batches);

  // Sums `values` in place over the data-parallel ranks and pipeline stages. The ranks of a tensor-parallel
  // group must hold equal values, which are not added. `name` is a reduction of layout/ledger.h; returns
  // InternalError if the ledger does not list it.
  absl::Status SumOverRanks(absl::string_view name, absl::Span<double> values);
  // Sums votes in place over all ranks. Votes decide what the run does next. They are not part of its
  // computation, so the ledger does not list them.
  absl::Status CountVotes(absl::Span<double> votes);

  void SetHook(InstructionHook hook) { hook_ = std::move(hook); }
  // Makes the next pass hash each instruction as it runs it. executed_hash() then identifies the step that
  // was executed (schedule/step_hash.h).
  void HashNextPass() { hash_next_ = true; }
  const std::string& executed_hash() const { return executed_hash_; }

  // Call this between passes. Null removes the hook.
  void SetSpanHook(SpanHook hook) { span_hook_ = std::move(hook); }

  // Makes every instruction and operator wait until its work on the device is complete, so that the error of
  // a failing kernel names them.
  void CheckOperators();

  // Allows RunStep to run each step as one launch of a captured graph. This needs a single rank on a device
  // that supports graphs, a model whose attention is one kernel, and sequences of one document each. Steps
  // without loss tokens or without an update, and steps with a hook, a hash or checks, run without the graph.
  // If a graph cannot be made, calls `report` once with the reason and continues without graphs. Before a new
  // graph is used, the step also runs without it and without an update. RunStep returns InternalError if the
  // two losses or gradient norms differ by more than rounding.
  void UseGraphs(std::function<void(const std::string& why_not)> report) {
    report_no_graph_ = std::move(report);
  }

  // Seconds that the compute thread spent in the last pass, by kind of instruction, with "wait" for waiting
  // and "graph" for a graph's launch. On a device an instruction's time is the time to queue it, and most of
  // the step is "wait". With a span hook every instruction waits for its own work.
  const std::map<std::string, double>& phase_seconds() const { return phase_seconds_; }
  // Seconds of the last pass by operator, for example "linear" and "linear backward". Operators that did not
  // run are absent. Empty on a device.
  std::map<std::string, double> operator_seconds() const;

 private:
  class Pass;
  friend class Pass;

  // The host arguments with which a graph was captured. A graph is reused only while they are equal.
  struct Graphed {
    const schedule::Step* step;
    double clip_norm;
    float z_loss;
    std::vector<bool> decay;
    bool operator==(const Graphed&) const = default;
  };

  std::vector<schedule::Group> ScalarGroups() const;
  void ReserveWorkspace() const;
  // Frees the graph and with it its private memory, which other work may need. Returns false if there was no
  // graph.
  bool DropGraph();
  bool MayUseGraph(absl::Span<const nn::TokenView> micro_batches, const UpdateOptions& update) const;
  // Returns InternalError if the results of a step without and with the graph differ by more than rounding.
  static absl::Status HoldAgainst(const StepResult& eager, const StepResult& graph);
  absl::StatusOr<StepResult> RunGraph(const schedule::Step& step,
                                      absl::Span<const nn::TokenView> micro_batches,
                                      const UpdateOptions& update);
  // Returns InternalError if the ledger does not list this sum of training over the group's axis. A group of
  // one rank needs no entry.
  absl::Status CheckListed(absl::string_view sum, const comm::Group& group) const;

  const device::Device& device_;  // the state's device
  ShardedState& state_;
  Groups& groups_;
  schedule::BuildOptions options_;
  std::vector<nn::RopeTables> rope_;
  std::unique_ptr<nn::TensorGroup> tensor_;    // null without tensor parallelism
  std::shared_ptr<const model::Graph> model_;  // the part of this tensor-parallel rank
  std::vector<nn::SegmentRunner> runners_;     // indexed by kind of block
  EventSet events_;
  std::vector<std::unique_ptr<Stream>> streams_;  // indexed by stream id; grows as needed; [0] is null
  InstructionHook hook_;
  SpanHook span_hook_;
  bool checks_ = false;
  bool hash_next_ = false;
  std::string executed_hash_;
  std::map<std::string, double> phase_seconds_;
  nn::OperatorSeconds operator_seconds_;
  // The inputs and sums of a pass, in device memory.
  struct PassScalars {
    double loss = 0;     // summed over unmasked targets
    double squares = 0;  // sum of squared gradients
    float scale = 0;     // factor of gradients: 1 / loss tokens of all ranks
    kernels::UpdateOptions update;
  };
  PassScalars* scalars_ = nullptr;
  // On the CPU scalars_ points here. On a device it points to device memory, and the host writes and reads a
  // pinned copy before and after a pass.
  PassScalars cpu_scalars_;
  at::Tensor device_scalars_, pinned_scalars_;
  std::function<void(const std::string&)> report_no_graph_;  // null if graphs are not used
  std::optional<Graphed> graphed_;                           // the arguments of graph_
  nn::DeviceTokens graph_tokens_;
  std::unique_ptr<device::Graph> graph_;
  absl::flat_hash_set<std::string> sums_;  // names of the sums that the ledger lists
  std::vector<int> slot_bucket_;           // bucket in each parameter slot, to detect a stale one
};

}  // namespace trainctl::parallel
