// The executor: runs a step's instructions on this rank. The compute stream is the calling thread; gathers
// and reductions run on streams of their own and overlap it exactly as far as the step's waits allow. It
// decides nothing: order, slots and lifetimes are the step's. Activations lie in a table by the step's value
// ids, and are gone where it frees them. Of a step of several classes it runs the program of its own, and
// messages to and from each other class have streams of their own.
//
// Every method is collective over the world. Errors: WorkerError with the instruction.
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
  int64_t loss_tokens = 0;  // of the whole step, all ranks; if 0, nothing was updated
  bool finite = true;       // loss and norm are finite; if false, nothing was updated
};

struct EvalSums {
  double loss = 0;  // summed over loss tokens, this rank
  int64_t loss_tokens = 0;
};

// Called before each instruction, for fault injection and progress.
using InstructionHook = std::function<void(const schedule::Instruction&)>;

// Called after each instruction by the thread that ran it, with its index in the program: it ran within
// [begin_ns, end_ns] of CLOCK_MONOTONIC, what it waited for before not included.
using SpanHook = std::function<void(size_t instruction, int64_t begin_ns, int64_t end_ns)>;

class Executor {
 public:
  Executor(const model::ModelSpec& spec, ShardedState& state, Groups& groups,
           const schedule::BuildOptions& options);
  ~Executor();

  // One optimizer step. One view per micro-batch of this rank.
  absl::StatusOr<StepResult> RunStep(const schedule::Step& step,
                                     absl::Span<const nn::TokenView> micro_batches,
                                     const UpdateOptions& update);

  // Forward and loss of each micro-batch; sums of this rank alone.
  absl::StatusOr<EvalSums> RunForward(const schedule::Step& step,
                                      absl::Span<const nn::TokenView> micro_batches);

  // Sums over all ranks, in place. `name` as in ledger.h; InternalError: not among its reductions.
  absl::Status SumOverRanks(absl::string_view name, absl::Span<double> values);
  // Sums of votes, over all ranks: what the run does next, no part of what it computes.
  absl::Status CountVotes(absl::Span<double> votes);

  void SetHook(InstructionHook hook) { hook_ = std::move(hook); }
  // The next pass hashes each instruction as it runs it; executed_hash() then says which step that was
  // (schedule/step_hash.h).
  void HashNextPass() { hash_next_ = true; }
  const std::string& executed_hash() const { return executed_hash_; }

  // Between passes; null: none.
  void SetSpanHook(SpanHook hook) { span_hook_ = std::move(hook); }

  // From now on every instruction and operator waits for its work on the device, so that the error of a
  // failing kernel names them.
  void CheckOperators();

  // From now on a rank that is alone on a device with graphs does its steps by one launch each, where
  // attention is one kernel, nobody looks at its instructions and every sequence is one document. `report`
  // hears why not, once, where a graph cannot be made. The first such step is done without its update before
  // it is done by the graph; RunStep fails where the two differ.
  void UseGraphs(std::function<void(const std::string& why_not)> report) {
    report_no_graph_ = std::move(report);
  }

  // Seconds of the last pass spent on the compute thread per instruction kind, and waiting. On a device: to
  // queue them, and most of the step in waiting; with a span hook every instruction waits for its own work.
  const std::map<std::string, double>& phase_seconds() const { return phase_seconds_; }
  // Of the last pass, by operator: "linear", "linear backward". Those that did not run are absent; on a
  // device all are.
  std::map<std::string, double> operator_seconds() const;

 private:
  class Pass;
  friend class Pass;

  // What a graph was made of, its arguments that are the host's.
  struct Graphed {
    const schedule::Step* step;
    double clip_norm;
    float z_loss;
    std::vector<bool> decay;
    bool operator==(const Graphed&) const = default;
  };

  const model::ModelSpec& spec_;
  std::vector<schedule::Group> ScalarGroups() const;
  void ReserveWorkspace() const;
  // Its memory is its own, and may be what others lack. False: there is none.
  bool DropGraph();
  bool MayUseGraph(absl::Span<const nn::TokenView> micro_batches, const UpdateOptions& update) const;
  // What a step has by the graph and without it.
  static absl::Status HoldAgainst(const StepResult& eager, const StepResult& graph);
  absl::StatusOr<StepResult> RunGraph(const schedule::Step& step,
                                      absl::Span<const nn::TokenView> micro_batches,
                                      const UpdateOptions& update);
  // InternalError: the ledger does not list that sum of training over that group's axis.
  absl::Status CheckListed(absl::string_view sum, const comm::Group& group) const;

  const device::Device& device_;  // the state's
  ShardedState& state_;
  Groups& groups_;
  schedule::BuildOptions options_;
  nn::RopeTables rope_;
  std::unique_ptr<nn::TensorGroup> tensor_;  // of tensor parallelism
  std::vector<nn::SegmentRunner> runners_;   // by block
  EventSet events_;
  std::vector<std::unique_ptr<Stream>> streams_;  // by the program's; as many as any had so far
  InstructionHook hook_;
  SpanHook span_hook_;
  bool checks_ = false;
  bool hash_next_ = false;
  std::string executed_hash_;
  std::map<std::string, double> phase_seconds_;
  nn::OperatorSeconds operator_seconds_;
  // Inputs and sums of a pass, in the device's memory.
  struct PassScalars {
    double loss = 0;     // the sum over unmasked targets
    double squares = 0;  // of gradients
    float scale = 0;     // of gradients: 1 / loss tokens of all ranks
    kernels::UpdateOptions update;
  };
  PassScalars* scalars_ = nullptr;
  // On the CPU they are the host's, which otherwise writes and reads a copy before and after a pass.
  PassScalars cpu_scalars_;
  at::Tensor device_scalars_, pinned_scalars_;
  std::function<void(const std::string&)> report_no_graph_;  // null: there are to be none
  std::optional<Graphed> graphed_;                           // what graph_ was made of
  nn::DeviceTokens graph_tokens_;
  std::unique_ptr<device::Graph> graph_;
  absl::flat_hash_set<std::string> sums_;  // that the ledger lists
  std::vector<int> slot_bucket_;           // what each parameter slot holds, to catch a stale one
};

}  // namespace trainctl::parallel
