#include "tests/equivalence/pairwise.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "optim/optimizer.h"
#include "tests/equivalence/small_model.h"
#include "verify/ranks.h"
#include "verify/run_layout.h"

namespace trainctl::equivalence {
namespace {

constexpr int64_t kSequences = 64;
constexpr int64_t kSeqLen = 24;
constexpr int kUpdates = 3;
constexpr int64_t kMemorySlackBytes = int64_t{2} << 20;

// As many layers as eight stages want.
model::Architecture Spec(Variant variant) { return SmallModel(/*layers=*/7, variant); }

int64_t NumElements(Variant variant) { return model::NumParameters(Spec(variant)); }

// One step for each update; of eight parts of the sequences the last has no loss token.
std::vector<verify::Batch> BatchesOf(bool packed) {
  std::vector<verify::Batch> batches;
  for (int step = 0; step < kUpdates; ++step) {
    batches.emplace_back(verify::BatchShape{kSequences, kSeqLen, Spec(Variant::kLlama).vocab, 8, packed},
                         /*seed=*/1 + static_cast<uint64_t>(step));
  }
  return batches;
}

// Three updates in fp32; in bf16 gradients alone.
verify::Trial TrialOf(const PairCell& cell) {
  verify::Trial trial{.spec = Spec(cell.variant), .layout = cell.layout};
  trial.setting.seq_len = kSeqLen;
  trial.setting.prefetch = cell.has_prefetch;
  trial.setting.optimizer = &optim::kAdamW;
  if (cell.is_bf16) trial.setting.types.compute = DType::kBF16;
  trial.update = verify::UpdateOf(optim::kAdamW, model::Inventory(trial.spec).size());
  trial.update.z_loss = 1e-3f;
  trial.update.apply = !cell.is_bf16;
  trial.num_steps = cell.is_bf16 ? 1 : kUpdates;
  return trial;
}

// What one process comes to, with a kind of data and model.
struct Reference {
  explicit Reference(int64_t numel) : initial(1, numel), updated(1, numel), bf16(1, numel) {}
  verify::Outcome initial, updated, bf16;
  float eps = 0;  // of AdamW, where a gradient that is rounding alone counts little
};

class Pairwise {
 public:
  explicit Pairwise(int workers)
      : workers_(workers),
        cover_(CoverPairs(Spec(Variant::kLlama), workers, kSequences)),
        batches_{BatchesOf(false), BatchesOf(true)} {
    for (int v = 0; v < kNumVariants; ++v) numel_ = std::max(numel_, NumElements(static_cast<Variant>(v)));
    outcome_ = std::make_unique<verify::Outcome>(workers, numel_);
    for (const bool packed : {false, true}) {
      for (int v = 0; v < kNumVariants; ++v)
        references_[{packed, static_cast<Variant>(v)}] = std::make_unique<Reference>(numel_);
    }
  }

  absl::Status Run() {
    TRAINCTL_RETURN_IF_ERROR(
        verify::RunTogether(1, [&](comm::Communicator& communicator, comm::Group& world) {
          return RunAlone(communicator, world, /*updates=*/false);
        }));
    const auto least = static_cast<float>(optim::kAdamW.defaults.eps);
    for (auto& [key, reference] : references_) {
      reference->eps = verify::EpsAboveRounding(least, reference->initial, NumElements(key.second));
    }
    TRAINCTL_RETURN_IF_ERROR(
        verify::RunTogether(1, [&](comm::Communicator& communicator, comm::Group& world) {
          return RunAlone(communicator, world, /*updates=*/true);
        }));
    return verify::RunTogether(
        workers_, [&](comm::Communicator& communicator, comm::Group& world) -> absl::Status {
          int num_failed = 0;
          for (const PairCell& cell : cover_.cells) {
            verify::Trial trial = TrialOf(cell);
            const Reference& reference = *references_.at({cell.is_packed, cell.variant});
            trial.update.eps = reference.eps;
            const absl::Status status = RunOne(trial, cell.is_packed, communicator, world, *outcome_);
            if (!status.ok()) {
              return absl::Status(status.code(), absl::StrCat(cell.ToString(), ": ", status.message()));
            }
            if (communicator.rank() != 0) continue;
            const std::string wrong = Judge(cell, trial, reference);
            if (wrong.empty()) continue;
            ++num_failed;
            std::printf("FAILED %s: %s\n", cell.ToString().c_str(), wrong.c_str());
          }
          if (communicator.rank() != 0) return absl::OkStatus();
          std::printf(
              "%d cells on %d workers with every pair of %d choices, %d pairs: %d failed; worst gradient "
              "error "
              "%.1e in fp32, in bf16 %.2f times that of one process\n",
              static_cast<int>(cover_.cells.size()), workers_, cover_.num_choices, cover_.num_pairs,
              num_failed, worst_gradient_, worst_rounding_);
          std::fflush(stdout);
          return num_failed == 0 ? absl::OkStatus() : InternalError("cells failed");
        });
  }

