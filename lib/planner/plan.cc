#include "planner/plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/units.h"
#include "cluster/catalogue.h"
#include "planner/search.h"
#include "planner/utilization.h"

namespace trainctl::planner {
namespace {

// Of the memory that a machine has left, what may be filled with tensors: the rest is for the page
// cache (datasets are memory-mapped) and for what other programs ask for later.
constexpr double kMemoryShare = 0.85;
// Of a device's memory: the rest is for its context, libraries' workspaces and what the allocator keeps in
// pieces.
constexpr double kDeviceMemoryShare = 0.9;
// Program, libraries and buffers of one worker outside its tensors.
constexpr int64_t kWorkerOverheadBytes = int64_t{512} << 20;
constexpr int64_t kMaxWorkers = 1 << 20;

absl::Status CheckDegree(const char* name, const std::optional<int64_t>& degree) {
  if (!degree.has_value() || *degree == 1) return absl::OkStatus();
  return UsageError(absl::StrCat("parallel.", name, " = ", *degree,
                                 " is not available in this version; leave it at \"auto\" or 1"));
}

absl::Status CheckDegrees(const recipe::Recipe& recipe, int64_t world_size) {
  const recipe::ParallelConfig& parallel = recipe.parallel;
  TRAINCTL_RETURN_IF_ERROR(CheckDegree("tp", parallel.tp));
  TRAINCTL_RETURN_IF_ERROR(CheckDegree("cp", parallel.cp));
  TRAINCTL_RETURN_IF_ERROR(CheckDegree("pp", parallel.pp));
  TRAINCTL_RETURN_IF_ERROR(CheckDegree("ep", parallel.ep));
  const auto text = [](const std::optional<int64_t>& degree) {
    return degree.has_value() ? absl::StrCat(*degree) : std::string("auto");
  };
  const int64_t given = parallel.dp_replicate.value_or(1) * parallel.dp_shard.value_or(1);
  const bool complete = parallel.dp_replicate.has_value() && parallel.dp_shard.has_value();
  if (given < 1 || world_size % given != 0 || (complete && given != world_size)) {
    return UsageError(absl::StrCat("dp_replicate ", text(parallel.dp_replicate), " x dp_shard ",
                                   text(parallel.dp_shard), " does not make ", world_size,
                                   " workers (cluster.nodes ", recipe.cluster.nodes,
                                   " x cluster.devices_per_node ", recipe.cluster.devices_per_node, ")"));
  }
  return absl::OkStatus();
}

absl::Status CheckBatch(const recipe::TrainConfig& train, int64_t world_size) {
  if (train.batch_sequences < 1 || train.batch_sequences % world_size != 0) {
    const int64_t below = train.batch_sequences / world_size * world_size;
    return UsageError(absl::StrCat("train.batch_sequences = ", train.batch_sequences,
                                   " does not divide over ", world_size, " workers; the nearest are ",
                                   below > 0 ? absl::StrCat(below, " and ") : "", below + world_size));
  }
  const int64_t share = train.batch_sequences / world_size;
  if (train.micro_batch.has_value() && (*train.micro_batch < 1 || share % *train.micro_batch != 0)) {
    return UsageError(absl::StrCat("train.micro_batch = ", *train.micro_batch, " does not divide the ", share,
                                   " sequences of each worker (train.batch_sequences ", train.batch_sequences,
                                   " over ", world_size, " workers)"));
  }
  return absl::OkStatus();
}

// Byte counts must stay far below 2^63, and a schedule must fit in memory.
absl::Status CheckSize(const recipe::Recipe& recipe, int64_t world_size) {
  const model::ModelSpec& spec = recipe.model.spec;
  const int64_t sequences = recipe.train.batch_sequences / world_size;
  const double share = static_cast<double>(sequences);
  const double columns = static_cast<double>(8 * spec.hidden + 4 * spec.heads * spec.head_dim + 4 * spec.ffn);
  const double layers = static_cast<double>(spec.layers);
  const double bytes = share * static_cast<double>(recipe.data.seq_len) * 8 *
                       (columns * layers + static_cast<double>(spec.vocab));
  if (bytes > 1e18) {
    return UsageError(absl::StrCat("train.batch_sequences ", recipe.train.batch_sequences, " x data.seq_len ",
                                   recipe.data.seq_len, " is more than one step of this model can hold"));
  }
  if (!recipe.train.micro_batch.has_value()) return absl::OkStatus();
  const int64_t most = kMaxBlockRuns / model::NumBlocks(spec);
  const int64_t accumulation = recipe.train.batch_sequences / world_size / *recipe.train.micro_batch;
  if (accumulation > most) {
    return UsageError(absl::StrCat("train.micro_batch = ", *recipe.train.micro_batch, " makes ", accumulation,
                                   " micro-batches a step, more than the ", most,
                                   " that this version schedules; raise it"));
  }
  return absl::OkStatus();
}

// The trainer has a plugin for NVIDIA's devices alone.
absl::Status CheckDevice(const recipe::ClusterConfig& cluster) {
  if (cluster.device == recipe::kCudaDevice) return absl::OkStatus();
  TRAINCTL_ASSIGN_OR_RETURN(const cluster::DeviceMatch match, cluster::FindDevice(cluster.device));
  if (absl::string_view(match.device->vendor) == "nvidia") return absl::OkStatus();
  return UsageError(absl::StrCat("cluster.device = \"", cluster.device,
                                 "\": this version trains on NVIDIA's devices "
                                 "and on CPUs; `trainctl plan` plans for others too"));
}

// A recipe that came from another machine may still name that one's device.
void NoteAnotherDevice(const recipe::ClusterConfig& cluster, const cluster::Host& host,
                       std::vector<std::string>& notes) {
  const auto named = cluster::FindDevice(cluster.device);
  const auto here = cluster::FindDevice(host.accelerator);
  if (!named.ok() || !here.ok() || named->device == here->device) return;
  notes.push_back(absl::StrCat("cluster.device is \"", cluster.device, "\" and this machine has ",
                               host.accelerator, ": workers compute on what is here"));
}

// What the catalogue may know it by.
std::string NameOfDevice(const recipe::ClusterConfig& cluster, const cluster::Host& host) {
  return cluster.device == recipe::kCudaDevice ? host.accelerator : cluster.device;
}

absl::StatusOr<DType> ResolveDevicePrecision(const std::string& precision, std::vector<std::string>& notes) {
  if (precision == "fp32") {
    notes.push_back(
        "train.precision = fp32: attention on a GPU goes by tiles of scores, which costs "
        "memory and time; bf16 has a fused one");
    return DType::kF32;
  }
  if (precision == "auto") notes.push_back("train.precision = auto: bf16");
  if (precision == "bf16" || precision == "auto") return DType::kBF16;
  return UsageError(absl::StrCat("train.precision = \"", precision,
                                 "\" is not available in this version; use fp32, bf16 or auto"));
}

absl::StatusOr<DType> ResolvePrecision(const std::string& precision, const cluster::Host& host,
                                       std::vector<std::string>& notes) {
  if (precision == "fp32") return DType::kF32;
  if (precision == "bf16") {
    if (!host.native_bf16) {
      notes.push_back("this CPU has no bf16 instructions: bf16 will be about five times slower than fp32");
    }
    return DType::kBF16;
  }
  if (precision == "auto") {
    notes.push_back(
        host.native_bf16
            ? "train.precision = auto: bf16 (the CPU has bf16 instructions)"
            : "train.precision = auto: fp32 (the CPU has no bf16 instructions; bf16 would be about "
              "five times slower)");
    return host.native_bf16 ? DType::kBF16 : DType::kF32;
  }
  return UsageError(absl::StrCat("train.precision = \"", precision,
                                 "\" is not available on a CPU; use fp32, "
                                 "bf16 or auto"));
}

absl::StatusOr<std::optional<schedule::Recompute>> ResolveRecompute(const std::optional<std::string>& name) {
  if (!name.has_value()) return std::optional<schedule::Recompute>();
  for (schedule::Recompute recompute : {schedule::Recompute::kNone, schedule::Recompute::kFull}) {
    if (*name == RecomputeName(recompute)) return std::optional<schedule::Recompute>(recompute);
  }
  return UsageError(absl::StrCat("parallel.recompute = \"", *name, "\" is not available; use none or full"));
}

std::string Workers(int64_t count) { return absl::StrCat(count, count == 1 ? " worker" : " workers"); }

// Tensor memory of one worker.
int64_t ResolveMemoryLimit(const recipe::ClusterConfig& cluster, const cluster::Host& host,
                           std::vector<std::string>& notes) {
  if (cluster.memory_limit_bytes.has_value()) return *cluster.memory_limit_bytes;
  const double usable = static_cast<double>(host.memory_available_bytes) * kMemoryShare;
  const int64_t share = static_cast<int64_t>(usable) / cluster.devices_per_node - kWorkerOverheadBytes;
  const int64_t limit = std::max<int64_t>(share, 0);
  notes.push_back(absl::StrCat("cluster.memory_limit = auto: ", FormatBytes(limit),
                               " for each worker's tensors (", FormatBytes(host.memory_available_bytes),
                               " available, ", Workers(cluster.devices_per_node), " on this machine)"));
  return limit;
}

// Of one device: what the recipe says, what its driver shows, or what the catalogue has of its name.
absl::StatusOr<int64_t> ResolveDeviceMemoryLimit(const recipe::ClusterConfig& cluster,
                                                 const cluster::Host& host, std::vector<std::string>& notes) {
  if (cluster.memory_limit_bytes.has_value()) return *cluster.memory_limit_bytes;
  double bytes = static_cast<double>(host.accelerator_memory_bytes);
  std::string source = host.accelerator;
  if (cluster.memory_bytes.has_value()) {
    bytes = static_cast<double>(*cluster.memory_bytes);
    source = "cluster.memory";
  }
  if (const auto match = cluster::FindDevice(cluster.device); bytes <= 0 && match.ok()) {
    bytes = match->device->memory_bytes.value;
    source = match->device->name;
  }
  if (bytes <= 0) {
    return EnvironmentError(
        absl::StrCat("cluster.device = \"", cluster.device,
                     "\": no NVIDIA driver shows a device here, so its memory is not known. "
                     "`trainctl doctor` says what is missing; to plan for another machine, name the device "
                     "(docs/catalogue.md) "
                     "or give cluster.memory_limit"));
  }
  const int64_t limit = static_cast<int64_t>(bytes * kDeviceMemoryShare);
  notes.push_back(absl::StrCat("cluster.memory_limit = auto: ", FormatBytes(limit),
                               " for each worker's tensors (", source, ", ",
                               FormatBytes(static_cast<int64_t>(bytes)), ")"));
  return limit;
}

int64_t ResolveThreads(const recipe::ClusterConfig& cluster, const cluster::Host& host,
                       std::vector<std::string>& notes) {
  if (cluster.threads_per_worker.has_value()) return *cluster.threads_per_worker;
  const int64_t threads = std::max<int64_t>(1, host.allowed_cores / cluster.devices_per_node);
  notes.push_back(absl::StrCat("cluster.threads_per_worker = auto: ", threads, " (", host.allowed_cores,
                               " cores, ", Workers(cluster.devices_per_node), " on this machine)"));
  if (cluster.devices_per_node > host.allowed_cores) {
    notes.push_back(absl::StrCat(cluster.devices_per_node, " workers share ", host.allowed_cores,
                                 " cores: expect them to slow each other down"));
  }
  return threads;
}

// A plan is handed out only with a schedule that is proven; a few micro-batches stand for all.
absl::Status Prove(const Problem& problem, const Layout& layout) {
  const sharding::Ledger ledger(model::Inventory(*problem.spec), layout.mesh, layout.zero_stage);
  const schedule::BuildOptions options = OptionsOf(problem, layout, kMicroBatchesToPrice);
  return schedule::Check(BuildDataParallel(*problem.spec, ledger, options), ledger);
}

void NoteChoices(const recipe::Recipe& recipe, const Layout& layout, std::vector<std::string>& notes) {
  const auto note = [&](const char* name, bool is_auto, const std::string& value) {
    if (is_auto) notes.push_back(absl::StrCat(name, " = auto: ", value));
  };
  note("parallel.zero_stage", !recipe.parallel.zero_stage.has_value(), absl::StrCat(layout.zero_stage));
  note("parallel.dp_replicate", !recipe.parallel.dp_replicate.has_value(),
       absl::StrCat(layout.mesh.dp_replicate));
  note("parallel.dp_shard", !recipe.parallel.dp_shard.has_value(), absl::StrCat(layout.mesh.dp_shard));
  note("train.micro_batch", !recipe.train.micro_batch.has_value(), absl::StrCat(layout.micro_batch));
  note("parallel.recompute", !recipe.parallel.recompute.has_value(),
       std::string(RecomputeName(layout.recompute)));
}

Rates RatesOf(const Plan& plan, const cluster::Host& host, const MachineProfile* measured, int64_t workers) {
  if (measured != nullptr) {
    const std::optional<Rates> rates =
        measured->RatesFor(plan.compute_dtype, workers, plan.threads_per_worker);
    if (rates.has_value()) return *rates;
  }
  return CpuRates(plan.threads_per_worker, plan.compute_dtype, host.native_bf16);
}

}  // namespace

absl::string_view RecomputeName(schedule::Recompute recompute) {
  return recompute == schedule::Recompute::kFull ? "full" : "none";
}

absl::string_view StrategyName(int zero_stage) {
  constexpr absl::string_view kNames[] = {"DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3"};
  return kNames[zero_stage];
}

std::string Layout::ToString() const {
  return absl::StrCat(StrategyName(zero_stage), " ", mesh.ToString(), " micro_batch=", micro_batch,
                      " recompute=", RecomputeName(recompute));
}

absl::StatusOr<Plan> MakePlan(const recipe::Recipe& recipe, const cluster::Host& host,
                              const MachineProfile* measured) {
  TRAINCTL_RETURN_IF_ERROR(model::CheckTrainable(recipe.model.spec));
  const int64_t nodes = recipe.cluster.nodes, devices = recipe.cluster.devices_per_node;
  if (nodes < 1 || devices < 1 || nodes > kMaxWorkers / devices) {
    return UsageError(absl::StrCat("cluster.nodes ", nodes, " x cluster.devices_per_node ", devices,
                                   " is not a number of workers from 1 to ", kMaxWorkers));
  }
  if (recipe.data.seq_len < 1) return UsageError("data.seq_len must be at least 1");
  const int64_t world_size = nodes * devices;
  TRAINCTL_RETURN_IF_ERROR(CheckDegrees(recipe, world_size));
  TRAINCTL_RETURN_IF_ERROR(CheckBatch(recipe.train, world_size));
  TRAINCTL_RETURN_IF_ERROR(CheckSize(recipe, world_size));

  Plan plan;
  plan.seq_len = recipe.data.seq_len;
  plan.prefetch = recipe.parallel.prefetch;
  plan.checkpoint_copy = recipe.checkpoint.async;
  plan.num_parameters = model::NumParameters(recipe.model.spec);
  plan.flops_per_token = model::FlopsPerToken(recipe.model.spec, recipe.data.seq_len);
  plan.threads_per_worker = ResolveThreads(recipe.cluster, host, plan.notes);
  const bool on_device = recipe.cluster.device != "cpu";
  if (on_device) {
    TRAINCTL_RETURN_IF_ERROR(CheckDevice(recipe.cluster));
    plan.device = recipe::kCudaDevice;
    TRAINCTL_ASSIGN_OR_RETURN(plan.compute_dtype, ResolveDevicePrecision(recipe.train.precision, plan.notes));
    TRAINCTL_ASSIGN_OR_RETURN(plan.memory_limit_bytes,
                              ResolveDeviceMemoryLimit(recipe.cluster, host, plan.notes));
    NoteAnotherDevice(recipe.cluster, host, plan.notes);
    plan.rates = DeviceRates(NameOfDevice(recipe.cluster, host), plan.compute_dtype);
  } else {
    TRAINCTL_ASSIGN_OR_RETURN(plan.compute_dtype, ResolvePrecision(recipe.train.precision, host, plan.notes));
    plan.memory_limit_bytes = ResolveMemoryLimit(recipe.cluster, host, plan.notes);
    plan.rates = RatesOf(plan, host, measured, devices);
  }
  const Peak peak = PeakOfWorker(NameOfDevice(recipe.cluster, host), plan.compute_dtype, plan.rates);
  plan.peak_flops = peak.flops;
  if (peak.flops > 0) {
    plan.notes.push_back(
        absl::StrFormat("MFU is of %.3g TFLOP/s per worker: %s", peak.flops / 1e12, peak.source));
  }

  Problem problem{.spec = &recipe.model.spec,
                  .world_size = static_cast<int>(world_size),
                  .batch_sequences = recipe.train.batch_sequences,
                  .seq_len = plan.seq_len,
                  .compute_dtype = plan.compute_dtype,
                  .prefetch = plan.prefetch,
                  .checkpoint_copy = plan.checkpoint_copy,
                  .on_device = on_device,
                  .threads = plan.threads_per_worker,
                  .memory_limit_bytes = plan.memory_limit_bytes,
                  .rates = plan.rates,
                  .dp_replicate = recipe.parallel.dp_replicate,
                  .dp_shard = recipe.parallel.dp_shard,
                  .zero_stage = recipe.parallel.zero_stage,
                  .micro_batch = recipe.train.micro_batch};
  TRAINCTL_ASSIGN_OR_RETURN(problem.recompute, ResolveRecompute(recipe.parallel.recompute));
  plan.candidates = Weigh(problem);
  if (plan.candidates.empty()) {
    return UsageError(
        absl::StrCat("no layout of ", world_size,
                     " workers has the parallel.zero_stage, dp_replicate and dp_shard that were "
                     "asked for: stage 0 needs dp_shard = 1, stages 1 to 3 need dp_shard > 1"));
  }
  const int chosen = Choose(problem, plan.candidates);
  if (chosen < 0) {
    const Candidate& smallest = *std::min_element(
        plan.candidates.begin(), plan.candidates.end(),
        [](const Candidate& a, const Candidate& b) { return a.memory.peak_bytes < b.memory.peak_bytes; });
    return InfeasibleError(absl::StrCat("no layout fits. The smallest, ", smallest.layout.ToString(), ", ",
                                        WhyNotFits(smallest.memory, plan.memory_limit_bytes), " (in ",
                                        smallest.memory.peak_where, "); ", NearestThatFits(problem)));
  }
  plan.layout = plan.candidates[static_cast<size_t>(chosen)].layout;
  plan.predicted = plan.candidates[static_cast<size_t>(chosen)].memory;
  TRAINCTL_RETURN_IF_ERROR(Prove(problem, plan.layout));
  NoteChoices(recipe, plan.layout, plan.notes);
  const std::vector<Candidate> ruled_out = RuledOut(problem, plan.layout);
  plan.candidates.insert(plan.candidates.end(), ruled_out.begin(), ruled_out.end());
  std::stable_sort(plan.candidates.begin(), plan.candidates.end(),
                   [](const Candidate& a, const Candidate& b) {
                     return std::make_pair(a.layout.zero_stage, a.layout.mesh.dp_shard) <
                            std::make_pair(b.layout.zero_stage, b.layout.mesh.dp_shard);
                   });
  return plan;
}

absl::StatusOr<Plan> MakePlanFor(const recipe::Recipe& recipe, const cluster::Host& host) {
  std::vector<std::string> notes;
  TRAINCTL_ASSIGN_OR_RETURN(const std::optional<MachineProfile> measured, LoadMachineProfile(host, notes));
  TRAINCTL_ASSIGN_OR_RETURN(Plan plan, MakePlan(recipe, host, measured ? &*measured : nullptr));
  plan.notes.insert(plan.notes.end(), notes.begin(), notes.end());
  return plan;
}

const Candidate& Chosen(const Plan& plan) {
  const auto chosen = std::find_if(plan.candidates.begin(), plan.candidates.end(),
                                   [](const Candidate& candidate) { return candidate.chosen; });
  TRAINCTL_CHECK_MSG(chosen != plan.candidates.end(), "a plan without a chosen layout");
  return *chosen;
}

PlannedStep PlannedSchedule(const Plan& plan, const model::ModelSpec& spec) {
  schedule::BuildOptions options;
  options.shape = {plan.layout.micro_batch, plan.seq_len};
  options.num_micro_batches = static_cast<int>(plan.layout.num_micro_batches);
  options.compute_dtype = plan.compute_dtype;
  options.recompute = plan.layout.recompute;
  options.prefetch = plan.prefetch;
  options.checkpoint_copy = plan.checkpoint_copy;
  options.on_device = plan.device != "cpu";
  options.threads = plan.threads_per_worker;
  sharding::Ledger ledger(model::Inventory(spec), plan.layout.mesh, plan.layout.zero_stage);
  schedule::Schedule schedule = BuildDataParallel(spec, ledger, options);
  return {options, std::move(ledger), std::move(schedule)};
}

}  // namespace trainctl::planner
