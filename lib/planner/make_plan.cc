#include "planner/make_plan.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/units.h"
#include "optim/optimizer.h"
#include "plan/utilization.h"
#include "planner/choose.h"
#include "planner/neighbours.h"
#include "planner/resolve.h"
#include "planner/search.h"
#include "recipe/checks.h"
#include "recipe/derive.h"
#include "recipe/issues.h"
#include "recipe/layout_request.h"
#include "recipe/machine.h"
#include "schedule/step_hash.h"
#include "simulate/device_rates.h"

namespace trainctl::planner {
namespace {

using plan::Candidate;
using plan::Plan;

// Of the memory that a machine has left, what may be filled with tensors: the rest is for the page
// cache (datasets are memory-mapped) and for what other programs ask for later.
constexpr double kMemoryShare = 0.85;
// Of a device's memory: the rest is for its context, libraries' workspaces and what the allocator keeps in
// pieces.
constexpr double kDeviceMemoryShare = 0.9;

DType ResolveDevicePrecision(const std::string& precision, const cluster::Machine* machine,
                             std::vector<std::string>& notes) {
  const bool has_bf16 = machine == nullptr || machine->device->has_bf16;
  if (precision == "auto" && !has_bf16) {
    notes.push_back(absl::StrCat("train.precision = auto: fp32 (", machine->device->name, " has no bf16)"));
    return DType::kF32;
  }
  if (precision == "fp32") {
    notes.push_back(
        "train.precision = fp32: attention on a GPU computes its scores tile by tile, which costs memory and "
        "time; "
        "bf16 has a fused kernel");
    return DType::kF32;
  }
  if (precision == "auto") notes.push_back("train.precision = auto: bf16");
  return DType::kBF16;
}

DType ResolvePrecision(const std::string& precision, const cluster::Host& host,
                       std::vector<std::string>& notes) {
  if (precision == "fp32") return DType::kF32;
  if (precision == "bf16") {
    if (!host.native_bf16) {
      notes.push_back("this CPU has no bf16 instructions: bf16 takes longer than fp32 and saves only memory");
    }
    return DType::kBF16;
  }
  notes.push_back(host.native_bf16
                      ? "train.precision = auto: bf16 (the CPU has bf16 instructions)"
                      : "train.precision = auto: fp32 (the CPU has no bf16 instructions; bf16 would take "
                        "longer)");
  return host.native_bf16 ? DType::kBF16 : DType::kF32;
}

std::string Workers(int64_t count) { return absl::StrCat(count, count == 1 ? " worker" : " workers"); }

// How many workers share a machine's cores and memory, however many machines there are.
std::string WorkersOfNode(const recipe::ClusterConfig& cluster) {
  return absl::StrCat(Workers(cluster.devices_per_node),
                      cluster.nodes == 1 ? " on this machine" : " on each machine");
}

// Names the limit of the control group that counts, if one does.
std::string UnderLimit(const cluster::Host& host) {
  return host.memory_limit.empty() ? "" : absl::StrCat(" under ", host.memory_limit);
}

// Tensor memory of one worker.
int64_t ResolveMemoryLimit(const recipe::ClusterConfig& cluster, const cluster::Host& host,
                           std::vector<std::string>& notes) {
  if (cluster.memory_limit_bytes.has_value()) return *cluster.memory_limit_bytes;
  const double usable = static_cast<double>(host.memory_available_bytes) * kMemoryShare;
  const int64_t share = static_cast<int64_t>(usable) / cluster.devices_per_node - kWorkerOverheadBytes;
  const int64_t limit = std::max<int64_t>(share, 0);
  notes.push_back(absl::StrCat("cluster.memory_limit = auto: ", FormatBytes(limit),
                               " for each worker's tensors (", FormatBytes(host.memory_available_bytes),
                               " available", cluster.nodes == 1 ? "" : " here", UnderLimit(host), ", ",
                               WorkersOfNode(cluster), ")"));
  return limit;
}

// Of one device: what the recipe says, what the catalogue has of the device that it names, or what the driver
// shows of the one that is here.
absl::StatusOr<int64_t> ResolveDeviceMemoryLimit(const recipe::ClusterConfig& cluster,
                                                 const cluster::Machine* machine, const cluster::Host& host,
                                                 std::vector<std::string>& notes) {
  double bytes = static_cast<double>(host.accelerator_memory_bytes);
  std::string source = host.accelerator;
  if (cluster.memory_bytes.has_value()) {
    bytes = static_cast<double>(*cluster.memory_bytes);
    source = "cluster.memory";
  } else if (cluster.device != recipe::kCudaDevice) {
    bytes = machine->device->memory_bytes.value;
    source = machine->device->name;
  }
  if (cluster.memory_limit_bytes.has_value()) {
    const int64_t limit = *cluster.memory_limit_bytes;
    if (bytes <= 0 || static_cast<double>(limit) <= bytes) return limit;
    return UsageError(absl::StrCat("cluster.memory_limit (", FormatBytes(limit), ") is more than the ",
                                   FormatBytes(static_cast<int64_t>(bytes)), " of ", source,
                                   "; leave it at \"auto\", or lower it"));
  }
  if (bytes <= 0) {
    return EnvironmentError(absl::StrCat(
        "cluster.device = \"", cluster.device, "\": ",
        host.hidden_accelerators.empty() ? "no NVIDIA driver shows a device here" : host.hidden_accelerators,
        ", so its memory is not known. "
        "`trainctl doctor` says what is missing; to plan for another machine, name the device "
        "(docs/reference/catalogue.md) or give cluster.memory_limit"));
  }
  const int64_t workers_each =
      host.shares_accelerators && host.num_accelerators > 0
          ? (cluster.devices_per_node + host.num_accelerators - 1) / host.num_accelerators
          : 1;
  const int64_t limit = static_cast<int64_t>(bytes * kDeviceMemoryShare) / std::max<int64_t>(workers_each, 1);
  notes.push_back(absl::StrCat("cluster.memory_limit = auto: ", FormatBytes(limit),
                               " for each worker's tensors (", source, ", ",
                               FormatBytes(static_cast<int64_t>(bytes)), ")"));
  return limit;
}

// What lib/nn runs: LibTorch's flash attention; the vendor's kernel, whose sums have no order, where every
// sequence is one document.
simulate::FusedAttention AttentionOf(const recipe::Recipe& recipe, const simulate::MeasuredDevice* timed) {
  const bool is_whole =
      recipe.data.packing == "continuous" && !recipe.run.deterministic && recipe.run.attention != "flash";
  if (!is_whole) return simulate::FusedAttention::kFlash2;
  if (timed == nullptr || timed->attention.empty() || recipe.run.attention == "cudnn")
    return simulate::FusedAttention::kVendor;
  return simulate::FasterAttention(*timed);
}

// What LibTorch takes for cuBLAS once, at its first product (pytorch 2.11 aten/src/ATen/cuda/
// CublasHandlePool.cpp, parseChosenWorkspaceSize; seen on an H100).
int64_t LibraryWorkspaceBytes(const cluster::Device& device) {
  if (std::string_view(device.vendor) != "nvidia") return 0;
  constexpr int64_t kKiB = 1024;
  switch (device.silicon) {
    case cluster::Silicon::kHopper:
    case cluster::Silicon::kBlackwell:
    case cluster::Silicon::kBlackwellUltra:
      return 32 * kKiB * kKiB;
    default:
      return (4096 * 2 + 16 * 8) * kKiB;
  }
}

int64_t ResolveThreads(const recipe::ClusterConfig& cluster, const cluster::Host& host,
                       std::vector<std::string>& notes) {
  if (cluster.threads_per_worker.has_value()) return *cluster.threads_per_worker;
  const int64_t threads = std::max<int64_t>(1, host.allowed_cores / cluster.devices_per_node);
  notes.push_back(absl::StrCat("cluster.threads_per_worker = auto: ", threads, " (", host.allowed_cores,
                               " cores, ", WorkersOfNode(cluster), ")"));
  if (cluster.devices_per_node > host.allowed_cores) {
    notes.push_back(absl::StrCat(cluster.devices_per_node, " workers share ", host.allowed_cores,
                                 " cores: expect them to slow each other down"));
  }
  return threads;
}

void NoteChoices(const recipe::Recipe& recipe, const layout::Layout& layout,
                 std::vector<std::string>& notes) {
  const auto note = [&](const char* name, bool is_auto, const std::string& value) {
    if (is_auto) notes.push_back(absl::StrCat(name, " = auto: ", value));
  };
  if (layout.mesh.pp > 1) {
    note("parallel.pp", !recipe.parallel.pp.has_value(), absl::StrCat(layout.mesh.pp));
    note("parallel.schedule", !recipe.parallel.schedule.has_value() && recipe.parallel.passes.empty(),
         layout.pipeline.order);
    note("parallel.virtual_stages",
         !recipe.parallel.virtual_stages.has_value() && layout.pipeline.virtual_stages > 1,
         absl::StrCat(layout.pipeline.virtual_stages));
    note("parallel.stage_layers", !recipe.parallel.stage_layers.has_value(),
         absl::StrCat("[", absl::StrJoin(layout.pipeline.stage_layers, ", "), "]"));
  }
  if (layout.mesh.tp > 1) {
    note("parallel.tp", !recipe.parallel.tp.has_value(), absl::StrCat(layout.mesh.tp));
    note("parallel.sequence_parallel", !recipe.parallel.sequence_parallel.has_value(),
         layout.sequence_parallel ? "true" : "false");
  }
  note("parallel.zero_stage", !recipe.parallel.zero_stage.has_value(), absl::StrCat(layout.zero_stage));
  note("parallel.dp_replicate", !recipe.parallel.dp_replicate.has_value(),
       absl::StrCat(layout.mesh.dp_replicate));
  note("parallel.dp_shard", !recipe.parallel.dp_shard.has_value(), absl::StrCat(layout.mesh.dp_shard));
  note("train.micro_batch", !recipe.train.micro_batch.has_value(), absl::StrCat(layout.micro_batch));
  note("parallel.recompute", !recipe.parallel.recompute.has_value(),
       std::string(layout::RecomputeName(layout.recompute)));
  if (!layout.recomputed_layers.empty()) {
    note("parallel.recomputed_layers", !recipe.parallel.recomputed_layers.has_value(),
         absl::StrCat("[", absl::StrJoin(layout.recomputed_layers, ", "), "]"));
  }
}

simulate::Rates CpuRatesOf(const schedule::StepSetting& setting, const cluster::Host& host,
                           const simulate::MachineProfile* measured, int64_t workers) {
  if (measured != nullptr) {
    const std::optional<simulate::Rates> rates =
        measured->RatesFor(setting.types.compute, workers, setting.threads);
    if (rates.has_value()) return *rates;
  }
  return simulate::CpuRates(setting.threads, setting.types.compute, host.native_bf16);
}

// Every mistake at once, in the words of the recipe's own checks.
absl::Status CheckAll(const recipe::Recipe& recipe) {
  recipe::Issues issues, missing;
  recipe::CheckRecipe(recipe, {}, issues, missing);
  return issues.ToStatus("the recipe");
}

// What workers compute on, what of it may be filled, and how fast it is.
absl::Status ResolveMachine(const recipe::Recipe& recipe, const cluster::Host& host,
                            const simulate::MachineProfile* measured, Plan& plan) {
  const recipe::ClusterConfig& cluster = recipe.cluster;
  plan.nodes = cluster.nodes;
  plan.devices_per_node = cluster.devices_per_node;
  // Of a device that the recipe names nothing of this machine is known but its own.
  const bool is_elsewhere = cluster.device != "cpu" && cluster.device != recipe::kCudaDevice;
  std::vector<std::string> ignored;
  plan.threads_per_worker = ResolveThreads(cluster, host, is_elsewhere ? ignored : plan.notes);
  schedule::Types& types = plan.setting.types;
  types.master = recipe::MasterType(recipe.train);
  if (cluster.device == "cpu") {
    plan.setting.threads = plan.threads_per_worker;
    types.compute = ResolvePrecision(recipe.train.precision, host, plan.notes);
    plan.memory_limit_bytes = ResolveMemoryLimit(cluster, host, plan.notes);
    plan.rates = CpuRatesOf(plan.setting, host, measured, plan.devices_per_node);
    if (cluster.nodes > 1) {
      plan.notes.push_back(absl::StrCat(
          "cluster.nodes = ", cluster.nodes,
          ": every machine is taken to be like this one, and the network between them is not measured: "
          "communication is priced as within one machine, so expect steps to take longer"));
    }
    return absl::OkStatus();
  }
  plan.device = recipe::kCudaDevice;
  plan.setting.on_device = true;
  if (!is_elsewhere && !host.hidden_accelerators.empty()) {
    plan.notes.push_back(absl::StrCat("cluster.device = ", cluster.device, ": ", host.hidden_accelerators));
  }
  if (host.shares_accelerators && cluster.devices_per_node > host.num_accelerators) {
    plan.shares_devices = true;
    plan.notes.push_back(plan::kSharedDevicesNote);
  }
  TRAINCTL_ASSIGN_OR_RETURN(const std::shared_ptr<const cluster::Machine> machine,
                            recipe::MachineFor(cluster, host));
  types.compute = ResolveDevicePrecision(recipe.train.precision, machine.get(), plan.notes);
  // What was measured is of the device that is here.
  const simulate::MeasuredDevice* const timed =
      measured != nullptr && !is_elsewhere ? measured->FindDevice(host.accelerator) : nullptr;
  if (machine != nullptr) {
    plan.hardware = machine->device->name;
    plan.notes.insert(plan.notes.end(), machine->notes.begin(), machine->notes.end());
    plan.rates = simulate::DeviceRates(machine, types.compute, AttentionOf(recipe, timed), timed);
    plan.setting.workspace_bytes = LibraryWorkspaceBytes(*machine->device);
  } else {
    plan.notes.push_back(absl::StrCat(
        host.accelerator.empty() ? "this machine's device is not known"
                                 : host.accelerator + " is not in the catalogue",
        timed == nullptr
            ? ": layouts are compared with the rates of no particular device, and no time is predicted"
            : ": its rates are those that `trainctl calibrate` measured, and communication is guessed"));
    plan.rates = simulate::UnknownDeviceRates(types.compute, AttentionOf(recipe, timed), timed);
  }
  TRAINCTL_ASSIGN_OR_RETURN(plan.memory_limit_bytes,
                            ResolveDeviceMemoryLimit(cluster, machine.get(), host, plan.notes));
  return absl::OkStatus();
}

// Programs alone fill the machine.
absl::Status NothingIsLeft(int64_t workers, const cluster::Host& host) {
  const double usable = static_cast<double>(host.memory_available_bytes) * kMemoryShare;
  return InfeasibleError(
      absl::StrCat("no memory is left for tensors: ", FormatBytes(static_cast<int64_t>(usable)),
                   " of this machine's ", FormatBytes(host.memory_available_bytes), UnderLimit(host),
                   " may be filled, and the program of each of ", Workers(workers), " takes ",
                   FormatBytes(kWorkerOverheadBytes), " beside its tensors; free memory",
                   workers > 1 ? ", take fewer workers (cluster.devices_per_node)" : "",
                   " or state what a worker may use (cluster.memory_limit)"));
}

// The step of the chosen layout is built as the workers will build it, proven, and given its hash and its
// memory.
absl::Status FixStep(const model::Architecture& spec, Plan& plan) {
  const plan::PlannedStep planned = plan::BuildStep(plan, spec);
  TRAINCTL_RETURN_IF_ERROR(schedule::Check(planned.step, planned.ledger).status());
  plan.step_hash = schedule::HashStep(planned.step, planned.ledger);
  plan.predicted = simulate::SimulateMemory(planned.step);
  if (!planned.options.setting.on_device) return absl::OkStatus();
  using simulate::Resource;
  for (const auto& [name, work] : simulate::WorkOfStep(planned.step, planned.ledger, planned.options)) {
    const auto launches = static_cast<int64_t>(work[Resource::kOperators]);
    if (launches > 0) plan.work[name] = {launches, static_cast<int64_t>(work[Resource::kMovedBytes])};
  }
  return absl::OkStatus();
}

}  // namespace

Problem ProblemOf(const recipe::Recipe& recipe, const Plan& plan) {
  return {.request = recipe::LayoutRequest(recipe),
          .setting = plan.setting,
          .memory_limit_bytes = plan.memory_limit_bytes,
          .limit_is_shared = plan.device == "cpu" && !recipe.cluster.memory_limit_bytes.has_value(),
          .rates = plan.rates};
}

absl::StatusOr<Plan> ResolvePlan(const recipe::Recipe& recipe, const cluster::Host& host,
                                 const simulate::MachineProfile* measured) {
  TRAINCTL_RETURN_IF_ERROR(CheckAll(recipe));
  Plan plan;
  plan.host = host;
  plan.host.name.clear();
  plan.host.memory_total_bytes = 0;  // nothing depends on these two
  plan.host.memory_limit.clear();
  plan.setting.seq_len = recipe.data.seq_len;
  plan.setting.prefetch = recipe.parallel.prefetch;
  plan.setting.checkpoint_copy = recipe.checkpoint.async;
  plan.setting.optimizer = optim::Find(recipe.optimizer.name);
  TRAINCTL_CHECK_MSG(plan.setting.optimizer != nullptr, "no optimizer ", recipe.optimizer.name);
  plan.num_parameters = model::NumParameters(recipe.model.spec);
  plan.flops_per_token = model::FlopsPerToken(recipe.model.spec, recipe.data.seq_len);
  TRAINCTL_RETURN_IF_ERROR(ResolveMachine(recipe, host, measured, plan));
  const plan::Peak peak = plan::PeakOfWorker(plan.device == "cpu" ? "cpu" : plan.hardware,
                                             plan.setting.types.compute, plan.rates);
  plan.peak_flops = peak.flops;
  if (peak.flops > 0) {
    plan.notes.push_back(
        absl::StrFormat("MFU is of %.3g TFLOP/s per worker: %s", peak.flops / 1e12, peak.source));
  }
  if (plan.memory_limit_bytes <= 0) return NothingIsLeft(recipe.cluster.devices_per_node, host);
  return plan;
}

absl::StatusOr<Plan> MakePlan(const recipe::Recipe& recipe, const cluster::Host& host,
                              const simulate::MachineProfile* measured) {
  TRAINCTL_ASSIGN_OR_RETURN(Plan plan, ResolvePlan(recipe, host, measured));
  const Problem problem = ProblemOf(recipe, plan);
  Found found = Search(problem, Wanted::kFamilies);
  plan.candidates = std::move(found.candidates);
  plan.search = found.counts;
  if (plan.candidates.empty()) {
    return InfeasibleError(absl::StrCat(
        "parallel.pp = ", recipe.parallel.pp.value_or(1),
        ": no size of micro-batch makes a number of micro-batches that the pipeline's order takes; state "
        "train.micro_batch, or another train.batch_sequences or parallel.schedule"));
  }
  if (found.chosen < 0) {
    const Candidate& smallest = *std::min_element(
        plan.candidates.begin(), plan.candidates.end(),
        [](const Candidate& a, const Candidate& b) { return a.memory.peak_bytes < b.memory.peak_bytes; });
    return InfeasibleError(absl::StrCat("no layout fits. The smallest, ", smallest.layout.ToString(), ", ",
                                        WhyNotFits(smallest.memory, plan.memory_limit_bytes), " (in ",
                                        smallest.memory.peak_where, "); ", NearestThatFits(problem)));
  }
  plan.layout = plan.candidates[static_cast<size_t>(found.chosen)].layout;
  TRAINCTL_RETURN_IF_ERROR(FixStep(recipe.model.spec, plan));
  NoteChoices(recipe, plan.layout, plan.notes);
  const std::vector<Candidate> ruled_out = RuledOut(problem, plan.layout);
  plan.candidates.insert(plan.candidates.end(), ruled_out.begin(), ruled_out.end());
  std::stable_sort(
      plan.candidates.begin(), plan.candidates.end(), [](const Candidate& a, const Candidate& b) {
        const auto key = [](const layout::Layout& l) {
          return std::make_tuple(l.mesh.pp * l.mesh.tp, l.mesh.tp, l.zero_stage, l.mesh.dp_shard);
        };
        return key(a.layout) < key(b.layout);
      });
  return plan;
}

absl::StatusOr<Plan> MakePlanFor(const recipe::Recipe& recipe, const cluster::Host& host) {
  std::vector<std::string> notes;
  TRAINCTL_ASSIGN_OR_RETURN(const std::optional<simulate::MachineProfile> measured,
                            simulate::LoadMachineProfile(host, notes));
  TRAINCTL_ASSIGN_OR_RETURN(Plan plan, MakePlan(recipe, host, measured ? &*measured : nullptr));
  plan.notes.insert(plan.notes.end(), notes.begin(), notes.end());
  return plan;
}

}  // namespace trainctl::planner
