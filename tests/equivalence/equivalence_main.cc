// The equivalence matrix: real processes, every layout against one process, and the mutants that
// prove that the matrix can fail. Prints one line per world size and a closing count.
//
//   equivalence [--only TEXT] [PLUGIN [LARGEST_WORLD [races|quick|pipeline|tensor|four]]]
//   equivalence --pairwise [--workers N]
//
// A few cells also update, each with every optimizer: the parameters after it are those of one process.
//
// `--only` selects the cells whose names contain TEXT, for example "pp=2", and their mutants; it is an error
// if there are none. `races` selects only the cells in which streams interact most, without mutants. `quick`
// selects, for each mesh and stage, the cell that combines everything. `pipeline` and `tensor` select the
// cells with such an axis. `four` selects a few of those on four workers, whose groups cross.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "comm/communicator.h"
#include "device/counting_allocator.h"
#include "model/architecture.h"
#include "model/parameters.h"
#include "optim/optimizer.h"
#include "schedule/layout_step.h"
#include "schedule/pipeline.h"
#include "tests/equivalence/pairwise.h"
#include "tests/equivalence/small_model.h"
#include "verify/exchanges.h"
#include "verify/ranks.h"
#include "verify/run_layout.h"

namespace trainctl {
namespace {

constexpr int kMaxWorld = 4;
// Divides by 1, 2, 3, 4 workers times 4 micro-batches, or by 1 and 2: attention of a test device has a
// hundred launches a sequence.
int64_t g_sequences = 48;
std::string g_only;  // part of the names of the cells to run
constexpr int64_t kFewSequences = 16;
constexpr int64_t kSeqLen = 8;
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
  bool some_layers = false;       // of each stage are recomputed, not all
};

std::string Name(const Cell& cell) {
  return absl::StrCat(cell.mesh.ToString(), " zero_stage=", cell.stage, " accumulation=", cell.accumulation,
                      cell.recompute == layout::Recompute::kNone
                          ? ""
                          : absl::StrCat(" recompute=", layout::RecomputeName(cell.recompute),
                                         cell.some_layers ? " of some layers" : ""),
                      cell.tied ? " tied" : "", cell.prefetch ? " prefetch" : "",
                      cell.update == nullptr ? "" : absl::StrCat(" update=", cell.update->name),
                      cell.sequence_parallel ? "" : " sequence_parallel=false",
                      cell.mesh.pp == 1 ? ""
                                        : absl::StrCat(" order=", schedule::PipelineKindName(cell.order),
                                                       " virtual_stages=", cell.virtual_stages));
}

model::Architecture Spec(bool tied) { return equivalence::SmallModel(/*layers=*/3, tied); }

// What all processes share.
struct Shared {
  std::atomic<int> cells{0};
  std::atomic<int> failures{0};
  std::atomic<int> mutants{0};
  std::atomic<int> survivors{0};
  double worst_gradient = 0;
  double worst_memory = 0;
};

Shared* g_shared = nullptr;
verify::Outcome* g_current = nullptr;
std::map<std::string, std::unique_ptr<verify::Outcome>> g_references;  // all made before any fork

// Masked parts, tying and the optimizer decide what one process yields.
std::string ReferenceName(int masked_parts, bool tied, const optim::Optimizer* update) {
  return absl::StrCat(masked_parts, tied ? " tied" : "", update == nullptr ? "" : update->name);
}
verify::Outcome& ReferenceOf(const Cell& cell, int masked_parts) {
  return *g_references.at(ReferenceName(masked_parts, cell.tied, cell.update));
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

verify::Trial TrialOf(const Cell& cell, bool on_device) {
  verify::Trial trial{.spec = Spec(cell.tied)};
  trial.layout.mesh = cell.mesh;
  trial.layout.sequence_parallel = cell.sequence_parallel;
  trial.layout.zero_stage = cell.stage;
  trial.layout.num_micro_batches = cell.accumulation;
  trial.layout.micro_batch = g_sequences / cell.mesh.data_degree() / cell.accumulation;
  trial.layout.recompute = cell.recompute;
  if (cell.mesh.pp > 1) {
    // As many blocks in each stage as can be, which may leave the ends without a layer.
    const int64_t num_stages = cell.mesh.pp * cell.virtual_stages;
    std::vector<int64_t> layers;
    for (int64_t stage = 0; stage < num_stages; ++stage) {
      const auto begin = [&](int64_t s) { return model::NumBlocks(trial.spec) * s / num_stages; };
      const int64_t ends = (stage == 0 ? 1 : 0) + (stage + 1 == num_stages ? 1 : 0);
      layers.push_back(begin(stage + 1) - begin(stage) - ends);
    }
    trial.layout.pipeline = {.order = std::string(schedule::PipelineKindName(cell.order)),
                             .virtual_stages = cell.virtual_stages,
                             .stage_layers = layers};
  }
  if (cell.some_layers) trial.layout.recomputed_layers = equivalence::SomeLayers(trial.spec, trial.layout);
  trial.setting.seq_len = kSeqLen;
  trial.setting.prefetch = cell.prefetch;
  trial.setting.on_device = on_device;
  if (cell.update != nullptr) {
    trial.setting.optimizer = cell.update;
    trial.update = verify::UpdateOf(*cell.update, model::Inventory(trial.spec).size());
  }
  trial.update.z_loss = 1e-3f;
  trial.update.apply = cell.update != nullptr;
  return trial;
}

schedule::LayoutStep StepOf(const Cell& cell) {
  const verify::Trial trial = TrialOf(cell, /*on_device=*/false);
  return kOrDie(
      schedule::BuildLayoutStep(trial.spec, model::Inventory(trial.spec), trial.layout, trial.setting));
}

// Runs one step of a cell on this rank and leaves the gathered outcome in shared memory.
void RunCell(const device::Device& device, const Cell& cell, comm::Communicator& communicator,
             comm::Group& world, int masked_parts, comm::FaultHook fault, bool drop_token,
             verify::Outcome& outcome) {
  verify::Batch batch({g_sequences, kSeqLen, Spec(cell.tied).vocab, masked_parts}, /*seed=*/1);
  if (drop_token) batch.DropALossToken();
  kOrDie(verify::RunTrial(TrialOf(cell, !device.is_cpu()), device, communicator, world, {&batch, 1},
                          std::move(fault), outcome));
}

enum class Which {
  kAll,
  kHalf,   // with every choice in it
  kRaces,  // that gather, compute and reduce at the same time
  kQuick,  // one of each kind
  kPipeline,
  kTensor,
  kFour,  // workers, of which two share each axis
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
    case Which::kFour:
      return cell.mesh.world_size() == 4 && std::max(cell.mesh.pp, cell.mesh.tp) == 2 &&
             cell.order == schedule::PipelineKind::k1F1B && cell.accumulation > 1 && cell.sequence_parallel &&
             cell.recompute == layout::Recompute::kFull;
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
        const layout::Recompute recompute = layout::kRecomputes[turn / 2 % std::size(layout::kRecomputes)];
        cells.push_back({.mesh = mesh,
                         .stage = stage,
                         .accumulation = kMicroBatches,
                         .recompute = recompute,
                         .tied = turn % 2 == 1,
                         .prefetch = turn % 3 < 2,
                         .update = turn % 5 == 0 && turn % 2 == 0 ? &optim::kAdamW : nullptr,
                         .order = order,
                         .virtual_stages = virtual_stages,
                         .some_layers = recompute == layout::Recompute::kFull && turn % 2 == 1});
      }
    }
  }
  return cells;
}

