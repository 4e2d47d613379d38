// The equivalence matrix: real processes, every layout against one process, and the mutants that
// prove that the matrix can fail. Prints one line per world size and a closing count.
//
//   equivalence [PLUGIN [LARGEST_WORLD [races|quick|pipeline|tensor]]]
//
// A few cells also update, each with every optimizer: the parameters after it are those of one process.
//
// `races`: only the cells in which streams have most to do with one another, and no mutants. `quick`: of each
// mesh and stage the cell that has everything at once. `pipeline`, `tensor`: the cells with such an axis.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/counter_rng.h"
#include "comm/communicator.h"
#include "device/counting_allocator.h"
#include "model/model_spec.h"
#include "optim/optimizer.h"
#include "parallel/executor.h"
#include "schedule/pipeline.h"
#include "simulate/memory.h"

namespace trainctl {
namespace {

constexpr int kMaxWorld = 4;
// Divides by 1, 2, 3, 4 workers times 4 micro-batches, or by 1 and 2: attention of a test device has a
// hundred launches a sequence.
int64_t g_sequences = 48;
constexpr int64_t kFewSequences = 16;
constexpr int64_t kSeqLen = 24;
constexpr int64_t kMaxNumel = 1 << 18;
constexpr double kGradientTolerance = 1e-5;
constexpr double kGradientFloor = 1e-3;
constexpr double kLossTolerance = 1e-6;
constexpr int64_t kMemorySlackBytes = int64_t{2} << 20;

struct Cell {
  layout::Mesh mesh;
  int stage = 0;
  int accumulation = 1;
  layout::Recompute recompute = layout::Recompute::kNone;
  bool tied = false;
  bool prefetch = false;
  const optim::Optimizer* update = nullptr;  // null: gradients alone
  // Of a mesh with pp > 1.
  schedule::PipelineKind order = schedule::PipelineKind::k1F1B;
  int virtual_stages = 1;
  bool sequence_parallel = true;  // of a mesh with tp > 1
};

std::string Name(const Cell& cell) {
  return absl::StrCat(cell.mesh.ToString(), " zero_stage=", cell.stage, " accumulation=", cell.accumulation,
                      cell.recompute == layout::Recompute::kFull ? " recompute=full" : "",
                      cell.tied ? " tied" : "", cell.prefetch ? " prefetch" : "",
                      cell.update == nullptr ? "" : absl::StrCat(" update=", cell.update->name),
                      cell.sequence_parallel ? "" : " sequence_parallel=false",
                      cell.mesh.pp == 1 ? ""
                                        : absl::StrCat(" order=", schedule::PipelineKindName(cell.order),
                                                       " virtual_stages=", cell.virtual_stages));
}

model::ModelSpec Spec(bool tied) {
  model::ModelSpec spec;
  spec.layers = 3;
  spec.hidden = 40;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 10;
  spec.ffn = 56;
  spec.vocab = 211;  // divides by nothing
  spec.tie_embeddings = tied;
  spec.qkv_bias = true;
  spec.init_std = 0.1;
  return spec;
}

// A batch whose loss tokens are unevenly spread; the last of `masked_parts` equal parts counts none.
struct TestBatch {
  std::vector<int32_t> tokens, targets, positions, document;
  std::vector<uint8_t> mask;

  explicit TestBatch(int masked_parts) {
    for (int64_t s = 0; s < g_sequences; ++s) {
      const int64_t border =
          1 + static_cast<int64_t>(RandomBelow(1, 1, static_cast<uint64_t>(s), kSeqLen - 1));
      for (int64_t t = 0; t < kSeqLen; ++t) {
        const auto i = static_cast<uint64_t>(s * kSeqLen + t);
        tokens.push_back(static_cast<int32_t>(RandomBelow(1, 2, i, 211)));
        targets.push_back(static_cast<int32_t>(RandomBelow(1, 3, i, 211)));
        document.push_back(t < border ? 0 : 1);
        positions.push_back(static_cast<int32_t>(t < border ? t : t - border));
        const bool counts =
            RandomUniform(1, 4, i) < 0.1 + 0.8 * static_cast<double>(s) / static_cast<double>(g_sequences);
        const bool masked = masked_parts > 1 && s >= g_sequences - g_sequences / masked_parts;
        mask.push_back(counts && !masked ? 1 : 0);
      }
    }
  }

