// Steps of models of full size on the counting device (counting_device.cc), planned for an H100: what a step
// launches, waits for and allocates, beside what is allowed.
//
//   device_counts PLUGIN [verbose]

#include <dlfcn.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "model/presets.h"
#include "parallel/executor.h"
#include "planner/make_plan.h"
#include "simulate/memory.h"
#include "tests/device/counts.h"

namespace trainctl {
namespace {

template <typename T>
T OrDie(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "device_counts: %s\n", std::string(result.status().message()).c_str());
  std::exit(1);
}
void OrDie(const absl::Status& status) { OrDie<int>(status.ok() ? absl::StatusOr<int>(0) : status); }

struct Counted {
  int64_t calls = 0, bytes = 0;
};
using Counts = std::map<std::string, Counted>;

class Counter {
 public:
  explicit Counter(const std::string& plugin) {
    void* const handle = dlopen(plugin.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (handle != nullptr)
      read_ = reinterpret_cast<test_device::CountsFunction>(dlsym(handle, test_device::kCountsSymbol));
    if (read_ == nullptr) OrDie(InternalError("the plugin counts nothing"));
  }
  // Since the last call.
  Counts Take() {
    std::vector<test_device::Count> now(256);
    now.resize(static_cast<size_t>(read_(now.data(), static_cast<int>(now.size()))));
    Counts since;
    for (const auto& [name, calls, bytes] : now) {
      Counted& before = before_[name];
      if (calls > before.calls) since[name] = {calls - before.calls, bytes - before.bytes};
      before = {calls, bytes};
    }
    return since;
  }

 private:
  test_device::CountsFunction read_ = nullptr;
  Counts before_;
};

bool IsLaunch(const std::string& name) {
  return name != test_device::kBlocking && name != test_device::kAllocation;
}

int64_t Launches(const Counts& counts) {
  int64_t launches = 0;
  for (const auto& [name, counted] : counts) launches += IsLaunch(name) ? counted.calls : 0;
  return launches;
}

void Merge(const Counts& more, Counts& sums) {
  for (const auto& [name, counted] : more) {
    sums[name].calls += counted.calls;
    sums[name].bytes += counted.bytes;
  }
}

int64_t CallsOf(const Counts& counts, const std::string& name) {
  const auto it = counts.find(name);
  return it == counts.end() ? 0 : it->second.calls;
}

struct Model {
  const char* preset;
  int64_t layers;  // 0: all
  int64_t seq_len;
  int64_t micro_batch;
  const char* masters = "fp32";
};

constexpr Model kModels[] = {
    {"llama-120m", 0, 2048, 8},  {"llama-1b", 0, 2048, 4},         {"llama3.2-1b", 0, 8192, 1},
    {"llama3.1-8b", 8, 8192, 1}, {"llama-1b", 0, 2048, 4, "bf16"},
};
constexpr int kMicroBatches = 4;

// What is allowed.
constexpr int64_t kLaunchesOfALayer = 30;
constexpr int64_t kPiecesOfTheHead = 4;
constexpr int64_t kLaunchesOfTheEnd = 8;  // of norm and optimizer
constexpr int64_t kWaits = 1;
constexpr double kBytesOfALayer = 1.05;  // of the least
constexpr double kPeakError = 0.01;
constexpr double kPassesError = 0.02;

// Passes over memory: neither products and attention nor what the plan counts by other units than bytes.
bool IsPass(const std::string& name) {
  for (const char* other :
       {test_device::kProduct, test_device::kAttention, test_device::kBlocking, test_device::kAllocation,
        "cross_entropy", "update", "copy to device", "copy to host"}) {
    if (name == other) return false;
  }
  return true;
}

class Step {
 public:
  Step(const device::Device& device, Counter& counter, const Model& m) : counter_(counter), model_(m) {
    recipe::Recipe recipe;
    recipe.model.spec = OrDie(model::Preset(m.preset));
    if (m.layers > 0) SetNumLayers(recipe.model.spec, m.layers);
    recipe.cluster.device = "h100-sxm-80gb";
    recipe.cluster.devices_per_node = 1;
    recipe.data.seq_len = m.seq_len;
    recipe.train.batch_sequences = m.micro_batch * kMicroBatches;
    recipe.train.micro_batch = m.micro_batch;
    recipe.train.precision = "bf16";
    recipe.train.master_dtype = m.masters;
    plan_ = OrDie(planner::MakePlan(recipe, cluster::Host()));
    spec_ = recipe.model.spec;
    Run(device);
  }