// Tensor parallelism alone and with each other axis, with and without parts of the sequence; what else a cell
// has takes turns. Of four ranks two have the same head of keys each.
std::vector<Cell> TensorCellsFor(int world) {
  std::vector<layout::Mesh> meshes;
  if (world > 1 && AttentionOf(Spec(false)).heads % world == 0) meshes.push_back({.tp = world});
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
            for (const bool all_again : {false, true}) {
              const size_t turn = cells.size();
              const auto recompute = all_again       ? layout::Recompute::kFull
                                     : turn % 4 == 0 ? layout::Recompute::kSelective
                                                     : layout::Recompute::kNone;
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
        if (which == Which::kAll || which == Which::kHalf || which == Which::kQuick) cells.push_back(cell);
      }
      for (int accumulation : {1, 4}) {
        for (auto recompute : {layout::Recompute::kNone, layout::Recompute::kFull}) {
          for (bool tied : {false, true}) {
            for (bool prefetch : {false, true}) {
              Cell cell{mesh, stage, accumulation, recompute, tied, prefetch};
              if (tied && prefetch && recompute == layout::Recompute::kNone)
                cell.recompute =
                    accumulation == 1 ? layout::Recompute::kSelective : layout::Recompute::kAttention;
              cell.some_layers = recompute == layout::Recompute::kFull && tied != prefetch;
              // Each choice with each other is in the cover of pairs; all of them together on two workers at
              // most.
              const bool is_thinned = which == Which::kAll && world > 2;
              if (Takes(is_thinned ? Which::kHalf : which, cell)) cells.push_back(cell);
            }
          }
        }
      }
    }
  }
  for (const Cell& cell : PipelineCellsFor(world)) {
    if (which == Which::kFour ? Takes(which, cell)
                              : which != Which::kTensor && (which != Which::kRaces || cell.prefetch))
      cells.push_back(cell);
  }
  for (const Cell& cell : TensorCellsFor(world)) {
    const bool is_left_out =
        (which == Which::kPipeline && cell.mesh.pp == 1) || (which == Which::kFour && !Takes(which, cell));
    if (!is_left_out && (which != Which::kRaces || cell.prefetch)) cells.push_back(cell);
  }
  return cells;
}