  nn::TokenView View(int64_t first_sequence) const {
    const int64_t i = first_sequence * kSeqLen;
    return {&tokens[static_cast<size_t>(i)], &targets[static_cast<size_t>(i)],
            &positions[static_cast<size_t>(i)], &document[static_cast<size_t>(i)],
            &mask[static_cast<size_t>(i)]};
  }
};

// What a cell yields, in memory that all processes share.
struct Outcome {
  // As each rank has them: a sum left out may be right on the rank that had everything.
  double loss[kMaxWorld] = {};
  double grad_norm[kMaxWorld] = {};
  double eval_loss[kMaxWorld] = {};  // summed
  double eval_tokens[kMaxWorld] = {};
  int64_t measured_peak[kMaxWorld] = {};
  int64_t predicted_peak[kMaxWorld] = {};
  float gradients[kMaxNumel];
  float parameters[kMaxNumel];  // masters, at the end
  float state[kMaxNumel];       // the optimizer's first
};

struct Shared {
  Outcome current;
  Outcome reference[kMaxWorld + 1][2];                       // by masked parts and tying
  Outcome updated[kMaxWorld + 1][kernels::kNumUpdateRules];  // by masked parts and optim::All()
  std::atomic<int> cells{0};
  std::atomic<int> failures{0};
  std::atomic<int> mutants{0};
  std::atomic<int> survivors{0};
  double worst_gradient = 0;
  double worst_memory = 0;
};

Shared* g_shared = nullptr;

const Outcome& ReferenceOf(const Cell& cell, int masked_parts) {
  if (cell.update == nullptr) return g_shared->reference[masked_parts][cell.tied];
  const auto all = optim::All();
  return g_shared->updated[masked_parts][std::find(all.begin(), all.end(), cell.update) - all.begin()];
}

class Die {
 public:
  template <typename T>
  T operator()(absl::StatusOr<T> result) const {
    if (!result.ok()) Exit(result.status());
    return *std::move(result);
  }
  void operator()(const absl::Status& status) const {
    if (!status.ok()) Exit(status);
  }

