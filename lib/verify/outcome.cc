#include "verify/outcome.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::verify {
namespace {

double Relative(double a, double b) { return std::abs(a - b) / std::max(std::abs(b), 1e-30); }

// NaN is worse than anything.
void Raise(double& worst, double error) {
  if (!(error <= worst) && !std::isnan(worst)) worst = error;
}

double Norm(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

int64_t Numel(absl::Span<const model::Parameter> inventory) {
  int64_t numel = 0;
  for (const model::Parameter& parameter : inventory) numel += parameter.numel;
  return numel;
}

}  // namespace

Outcome::Outcome(int max_ranks, int64_t numel) : numel_(numel) {
  const size_t head = static_cast<size_t>(max_ranks) * sizeof(RankOutcome);
  bytes_ = head + 3 * static_cast<size_t>(numel) * sizeof(double);
  void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  TRAINCTL_CHECK_MSG(memory != MAP_FAILED, "no memory to share for ", bytes_, " bytes");
  ranks_ = new (memory) RankOutcome[static_cast<size_t>(max_ranks)];
  numbers_ = reinterpret_cast<double*>(static_cast<char*>(memory) + head);
}

Outcome::~Outcome() { munmap(ranks_, bytes_); }

double Comparison::WorstGradient() const {
  double worst = 0;
  for (const ParameterError& parameter : parameters) Raise(worst, parameter.error);
  return worst;
}

Comparison Compare(const Outcome& outcome, const Outcome& reference, int world_size,
                   absl::Span<const model::Parameter> inventory, const Tolerances& tolerances) {
  Comparison result;
  const auto complain = [&result](const std::string& what) {
    if (result.wrong.empty()) result.wrong = what;
  };
  const RankOutcome& expected = reference.rank(0);
  for (int r = 0; r < world_size; ++r) {
    const RankOutcome& own = outcome.rank(r);
    Raise(result.loss_error, Relative(own.loss, expected.loss));
    if (!(Relative(own.loss, expected.loss) <= tolerances.loss))
      complain(absl::StrCat("loss ", own.loss, " of rank ", r, " instead of ", expected.loss));
    Raise(result.loss_error, Relative(own.eval_loss, expected.eval_loss));
    if (!(Relative(own.eval_loss, expected.eval_loss) <= tolerances.loss)) complain("evaluation loss");
    if (own.eval_tokens != expected.eval_tokens) complain("evaluation tokens");
    Raise(result.grad_norm_error, Relative(own.grad_norm, expected.grad_norm));
    if (!(Relative(own.grad_norm, expected.grad_norm) <= tolerances.grad_norm))
      complain(
          absl::StrCat("gradient norm ", own.grad_norm, " of rank ", r, " instead of ", expected.grad_norm));
  }
  double all = 0;
  for (int64_t i = 0; i < Numel(inventory); ++i) all += reference.gradients()[i] * reference.gradients()[i];
  all = std::sqrt(all);
  int64_t base = 0;
  double all_off = 0;
  for (size_t p = 0; p < inventory.size(); ++p) {
    double squares = 0, difference = 0, product = 0;
    for (int64_t i = base; i < base + inventory[p].numel; ++i) {
      const double r = reference.gradients()[i], own = outcome.gradients()[i];
      squares += r * r;
      product += own * r;
      difference += (own - r) * (own - r);
    }
    base += inventory[p].numel;
    all_off += difference;
    const double error = std::sqrt(difference) / std::max(std::sqrt(squares), tolerances.floor * all);
    result.parameters.push_back({static_cast<int>(p), error, squares > 0 ? product / squares : 1});
    if (!(error <= tolerances.gradient))
      complain(absl::StrCat("gradient of ", inventory[p].name, " off by ", error));
  }
  result.gradient_error = std::sqrt(all_off) / std::max(all, 1e-30);
  return result;
}

std::string CompareRounding(DType precision, const Comparison& layout, const Comparison& one_process,
                            absl::Span<const model::Parameter> inventory) {
  constexpr double kOfAll = 1.5, kOfOne = 2;
  const double floor = precision == DType::kBF16 ? 2e-3 : 5e-6;
  const auto is_within = [floor](double error, double alone, double times) {
    return error <= times * std::max(alone, floor);
  };
  if (!is_within(layout.gradient_error, one_process.gradient_error, kOfAll)) {
    return absl::StrCat("gradients off by ", layout.gradient_error, ", those of one process by ",
                        one_process.gradient_error);
  }
  for (size_t p = 0; p < inventory.size(); ++p) {
    const double error = layout.parameters[p].error, alone = one_process.parameters[p].error;
    // The errors of n elements differ by chance, too: the ratio of their norms has a deviation of about 1 /
    // sqrt(n).
    const double by_chance = 3 / std::sqrt(static_cast<double>(inventory[p].numel));
    if (!is_within(error, alone, kOfOne * (1 + by_chance))) {
      return absl::StrCat("gradient of ", inventory[p].name, " off by ", error, ", that of one process by ",
                          alone);
    }
  }
  return "";
}

std::string CompareUpdate(const Outcome& outcome, const Outcome& reference, const Outcome& initial,
                          absl::Span<const model::Parameter> inventory, const Tolerances& tolerances) {
  const int64_t total = Numel(inventory);
  const double noise = tolerances.floor * reference.rank(0).grad_norm / std::sqrt(static_cast<double>(total));
  std::vector<double> way, way_off, state, state_off;
  for (int64_t i = 0; i < total; ++i) {
    state.push_back(reference.state()[i]);
    state_off.push_back(outcome.state()[i] - reference.state()[i]);
    if (std::abs(reference.gradients()[i]) < noise) continue;
    way.push_back(reference.parameters()[i] - initial.parameters()[i]);
    way_off.push_back(outcome.parameters()[i] - reference.parameters()[i]);
  }
  if (!(way.size() > static_cast<size_t>(total) / 2)) return "too few parameters receive a gradient";
  if (!(Norm(way_off) <= tolerances.gradient * Norm(way)))
    return absl::StrCat("update off by ", Norm(way_off) / Norm(way));
  if (!(Norm(state_off) <= tolerances.gradient * Norm(state)))
    return absl::StrCat("state off by ", Norm(state_off) / Norm(state));
  return "";
}

}  // namespace trainctl::verify