bool HasMutants(const Cell& cell) {
  if (cell.update != nullptr) return false;
  if (cell.mesh.tp > 1) {
    const bool is_chosen = cell.mesh.pp > 1
                               ? cell.order == schedule::PipelineKind::k1F1B && cell.sequence_parallel
                               : cell.accumulation == 1 && cell.mesh.dp_replicate == 1;
    // What the backward forms again is exchanged alike on any mesh.
    const bool forms_again = cell.recompute == layout::Recompute::kSelective && cell.mesh.world_size() == 2;
    return is_chosen && (cell.recompute == layout::Recompute::kFull || forms_again) &&
           (cell.stage == 0 || cell.stage == 3);
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
  const schedule::LayoutStep planned = StepOf(cell);
  const std::vector<model::Parameter>& inventory = planned.ledger.inventory();
  // The gradient of what is masked is zero, whether it comes or not.
  const int masked_parts = cell.mesh.pp > 1 || cell.mesh.tp > 1 ? 1 : world_size;
  const verify::Outcome& reference = ReferenceOf(cell, masked_parts);
  const auto judge = [&](const std::string& name) {
    if (communicator.rank() != 0) return;
    ++g_shared->mutants;
    if (!verify::Compare(*g_current, reference, world_size, inventory).wrong.empty()) return;
    ++g_shared->survivors;
    std::printf("SURVIVED %s: %s\n", Name(cell).c_str(), name.c_str());
  };
  for (const verify::Exchange& exchange : verify::ExchangesOf(planned)) {
    // What tensor parallelism exchanges in a micro-batch stands for the others.
    if (cell.mesh.tp > 1 && exchange.micro_batch > 0) continue;
    // Of long pipelines the first two and the last do; of two workers each has its turn.
    const bool is_last = exchange.micro_batch + 1 == cell.accumulation;
    if (world_size > 2 && exchange.micro_batch > 1 && !is_last) continue;
    // Beside replicas or shards two stages hand over what they do alone.
    if (exchange.is_message && cell.mesh.pp == 2 && cell.mesh.data_degree() > 1) continue;
    for (comm::Fault fault : {comm::Fault::kSkip, comm::Fault::kDouble, comm::Fault::kStale}) {
      if (fault == comm::Fault::kDouble && !exchange.is_sum) continue;
      // Before the first micro-batch's message there is none.
      if (fault == comm::Fault::kStale && !(exchange.is_message && exchange.micro_batch > 0)) continue;
      const auto hook = [&exchange, fault](absl::string_view call) {
        return call == exchange.call ? fault : comm::Fault::kNone;
      };
      RunCell(device, cell, communicator, world, masked_parts, hook, false, *g_current);
      const char* const what = fault == comm::Fault::kSkip     ? "without "
                               : fault == comm::Fault::kDouble ? "twice "
                                                               : "the one before in the place of ";
      judge(absl::StrCat(what, exchange.call));
    }
  }
  RunCell(device, cell, communicator, world, masked_parts, nullptr, true, *g_current);
  judge("one loss token dropped");
}

// The sum of one worker on the CPU is what every cell is held against, whatever the cell runs on.
void RunReferences() {
  const device::Device& cpu = device::Device::Cpu();
  auto communicator = kOrDie(comm::Communicator::Create(cpu, nullptr, 0, 1, absl::Seconds(60)));
  comm::Group world = communicator->MakeHostGroup({0}, "world");
  for (int parts = 1; parts <= kMaxWorld; ++parts) {
    for (bool tied : {false, true}) {
      const Cell cell{.tied = tied};
      RunCell(cpu, cell, *communicator, world, parts, nullptr, false, ReferenceOf(cell, parts));
    }
    for (const optim::Optimizer* optimizer : optim::All()) {
      const Cell cell{.update = optimizer};
      RunCell(cpu, cell, *communicator, world, parts, nullptr, false, ReferenceOf(cell, parts));
    }
  }
}

void RunRank(int rank, int world_size, const std::string& plugin, Which which,
             const std::string& store_path) {
  device::InstallCountingAllocator();
  if (world_size == 1) RunReferences();
  std::unique_ptr<const device::Device> opened;
  if (!plugin.empty()) {
    opened = kOrDie(device::Device::Open(plugin, {.ordinal = rank, .deterministic = true}));
    opened->UseNewStream();
  }
  const device::Device& device = opened ? *opened : device::Device::Cpu();
  if (which == Which::kAll && !device.is_cpu()) which = Which::kHalf;
  std::vector<Cell> cells = CellsFor(world_size, which);
  // A peer waits for a message that nobody here waits for: late streams must be those that compute.
  const char* const late = std::getenv("TRAINCTL_TEST_DEVICE_LATE");
  if (late != nullptr && std::string(late) == "communication")
    std::erase_if(cells, [](const Cell& cell) { return cell.mesh.pp > 1; });
  std::erase_if(cells, [](const Cell& cell) { return !absl::StrContains(Name(cell), g_only); });
  // If no cells are left, return before connecting. Otherwise this rank would exit while others still connect
  // to it.
  if (cells.empty()) return;

  auto store = c10::make_intrusive<c10d::FileStore>(store_path, world_size);
  auto communicator = kOrDie(comm::Communicator::Create(device, store, rank, world_size, absl::Seconds(60)));
  std::vector<int> everyone;
  for (int r = 0; r < world_size; ++r) everyone.push_back(r);
  comm::Group world = communicator->MakeHostGroup(everyone, "world");

  for (const Cell& cell : cells) {
    RunCell(device, cell, *communicator, world, world_size, nullptr, false, *g_current);
    if (rank != 0) continue;
    if (!g_only.empty()) std::printf("%s\n", Name(cell).c_str());
    ++g_shared->cells;
    const verify::Outcome& reference = ReferenceOf(cell, world_size);
    const std::vector<model::Parameter> inventory = model::Inventory(Spec(cell.tied));
    const verify::Comparison comparison = verify::Compare(*g_current, reference, world_size, inventory);
    std::string wrong = comparison.wrong;
    g_shared->worst_gradient = std::max(g_shared->worst_gradient, comparison.WorstGradient());
    if (wrong.empty() && cell.update != nullptr)
      wrong = verify::CompareUpdate(*g_current, reference, ReferenceOf(Cell{}, world_size), inventory);
    for (int r = 0; r < world_size; ++r) {
      const int64_t predicted = g_current->rank(r).predicted_peak;
      const int64_t measured = g_current->rank(r).measured_peak;
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
    // What parts of the model exchange has the same names on every device, and stages 1 and 2 exchange what 0
    // and 3 do. Along one axis three and four
    // workers exchange nothing that two do not, but for a stage between others.
    const int longest = std::max({cell.mesh.pp, cell.mesh.dp_replicate, cell.mesh.dp_shard, cell.mesh.tp});
    const bool is_one_axis = world_size > 2 && longest == world_size && cell.mesh.pp == 1;
    const bool is_between = cell.stage == 1 || cell.stage == 2;
    const bool is_known =
        (!device.is_cpu() && (cell.mesh.tp * cell.mesh.pp > 1 || is_between)) || is_one_axis;
    if (which != Which::kRaces && world_size > 1 && HasMutants(cell) && !is_known)
      RunMutants(device, cell, *communicator, world, world_size);
  }
  std::fflush(stdout);
}

int RunWorld(int world_size, const std::string& plugin, Which which) {
  char folder[] = "/tmp/trainctl-equivalence-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  const std::string store_path = absl::StrCat(folder, "/store");
  const absl::Status status = verify::RunRanks(world_size, [&](int rank) {
    RunRank(rank, world_size, plugin, which, store_path);
    return absl::OkStatus();
  });
  if (!status.ok())
    std::printf("FAILED with %d workers: %s\n", world_size, std::string(status.message()).c_str());
  unlink(store_path.c_str());
  rmdir(folder);
  return status.ok() ? 0 : 1;
}

int Main(const std::string& plugin, int largest_world, Which which) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  g_shared = new (memory) Shared;
  int64_t numel = 0;
  for (const model::Parameter& parameter : model::Inventory(Spec(false))) numel += parameter.numel;
  verify::Outcome current(kMaxWorld, numel);
  g_current = &current;
  for (int parts = 1; parts <= kMaxWorld; ++parts) {
    for (bool tied : {false, true})
      g_references[ReferenceName(parts, tied, nullptr)] = std::make_unique<verify::Outcome>(1, numel);
    for (const optim::Optimizer* optimizer : optim::All())
      g_references[ReferenceName(parts, false, optimizer)] = std::make_unique<verify::Outcome>(1, numel);
  }
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
  if (g_shared->cells == 0) std::fprintf(stderr, "no cell's name contains '%s'\n", g_only.c_str());
  return bad + g_shared->failures + g_shared->survivors > 0 || g_shared->cells == 0 ? 1 : 0;
}

}  // namespace
}  // namespace trainctl