  // What is wrong; prints what was counted.
  std::vector<std::string> Judge(bool verbose) const {
    std::vector<std::string> wrong;
    const auto hold = [&](absl::string_view what, int64_t counted, int64_t allowed) {
      std::printf("  %-40s %8lld, allowed %lld\n", std::string(what).c_str(), static_cast<long long>(counted),
                  static_cast<long long>(allowed));
      if (counted > allowed) wrong.push_back(absl::StrCat(model_.preset, ": ", what, ": ", counted));
    };
    std::printf("%s, masters in %s, %lld x %lld tokens, %d micro-batches, recompute %s\n", model_.preset,
                model_.masters, static_cast<long long>(model_.micro_batch),
                static_cast<long long>(model_.seq_len), kMicroBatches,
                std::string(layout::RecomputeName(plan_.layout.recompute)).c_str());
    hold("launches of a layer in a micro-batch", most_of_a_layer_, kLaunchesOfALayer);
    const int64_t pieces = CallsOf(by_part_.at("loss"), "cross_entropy") / kMicroBatches;
    hold("pieces of the head", pieces, kPiecesOfTheHead);
    hold("times that the host waits", CallsOf(whole_, test_device::kBlocking), kWaits);
    hold("launches of norm and optimizer", Launches(by_part_.at("end")), kLaunchesOfTheEnd);
    JudgePlan(wrong);
    std::printf("  %-40s %8lld\n", "allocations of a step",
                static_cast<long long>(CallsOf(whole_, test_device::kAllocation)));
    const double bytes = static_cast<double>(bytes_of_layers_) / LeastBytesOfLayers();
    std::printf("  %-40s %8.3f, allowed %.3f\n", "bytes of layers, of the least", bytes, kBytesOfALayer);
    if (bytes > kBytesOfALayer) wrong.push_back(absl::StrCat(model_.preset, ": bytes of layers: ", bytes));
    const double off = static_cast<double>(predicted_peak_) / static_cast<double>(peak_) - 1;
    std::printf("  peak %.1f MiB, predicted %.1f MiB (%+.2f %%)\n", static_cast<double>(peak_) / 1048576,
                static_cast<double>(predicted_peak_) / 1048576, 100 * off);
    if (std::abs(off) > kPeakError) wrong.push_back(absl::StrCat(model_.preset, ": peak"));
    for (const auto& [part, counts] : by_part_) {
      if (!verbose) break;
      std::printf("  %s:\n", part.c_str());
      for (const auto& [name, counted] : counts)
        std::printf("    %-22s %6lld calls %12.1f MiB\n", name.c_str(), static_cast<long long>(counted.calls),
                    static_cast<double>(counted.bytes) / 1048576);
    }
    return wrong;
  }

 private:
  // What `plan --json` says of the step's work.
  void JudgePlan(std::vector<std::string>& wrong) const {
    int64_t launches = 0, moved_bytes = 0;
    for (const auto& [name, work] : plan_.work) {
      launches += work.launches;
      moved_bytes += work.moved_bytes;
    }
    int64_t counted_bytes = 0;
    for (const auto& [name, counted] : whole_) counted_bytes += IsPass(name) ? counted.bytes : 0;
    const int64_t counted =
        Launches(whole_) - CallsOf(whole_, "copy to device") - CallsOf(whole_, "copy to host");
    std::printf("  %-40s %8lld, planned %lld\n", "launches of a step", static_cast<long long>(counted),
                static_cast<long long>(launches));
    if (counted != launches) wrong.push_back(absl::StrCat(model_.preset, ": planned launches: ", launches));
    const double off = static_cast<double>(moved_bytes) / static_cast<double>(counted_bytes) - 1;
    std::printf("  passes over memory %.1f MiB, planned %.1f MiB (%+.2f %%)\n",
                static_cast<double>(counted_bytes) / 1048576, static_cast<double>(moved_bytes) / 1048576,
                100 * off);
    if (std::abs(off) > kPassesError) wrong.push_back(absl::StrCat(model_.preset, ": planned bytes"));
  }

  // Bytes that layers must move beside products and attention, all micro-batches: each operand once where a
  // norm is formed as the residual is added to, and the gradients of queries, keys and values are put side by
  // side as they are turned back (docs/design/kernels.md).
  double LeastBytesOfLayers() const {
    const double h = static_cast<double>(spec_.hidden), f = static_cast<double>(MlpOf(spec_).ffn);
    const model::Attention& a = AttentionOf(spec_);
    const double q = static_cast<double>(a.heads * a.head_dim),
                 kv = static_cast<double>(a.kv_heads * a.head_dim);
    const double forward = 2 * 4 * h + 2 * (q + kv) + 3 * f;
    const double backward = 2 * 4 * h + 2 * (q + 2 * kv) + 5 * f;
    const double elements = static_cast<double>(model_.micro_batch * model_.seq_len * kMicroBatches);
    return 2 * static_cast<double>(NumLayers(spec_)) * elements * (forward + backward);
  }