 private:
  absl::Status RunOne(const verify::Trial& trial, bool packed, comm::Communicator& communicator,
                      comm::Group& world, verify::Outcome& outcome) const {
    const absl::Span<const verify::Batch> batches(batches_[packed ? 1 : 0]);
    return verify::RunTrial(trial, device::Device::Cpu(), communicator, world,
                            batches.subspan(0, static_cast<size_t>(trial.num_steps)), nullptr, outcome);
  }

  absl::Status RunAlone(comm::Communicator& communicator, comm::Group& world, bool updates) {
    for (auto& [key, reference] : references_) {
      const auto [packed, variant] = key;
      verify::Trial trial =
          verify::OnOneProcess(TrialOf({.layout = {.micro_batch = kSequences}, .variant = variant}));
      if (updates) {
        trial.update.eps = reference->eps;
        TRAINCTL_RETURN_IF_ERROR(RunOne(trial, packed, communicator, world, reference->updated));
        continue;
      }
      trial.update.apply = false;
      trial.num_steps = 1;
      TRAINCTL_RETURN_IF_ERROR(RunOne(trial, packed, communicator, world, reference->initial));
      trial.setting.types.compute = DType::kBF16;
      TRAINCTL_RETURN_IF_ERROR(RunOne(trial, packed, communicator, world, reference->bf16));
    }
    return absl::OkStatus();
  }

  std::string Judge(const PairCell& cell, const verify::Trial& trial, const Reference& reference) {
    const std::vector<model::Parameter> inventory = model::Inventory(trial.spec);
    if (cell.is_bf16) return JudgeBf16(reference, inventory);
    const verify::Comparison comparison =
        verify::Compare(*outcome_, reference.updated, workers_, inventory,
                        {.loss = 1e-6, .grad_norm = 1e-6, .gradient = 1e-5});
    worst_gradient_ = std::max(worst_gradient_, comparison.WorstGradient());
    if (!comparison.wrong.empty()) return comparison.wrong;
    const std::string update =
        verify::CompareUpdate(*outcome_, reference.updated, reference.initial, inventory);
    if (!update.empty()) return absl::StrCat("after ", kUpdates, " updates: ", update);
    for (int r = 0; r < workers_; ++r) {
      const int64_t predicted = outcome_->rank(r).predicted_peak, measured = outcome_->rank(r).measured_peak;
      if (std::abs(predicted - measured) > kMemorySlackBytes)
        return absl::StrCat("peak memory of rank ", r, " predicted ", predicted, ", measured ", measured);
    }
    return "";
  }

  // The layout's error against fp32 beside that of one process.
  std::string JudgeBf16(const Reference& reference, const std::vector<model::Parameter>& inventory) {
    const verify::Tolerances any{.loss = 1, .grad_norm = 1, .gradient = 1};
    const verify::Comparison own = verify::Compare(*outcome_, reference.initial, workers_, inventory, any);
    const verify::Comparison one = verify::Compare(reference.bf16, reference.initial, 1, inventory, any);
    if (!own.wrong.empty()) return own.wrong;
    worst_rounding_ = std::max(worst_rounding_, own.gradient_error / one.gradient_error);
    return verify::CompareRounding(DType::kBF16, own, one, inventory);
  }

  const int workers_;
  const PairCells cover_;
  const std::vector<verify::Batch> batches_[2];  // index: whether they are packed
  int64_t numel_ = 0;
  // Memory that the ranks share.
  std::unique_ptr<verify::Outcome> outcome_;
  std::map<std::pair<bool, Variant>, std::unique_ptr<Reference>> references_;  // keys: packing, model
  double worst_gradient_ = 0;
  double worst_rounding_ = 0;  // in bf16, times that of one process
};

}  // namespace

int RunPairwise(int workers) {
  const absl::Status status = Pairwise(workers).Run();
  if (!status.ok()) std::printf("FAILED: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace trainctl::equivalence