// Without arguments on the CPU; otherwise on the device of a plugin, with at most so many workers.
int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--pairwise") {
    const bool has_workers = argc == 4 && std::string(argv[2]) == "--workers";
    return trainctl::equivalence::RunPairwise(has_workers ? std::atoi(argv[3]) : 8);
  }
  if (argc > 2 && std::string(argv[1]) == "--only") {
    trainctl::g_only = argv[2];
    argc -= 2;
    argv += 2;
  }
  const std::string plugin = argc > 1 ? argv[1] : "";
  const std::string which = argc > 3 ? argv[3] : "all";
  const std::map<std::string, trainctl::Which> kinds = {
      {"all", trainctl::Which::kAll},       {"races", trainctl::Which::kRaces},
      {"quick", trainctl::Which::kQuick},   {"pipeline", trainctl::Which::kPipeline},
      {"tensor", trainctl::Which::kTensor}, {"four", trainctl::Which::kFour}};
  const int largest_world = argc > 2 ? std::atoi(argv[2]) : trainctl::kMaxWorld;
  if (largest_world < 1 || largest_world > trainctl::kMaxWorld || kinds.count(which) == 0) {
    std::fprintf(
        stderr,
        "usage: equivalence [--only TEXT] [PLUGIN [LARGEST_WORLD [races|quick|pipeline|tensor|four]]]\n");
    return 2;
  }
  return trainctl::Main(plugin, largest_world, kinds.at(which));
}