  void Run(const device::Device& device) {
    const plan::PlannedStep planned = OrDie(plan::RebuildStep(plan_, spec_));
    const schedule::Program& program = planned.ProgramOf(0);
    // LibTorch's workspace for products comes with the first one on a device that computes.
    predicted_peak_ = simulate::SimulateMemory(program).peak_bytes - planned.options.setting.workspace_bytes;
    device.ResetPeak();
    const int64_t live = device.memory().live;
    auto communicator = OrDie(comm::Communicator::Create(device, nullptr, 0, 1, absl::Seconds(60)));
    parallel::ShardedState state(device, planned.ledger, program, planned.step.types, 0,
                                 *planned.options.setting.optimizer);
    parallel::Groups groups = OrDie(parallel::Groups::Make(*communicator, plan_.layout.mesh, planned.step));
    parallel::Executor executor(spec_, state, groups, planned.options);
    MakeViews(planned.options.shape());
    parallel::UpdateOptions update;
    update.decay.assign(planned.ledger.inventory().size(), true);
    update.clip_norm = 1;
    OrDie(executor.RunStep(planned.step, views_, update).status());
    counter_.Take();
    std::string part = "begin";
    int layer = -1;
    std::map<std::pair<int, int>, int64_t> of_layers;  // by block and micro-batch
    const auto take = [&] {
      const Counts counts = counter_.Take();
      Merge(counts, by_part_[part]);
      Merge(counts, whole_);
      if (layer < 0) return;
      of_layers[{layer, micro_batch_}] += Launches(counts);
      for (const auto& [name, counted] : counts) {
        if (IsLaunch(name) && name != test_device::kProduct && name != test_device::kAttention)
          bytes_of_layers_ += counted.bytes;
      }
    };
    executor.SetHook([&](const schedule::Instruction& instruction) {
      if (instruction.stream != schedule::kComputeStream) return;
      take();
      using schedule::Op;
      const bool has_block = instruction.block >= 0;
      const bool is_layer = has_block && instruction.block != model::EmbeddingBlock() &&
                            instruction.block != model::HeadBlock(spec_);
      layer = is_layer ? instruction.block : -1;
      micro_batch_ = instruction.micro_batch;
      part = is_layer                                                                  ? "layers"
             : instruction.op == Op::kLossAndGradient                                  ? "loss"
             : has_block                                                               ? "embedding"
             : instruction.op == Op::kGradNorm || instruction.op == Op::kOptimizerStep ? "end"
                                                                                       : "rest";
    });
    OrDie(executor.RunStep(planned.step, views_, update).status());
    take();
    peak_ = device.memory().peak - live;
    for (const auto& [where, launches] : of_layers) most_of_a_layer_ = std::max(most_of_a_layer_, launches);
  }

  void MakeViews(const model::MicroBatchShape& shape) {
    const auto n = static_cast<size_t>(shape.tokens());
    tokens_.assign(n, 0);
    mask_.assign(n, 1);
    for (size_t i = 0; i < n; ++i)
      positions_.push_back(static_cast<int32_t>(i % static_cast<size_t>(shape.seq_len)));
    views_.assign(kMicroBatches, {.tokens = tokens_.data(),
                                  .targets = tokens_.data(),
                                  .positions = positions_.data(),
                                  .document = tokens_.data(),
                                  .loss_mask = mask_.data()});
  }

  Counter& counter_;
  const Model model_;
  plan::Plan plan_;
  model::Architecture spec_;
  std::vector<int32_t> tokens_, positions_;
  std::vector<uint8_t> mask_;
  std::vector<nn::TokenView> views_;
  int micro_batch_ = -1;
  std::map<std::string, Counts> by_part_;
  Counts whole_;
  int64_t most_of_a_layer_ = 0, bytes_of_layers_ = 0, peak_ = 0, predicted_peak_ = 0;
};

int Main(const std::string& plugin, bool verbose) {
  const auto device = OrDie(device::Device::Open(plugin, {}));
  device->UseNewStream();
  Counter counter(plugin);
  std::vector<std::string> wrong;
  for (const Model& model : kModels) {
    for (std::string& line : Step(*device, counter, model).Judge(verbose)) wrong.push_back(std::move(line));
  }
  for (const std::string& line : wrong) std::printf("FAILED %s\n", line.c_str());
  return wrong.empty() ? 0 : 1;
}

}  // namespace
}  // namespace trainctl

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: device_counts PLUGIN [verbose]\n");
    return 2;
  }
  return trainctl::Main(argv[1], argc > 2);
}