 private:
  [[noreturn]] static void Exit(const absl::Status& status) {
    std::fprintf(stderr, "equivalence: %s\n", std::string(status.message()).c_str());
    std::_Exit(1);
  }
};
constexpr Die kOrDie;

// The steps of a cell, of training and of evaluation, and where they lie.
struct Steps {
  layout::Ledger ledger;
  schedule::Step step, forward;
};

Steps BuildSteps(const Cell& cell, const model::ModelSpec& spec, const schedule::BuildOptions& options) {
  if (cell.mesh.pp == 1) {
    layout::Ledger ledger(model::Inventory(spec), cell.mesh, cell.stage, {}, cell.sequence_parallel);
    schedule::Step step = schedule::BuildStep(spec, ledger, options);
    schedule::Step forward = schedule::BuildForwardOnly(spec, ledger, options);
    return {std::move(ledger), std::move(step), std::move(forward)};
  }
  const schedule::PipelineSchedule order = kOrDie(
      schedule::BuildPipeline(cell.order, {cell.mesh.pp, options.num_micro_batches, cell.virtual_stages}));
  std::vector<int> stages;
  for (int stage = 0; stage <= order.placement.num_stages; ++stage)
    stages.push_back(model::NumBlocks(spec) * stage / order.placement.num_stages);
  layout::Ledger ledger(model::Inventory(spec), cell.mesh, cell.stage, schedule::OwnersOf(order, stages),
                        cell.sequence_parallel);
  schedule::Step step = kOrDie(schedule::BuildStep(spec, ledger, options, order, stages));
  schedule::Step forward = kOrDie(schedule::BuildForwardOnly(spec, ledger, options, order, stages));
  return {std::move(ledger), std::move(step), std::move(forward)};
}

// Runs one step of a cell on this rank and leaves the gathered outcome in shared memory.
void RunCell(const device::Device& device, const Cell& cell, comm::Communicator& communicator,
             comm::Group& world, int masked_parts, comm::FaultHook fault, bool drop_token, Outcome* outcome) {
  const model::ModelSpec spec = Spec(cell.tied);
  TestBatch batch(masked_parts);
  if (drop_token) *std::find(batch.mask.begin(), batch.mask.end(), 1) = 0;
  schedule::BuildOptions options;
  options.num_micro_batches = cell.accumulation;
  const int64_t per_rank = g_sequences / cell.mesh.data_degree();
  options.micro_batch = per_rank / cell.accumulation;
  options.setting.seq_len = kSeqLen;
  options.recompute = cell.recompute;
  options.setting.prefetch = cell.prefetch;
  options.setting.on_device = !device.is_cpu();
  if (cell.update != nullptr) options.setting.optimizer = cell.update;
  const auto [ledger, step, forward] = BuildSteps(cell, spec, options);
  const schedule::Program& program =
      step.programs[static_cast<size_t>(cell.mesh.coordinate(communicator.rank(), layout::Axis::kPp))];
  for (const schedule::Step* each : {&step, &forward}) kOrDie(schedule::Check(*each, ledger).status());

  communicator.SetFaultHook(nullptr);
  device.ResetPeak();
  const int64_t live_before = device.memory().live;
  parallel::ShardedState state(device, ledger, program, options.setting.types, communicator.rank(),
                               *options.setting.optimizer);
  parallel::Groups groups = kOrDie(parallel::Groups::Make(communicator, cell.mesh, step));
  state.Initialize(77);
  kOrDie(state.MaterializeParameters(groups.Of(layout::Axis::kDpShard, schedule::kGatherStream)));
  parallel::Executor executor(spec, state, groups, options);

  std::vector<nn::TokenView> views;
  for (int m = 0; m < cell.accumulation; ++m) {
    views.push_back(
        batch.View(cell.mesh.data_index(communicator.rank()) * per_rank + m * options.micro_batch));
  }
  parallel::UpdateOptions update;
  update.z_loss = 1e-3f;
  update.apply = cell.update != nullptr;
  if (update.apply) {
    const optim::Defaults& defaults = cell.update->defaults;
    update.lr =
        10 * static_cast<float>(defaults.lr);  // so that the parameters' own rounding is small beside it
    update.beta1 = static_cast<float>(defaults.beta1);
    update.beta2 = static_cast<float>(defaults.beta2);
    update.eps = static_cast<float>(defaults.eps);
    update.momentum = static_cast<float>(defaults.momentum);
    update.weight_decay = static_cast<float>(defaults.weight_decay);
    update.decay.assign(ledger.inventory().size(), true);
    update.clip_norm = 0.1;
  }
  communicator.SetFaultHook(std::move(fault));
  const parallel::StepResult result = kOrDie(executor.RunStep(step, views, update));
  const int64_t measured_peak = device.memory().peak - live_before;
  const parallel::EvalSums sums = kOrDie(executor.RunForward(forward, views));
  double eval[2] = {sums.loss, static_cast<double>(sums.loss_tokens)};
  kOrDie(executor.SumOverRanks(layout::kEvalReduction, eval));
  // Refused before anything is sent: a sum that the ledger does not list is one that no mutant leaves out.
  if (cell.mesh.world_size() > cell.mesh.tp) {
    TRAINCTL_CHECK_MSG(!executor.SumOverRanks("of nobody", eval).ok(), "a sum that is in no list was done");
  }
  communicator.SetFaultHook(nullptr);

  double ready = 0;
  kOrDie(world.AllReduceScalars("ready", absl::MakeSpan(&ready, 1)));
  if (ledger.WritesCheckpoint(communicator.rank())) {
    int64_t base = 0;
    std::vector<int64_t> start;
    for (const model::Parameter& parameter : ledger.inventory()) {
      start.push_back(base);
      base += parameter.numel;
    }
    TRAINCTL_CHECK(base <= kMaxNumel);
    for (const layout::HeldBox& held : ledger.BoxesToWrite(communicator.rank())) {
      const model::Parameter& parameter = ledger.inventory()[static_cast<size_t>(held.parameter)];
      const layout::Runs runs(held.box, layout::WholeBox(parameter.shape), held.box);
      for (int64_t r = 0; r < runs.size(); ++r) {
        const layout::Run run = runs[r];
        const int64_t at = start[static_cast<size_t>(held.parameter)] + run.from;
        const auto copy = [&](float* to, const float* from) {
          device.CopyToHost(to + at, from + held.offset + run.to,
                            run.count * static_cast<int64_t>(sizeof(float)));
        };
        copy(outcome->gradients, state.gradient_part(held.bucket));
        copy(outcome->parameters, state.master(held.bucket));
        copy(outcome->state, static_cast<const float*>(state.parts(held.bucket).states[0]));
      }
    }
  }
  const int rank = communicator.rank();
  outcome->loss[rank] = result.loss;
  outcome->grad_norm[rank] = result.grad_norm;
  outcome->eval_loss[rank] = eval[0];
  outcome->eval_tokens[rank] = eval[1];
  outcome->measured_peak[rank] = measured_peak;
  outcome->predicted_peak[rank] = simulate::SimulateMemory(program).peak_bytes;
  kOrDie(world.AllReduceScalars("written", absl::MakeSpan(&ready, 1)));
}

// The first difference beyond tolerance, or an empty string.
std::string Compare(const Outcome& outcome, const Outcome& reference, int world_size, bool tied,
                    double* worst) {
  const auto relative = [](double a, double b) { return std::abs(a - b) / std::max(std::abs(b), 1e-30); };
  for (int rank = 0; rank < world_size; ++rank) {
    if (!(relative(outcome.loss[rank], reference.loss[0]) <= kLossTolerance)) {
      return absl::StrCat("loss ", outcome.loss[rank], " against ", reference.loss[0]);
    }
    if (!(relative(outcome.eval_loss[rank], reference.eval_loss[0]) <= kLossTolerance))
      return "evaluation loss";
    if (outcome.eval_tokens[rank] != reference.eval_tokens[0]) return "evaluation tokens";
    if (!(relative(outcome.grad_norm[rank], reference.grad_norm[0]) <= kGradientTolerance))
      return "gradient norm";
  }
  double all = 0;
  const std::vector<model::Parameter> inventory = model::Inventory(Spec(tied));
  int64_t total = 0;
  for (const model::Parameter& parameter : inventory) total += parameter.numel;
  for (int64_t i = 0; i < total; ++i)
    all += static_cast<double>(reference.gradients[i]) * reference.gradients[i];
  all = std::sqrt(all);
  int64_t base = 0;
  for (const model::Parameter& parameter : inventory) {
    double norm = 0, difference = 0;
    for (int64_t i = base; i < base + parameter.numel; ++i) {
      const double r = reference.gradients[i];
      norm += r * r;
      difference += (outcome.gradients[i] - r) * (outcome.gradients[i] - r);
    }
    base += parameter.numel;
    const double error = std::sqrt(difference) / std::max(std::sqrt(norm), kGradientFloor * all);
    if (worst != nullptr) *worst = std::max(*worst, error);
    if (!(error <= kGradientTolerance))
      return absl::StrCat("gradient of ", parameter.name, " off by ", error);
  }
  return "";
}

double Norm(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

// Likewise of an update: the parameters' way from `initial`, and the state that it left. Steps of Lion, and
// the first of AdamW, follow a gradient's sign; where a gradient is little more than rounding, so is its
// sign.
std::string CompareUpdate(const Outcome& outcome, const Outcome& reference, const Outcome& initial) {
  int64_t total = 0;
  for (const model::Parameter& parameter : model::Inventory(Spec(false))) total += parameter.numel;
  const double noise = kGradientFloor * reference.grad_norm[0] / std::sqrt(static_cast<double>(total));
  std::vector<double> way, way_off, state, state_off;
  for (int64_t i = 0; i < total; ++i) {
    state.push_back(reference.state[i]);
    state_off.push_back(outcome.state[i] - reference.state[i]);
    if (std::abs(reference.gradients[i]) < noise) continue;
    way.push_back(reference.parameters[i] - initial.parameters[i]);
    way_off.push_back(outcome.parameters[i] - reference.parameters[i]);
  }
  if (!(way.size() > static_cast<size_t>(total) / 2)) return "too few parameters have a gradient";
  if (!(Norm(way_off) <= kGradientTolerance * Norm(way)))
    return absl::StrCat("update off by ", Norm(way_off) / Norm(way));
  if (!(Norm(state_off) <= kGradientTolerance * Norm(state)))
    return absl::StrCat("state off by ", Norm(state_off) / Norm(state));
  return "";
}

enum class Which {
  kAll,
  kHalf,   // with every choice in it
  kRaces,  // that gather, compute and reduce at the same time
  kQuick,  // one of each kind
  kPipeline,
  kTensor,
};

bool Takes(Which which, const Cell& cell) {
  switch (which) {
    case Which::kAll:
      return true;
    case Which::kHalf:
      return cell.tied == cell.prefetch;
    case Which::kRaces:
      return cell.tied == cell.prefetch && cell.prefetch && cell.accumulation > 1;
    case Which::kQuick:
      return cell.tied && cell.prefetch && cell.accumulation > 1 &&
             cell.recompute == layout::Recompute::kFull;
    case Which::kPipeline:
      return cell.mesh.pp > 1;
    case Which::kTensor:
      return cell.mesh.tp > 1;
  }
  return false;
}

// Each order on each mesh and stage, as far as the model has a block for each stage; what else a cell has
// takes turns.
std::vector<Cell> PipelineCellsFor(int world) {
  std::vector<layout::Mesh> meshes;
  if (world > 1) meshes.push_back({.pp = world});
  if (world == 4) {
    meshes.push_back({.pp = 2, .dp_replicate = 2});
    meshes.push_back({.pp = 2, .dp_shard = 2});
  }
  std::vector<Cell> cells;
  for (const layout::Mesh& mesh : meshes) {
    for (int stage = 0; stage <= 3; ++stage) {
      if ((stage == 0) != (mesh.dp_shard == 1)) continue;
      for (int kind = 0; kind < schedule::kNumPipelineKinds; ++kind) {
        const auto order = static_cast<schedule::PipelineKind>(kind);
        const int virtual_stages = schedule::LimitsOf(order).min_virtual_stages;
        constexpr int kMicroBatches = 8;
        const bool is_possible =
            schedule::CheckPipelineShape(order, {mesh.pp, kMicroBatches, virtual_stages}).ok() &&
            mesh.pp * virtual_stages <= model::NumBlocks(Spec(false));
        if (!is_possible) continue;
        const size_t turn = cells.size();
        cells.push_back({.mesh = mesh,
                         .stage = stage,
                         .accumulation = kMicroBatches,
                         .recompute = turn % 3 == 1 ? layout::Recompute::kFull : layout::Recompute::kNone,
                         .tied = turn % 2 == 1,
                         .prefetch = turn % 4 < 2,
                         .update = turn % 5 == 0 && turn % 2 == 0 ? &optim::kAdamW : nullptr,
                         .order = order,
                         .virtual_stages = virtual_stages});
      }
    }
  }
  return cells;
}

// Tensor parallelism alone and with each other axis, with and without parts of the sequence; what else a cell
// has takes turns. Of four ranks two have the same head of keys each.
std::vector<Cell> TensorCellsFor(int world) {
  std::vector<layout::Mesh> meshes;
  if (world > 1 && Spec(false).heads % world == 0) meshes.push_back({.tp = world});
  if (world == 4) {
    meshes.push_back({.dp_replicate = 2, .tp = 2});
    meshes.push_back({.dp_shard = 2, .tp = 2});
    meshes.push_back({.pp = 2, .tp = 2});
  }
  std::vector<Cell> cells;
  for (const layout::Mesh& mesh : meshes) {
    for (int stage = 0; stage <= 3; ++stage) {
      if ((stage == 0) != (mesh.dp_shard == 1)) continue;
      for (const schedule::PipelineKind order : {schedule::PipelineKind::k1F1B, schedule::PipelineKind::kZbv,
                                                 schedule::PipelineKind::kDualPipeV}) {
        if (mesh.pp == 1 && order != schedule::PipelineKind::k1F1B) continue;
        for (const bool sequence_parallel : {true, false}) {
          for (const int accumulation : {1, 8}) {
            if (mesh.pp > 1 && accumulation == 1) continue;
            for (const auto recompute : {layout::Recompute::kNone, layout::Recompute::kFull}) {
              const size_t turn = cells.size();
              cells.push_back({.mesh = mesh,
                               .stage = stage,
                               .accumulation = accumulation,
                               .recompute = recompute,
                               .tied = turn % 4 < 2,
                               .prefetch = turn % 8 < 4,
                               .update = turn % 5 == 4 ? &optim::kAdamW : nullptr,
                               .order = order,
                               .virtual_stages = schedule::LimitsOf(order).min_virtual_stages,
                               .sequence_parallel = sequence_parallel});
              if (cells.back().update != nullptr) cells.back().tied = false;
            }
          }
        }
      }
    }
  }
  return cells;
}

std::vector<Cell> CellsFor(int world, Which which) {
  std::vector<layout::Mesh> meshes = {{.dp_replicate = world}};
  if (world > 1) meshes.push_back({.dp_shard = world});
  if (world == 4) meshes.push_back({.dp_replicate = 2, .dp_shard = 2});
  std::vector<Cell> cells;
  for (const layout::Mesh& mesh : meshes) {
    for (int stage = 0; stage <= 3; ++stage) {
      if ((stage == 0) != (mesh.dp_shard == 1) && world > 1) continue;
      for (const optim::Optimizer* optimizer : optim::All()) {
        const Cell cell{
            .mesh = mesh, .stage = stage, .accumulation = 4, .prefetch = true, .update = optimizer};
        if (Takes(which, cell) || which == Which::kAll || which == Which::kHalf || which == Which::kQuick)
          cells.push_back(cell);
      }
      for (int accumulation : {1, 4}) {
        for (auto recompute : {layout::Recompute::kNone, layout::Recompute::kFull}) {
          for (bool tied : {false, true}) {
            for (bool prefetch : {false, true}) {
              const Cell cell{mesh, stage, accumulation, recompute, tied, prefetch};
              if (Takes(which, cell)) cells.push_back(cell);
            }
          }
        }
      }
    }
  }
  for (const Cell& cell : PipelineCellsFor(world)) {
    if (which != Which::kTensor && (which != Which::kRaces || cell.prefetch)) cells.push_back(cell);
  }
  for (const Cell& cell : TensorCellsFor(world)) {
    const bool is_left_out = which == Which::kPipeline && cell.mesh.pp == 1;
    if (!is_left_out && (which != Which::kRaces || cell.prefetch)) cells.push_back(cell);
  }
  return cells;
}

struct Mutant {
  std::string call;  // of a group
  comm::Fault fault = comm::Fault::kSkip;
};

// What tensor parallelism exchanges while an instruction runs: gathers hand over zeros, sums are left out or
// done twice.
void AddExchangesOf(const schedule::Instruction& instruction, const model::Segment& segment,
                    std::vector<Mutant>& mutants) {
  using model::TensorExchange;
  using schedule::Op;
  const Op pass = instruction.op;
  const auto add = [&](const std::string& what, bool is_sum) {
    const std::string call =
        absl::StrCat(schedule::Describe(instruction), "/", what, "/", layout::AxisName(layout::Axis::kTp));
    mutants.push_back({call, comm::Fault::kSkip});
    if (is_sum) mutants.push_back({call, comm::Fault::kDouble});
  };
  for (const model::Operator& op : segment.operators) {
    if (op.kind == model::OpKind::kLinearCrossEntropy) add("loss of row 0", /*is_sum=*/false);
    if (op.kind != model::OpKind::kTensorExchange) continue;
    const TensorExchange way = op.As<model::TensorExchangeAttributes>().way;
    const std::string& name = segment.values[static_cast<size_t>(op.outputs[0])].name;
    // Of a block that is computed again the last sum is dropped with the output.
    const bool is_used =
        pass != Op::kRecompute || &op + 2 < segment.operators.data() + segment.operators.size();
    const bool forward =
        (pass == Op::kForward || pass == Op::kRecompute || pass == Op::kLossAndGradient) && is_used;
    const bool backward = pass == Op::kBackward || pass == Op::kBackwardInput || pass == Op::kLossAndGradient;
    if (forward && way != TensorExchange::kSumGradients) add(name, way != TensorExchange::kGatherRows);
    if (backward && way != TensorExchange::kSumParts)
      add(absl::StrCat("gradient of ", name), way != TensorExchange::kScatterSums);
  }
}

// What a step exchanges besides the ledger's sums: messages, of which zeros come, and the above.
std::vector<Mutant> ExchangeMutantsOf(const Cell& cell) {
  const model::ModelSpec spec = Spec(cell.tied);
  schedule::BuildOptions options;
  options.num_micro_batches = cell.accumulation;
  options.recompute = cell.recompute;
  const Steps steps = BuildSteps(cell, spec, options);
  std::vector<Mutant> mutants;
  for (const schedule::Program& program : steps.step.programs) {
    for (const schedule::Instruction& instruction : program.instructions) {
      // Each exchange of tensor parallelism stands for those of the other micro-batches.
      if (cell.mesh.tp > 1 && instruction.micro_batch > 0) continue;
      if (instruction.op == schedule::Op::kReceive) {
        mutants.push_back(
            {absl::StrCat(schedule::Describe(instruction), "/", layout::AxisName(layout::Axis::kPp))});
      }
      if (instruction.op == schedule::Op::kGather || instruction.op == schedule::Op::kGatherUpdated) {
        const std::string call =
            absl::StrCat("parameters/", instruction.bucket, "/", layout::AxisName(layout::Axis::kDpShard));
        const bool is_new = std::none_of(mutants.begin(), mutants.end(),
                                         [&](const Mutant& mutant) { return mutant.call == call; });
        if (is_new) mutants.push_back({call});
      }
      if (!schedule::RunsBlock(instruction.op) || cell.mesh.tp == 1) continue;
      AddExchangesOf(instruction,
                     model::BuildSegment(spec, steps.ledger.inventory(), instruction.block,
                                         options.segment(steps.ledger)),
                     mutants);
    }
  }
  return mutants;
}

bool HasMutants(const Cell& cell) {
  if (cell.update != nullptr) return false;
  if (cell.mesh.tp > 1) {
    const bool is_chosen = cell.mesh.pp > 1
                               ? cell.order == schedule::PipelineKind::k1F1B && cell.sequence_parallel
                               : cell.accumulation == 1 && cell.mesh.dp_replicate == 1;
    return is_chosen && cell.recompute == layout::Recompute::kFull && (cell.stage == 0 || cell.stage == 3);
  }
  if (cell.mesh.pp > 1) {
    const bool is_chosen =
        cell.order == schedule::PipelineKind::k1F1B || cell.order == schedule::PipelineKind::kDualPipeV;
    return is_chosen && (cell.stage == 0 || cell.stage == 3);
  }
  // The plainest and the fullest cell of each mesh and stage.
  const bool plainest =
      cell.accumulation == 1 && cell.recompute == layout::Recompute::kNone && !cell.tied && !cell.prefetch;
  const bool fullest =
      cell.accumulation == 4 && cell.recompute == layout::Recompute::kFull && cell.tied && cell.prefetch;
  return plainest || fullest;
}

void RunMutants(const device::Device& device, const Cell& cell, comm::Communicator& communicator,
                comm::Group& world, int world_size) {
  const layout::Ledger ledger =
      BuildSteps(cell, Spec(cell.tied), {.num_micro_batches = cell.accumulation}).ledger;
  // The gradient of what is masked is zero, whether it comes or not.
  const int masked_parts = cell.mesh.pp > 1 || cell.mesh.tp > 1 ? 1 : world_size;
  const Outcome& reference = ReferenceOf(cell, masked_parts);
  const auto judge = [&](const std::string& name) {
    if (communicator.rank() != 0) return;
    ++g_shared->mutants;
    if (!Compare(g_shared->current, reference, world_size, cell.tied, nullptr).empty()) return;
    ++g_shared->survivors;
    std::printf("SURVIVED %s: %s\n", Name(cell).c_str(), name.c_str());
  };
  for (const layout::Reduction& reduction : ledger.Reductions()) {
    for (comm::Fault fault : {comm::Fault::kSkip, comm::Fault::kDouble}) {
      const auto hook = [&reduction, fault](absl::string_view name) {
        return name == reduction.name ? fault : comm::Fault::kNone;
      };
      RunCell(device, cell, communicator, world, masked_parts, hook, false, &g_shared->current);
      judge(absl::StrCat(fault == comm::Fault::kSkip ? "without " : "twice ", reduction.name));
    }
  }
  for (const Mutant& mutant : ExchangeMutantsOf(cell)) {
    const auto hook = [&mutant](absl::string_view call) {
      return call == mutant.call ? mutant.fault : comm::Fault::kNone;
    };
    RunCell(device, cell, communicator, world, masked_parts, hook, false, &g_shared->current);
    judge(absl::StrCat(mutant.fault == comm::Fault::kSkip ? "without " : "twice ", mutant.call));
  }
  RunCell(device, cell, communicator, world, masked_parts, nullptr, true, &g_shared->current);
  judge("one loss token dropped");
}

// The sum of one worker on the CPU is what every cell is held against, whatever the cell runs on.
void RunReferences() {
  const device::Device& cpu = device::Device::Cpu();
  auto communicator = kOrDie(comm::Communicator::Create(cpu, nullptr, 0, 1, absl::Seconds(60)));
  comm::Group world = communicator->MakeHostGroup({0}, "world");
  for (int parts = 1; parts <= kMaxWorld; ++parts) {
    for (bool tied : {false, true}) {
      Cell cell;
      cell.tied = tied;
      RunCell(cpu, cell, *communicator, world, parts, nullptr, false, &g_shared->reference[parts][tied]);
    }
    for (size_t k = 0; k < optim::All().size(); ++k) {
      const Cell cell{.update = optim::All()[k]};
      RunCell(cpu, cell, *communicator, world, parts, nullptr, false, &g_shared->updated[parts][k]);
    }
  }
}

void RunRank(int rank, int world_size, const std::string& plugin, Which which,
             const std::string& store_path) {
  at::set_num_threads(1);
  device::InstallCountingAllocator();
  if (world_size == 1) RunReferences();
  std::unique_ptr<const device::Device> opened;
  if (!plugin.empty()) {
    opened = kOrDie(device::Device::Open(plugin, rank, /*deterministic=*/true));
    opened->UseNewStream();
  }
  const device::Device& device = opened ? *opened : device::Device::Cpu();
  auto store = c10::make_intrusive<c10d::FileStore>(store_path, world_size);
  auto communicator = kOrDie(comm::Communicator::Create(device, store, rank, world_size, absl::Seconds(60)));
  std::vector<int> everyone;
  for (int r = 0; r < world_size; ++r) everyone.push_back(r);
  comm::Group world = communicator->MakeHostGroup(everyone, "world");

  if (which == Which::kAll && !device.is_cpu()) which = Which::kHalf;
  std::vector<Cell> cells = CellsFor(world_size, which);
  // Pipelines run on CPUs alone.
  if (!device.is_cpu()) std::erase_if(cells, [](const Cell& cell) { return cell.mesh.pp > 1; });
  for (const Cell& cell : cells) {
    RunCell(device, cell, *communicator, world, world_size, nullptr, false, &g_shared->current);
    if (rank != 0) continue;
    ++g_shared->cells;
    const Outcome& reference = ReferenceOf(cell, world_size);
    std::string wrong =
        Compare(g_shared->current, reference, world_size, cell.tied, &g_shared->worst_gradient);
    if (wrong.empty() && cell.update != nullptr)
      wrong = CompareUpdate(g_shared->current, reference, g_shared->reference[world_size][false]);
    for (int r = 0; r < world_size; ++r) {
      const int64_t predicted = g_shared->current.predicted_peak[r];
      const int64_t measured = g_shared->current.measured_peak[r];
      const int64_t off = std::abs(predicted - measured);
      g_shared->worst_memory = std::max(g_shared->worst_memory, static_cast<double>(off));
      // On a device the library's own temporaries come on top of what is planned.
      if (!wrong.empty() || !device.is_cpu() || off <= kMemorySlackBytes) continue;
      wrong = absl::StrCat("peak memory of rank ", r, " predicted ", predicted, ", measured ", measured);
    }
    if (wrong.empty()) continue;
    ++g_shared->failures;
    std::printf("FAILED %s: %s\n", Name(cell).c_str(), wrong.c_str());
  }
  for (const Cell& cell : cells) {
    // What tensor parallelism exchanges has the same names on every device.
    const bool is_known = !device.is_cpu() && cell.mesh.tp > 1;
    if (which != Which::kRaces && world_size > 1 && HasMutants(cell) && !is_known)
      RunMutants(device, cell, *communicator, world, world_size);
  }
  std::fflush(stdout);
}

int RunWorld(int world_size, const std::string& plugin, Which which) {
  char folder[] = "/tmp/trainctl-equivalence-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  const std::string store_path = absl::StrCat(folder, "/store");
  std::vector<pid_t> children;
  for (int rank = 0; rank < world_size; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      RunRank(rank, world_size, plugin, which, store_path);
      std::_Exit(0);
    }
    children.push_back(child);
  }
  int bad = 0;
  for (size_t left = children.size(); left > 0; --left) {
    int status = 0;
    const pid_t ended = wait(&status);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    if (bad++ == 0) {
      std::printf("FAILED a process of world size %d ended with status %d\n", world_size, status);
      for (pid_t child : children) {
        if (child != ended) kill(child, SIGKILL);
      }
    }
  }
  unlink(store_path.c_str());
  rmdir(folder);
  return bad;
}

int Main(const std::string& plugin, int largest_world, Which which) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  g_shared = new (memory) Shared;
  if (!plugin.empty() && largest_world <= 2) g_sequences = kFewSequences;
  int bad = 0;
  for (int world = 1; world <= largest_world; ++world) {
    const int before = g_shared->cells;
    bad += RunWorld(world, plugin, which);
    std::printf("%d worker(s): %d cells\n", world, g_shared->cells - before);
    std::fflush(stdout);
  }
  std::printf("%d cells, %d failed; worst gradient error %.1e, worst memory error %.0f bytes\n",
              g_shared->cells.load(), g_shared->failures.load(), g_shared->worst_gradient,
              g_shared->worst_memory);
  std::printf("%d mutants, %d survived\n", g_shared->mutants.load(), g_shared->survivors.load());
  return bad + g_shared->failures + g_shared->survivors > 0 ? 1 : 0;
}

}  // namespace
}  // namespace trainctl

// Without arguments on the CPU; otherwise on the device of a plugin, with at most so many workers.
int main(int argc, char** argv) {
  const std::string plugin = argc > 1 ? argv[1] : "";
  const std::string which = argc > 3 ? argv[3] : "all";
  const std::map<std::string, trainctl::Which> kinds = {{"all", trainctl::Which::kAll},
                                                        {"races", trainctl::Which::kRaces},
                                                        {"quick", trainctl::Which::kQuick},
                                                        {"pipeline", trainctl::Which::kPipeline},
                                                        {"tensor", trainctl::Which::kTensor}};
  const int largest_world = argc > 2 ? std::atoi(argv[2]) : trainctl::kMaxWorld;
  if (largest_world < 1 || largest_world > trainctl::kMaxWorld || kinds.count(which) == 0) {
    std::fprintf(stderr, "usage: equivalence [PLUGIN [LARGEST_WORLD [races|quick|pipeline|tensor]]]\n");
    return 2;
  }
  return trainctl::Main(plugin, largest_world, kinds.at(which));
}
