#include "verify/verify.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "schedule/layout_step.h"
#include "verify/exchanges.h"
#include "verify/ranks.h"
#include "verify/run_layout.h"

namespace trainctl::verify {
namespace {

constexpr int kUpdates = 3;
constexpr uint64_t kSeed = 1;

int64_t NumelOf(const std::vector<model::Parameter>& inventory) {
  int64_t numel = 0;
  for (const model::Parameter& parameter : inventory) numel += parameter.numel;
  return numel;
}

comm::FaultHook HookOf(const std::string& fault) {
  if (fault.empty()) return nullptr;
  const bool doubles = absl::EndsWith(fault, "=double");
  const std::string call = fault.substr(0, fault.rfind('='));
  return [call, doubles](absl::string_view name) {
    if (name != call) return comm::Fault::kNone;
    return doubles ? comm::Fault::kDouble : comm::Fault::kSkip;
  };
}

struct Attempt {
  Trial trial;
  Outcome* outcome = nullptr;
  comm::FaultHook fault = nullptr;
};

// On as many processes as their layout has ranks, one after another.
absl::Status RunTrials(const std::vector<Attempt>& attempts, absl::Span<const Batch> batches) {
  const int world_size = static_cast<int>(attempts[0].trial.layout.mesh.world_size());
  return RunTogether(world_size, [&](comm::Communicator& communicator, comm::Group& world) -> absl::Status {
    for (const Attempt& attempt : attempts) {
      const auto num_steps = static_cast<size_t>(attempt.trial.num_steps);
      TRAINCTL_RETURN_IF_ERROR(RunTrial(attempt.trial, device::Device::Cpu(), communicator, world,
                                        batches.subspan(0, num_steps), attempt.fault, *attempt.outcome));
    }
    return absl::OkStatus();
  });
}

// What `Trial`s come to: in fp64 before and after updates, and in the precision of the run.
struct Outcomes {
  Outcomes(int ranks, int64_t numel)
      : gradients(ranks, numel), updated(ranks, numel), rounded(ranks, numel) {}
  Outcome gradients, updated, rounded;
};

// Where a parameter lies, and what becomes of its gradient.
void Locate(const layout::Ledger& ledger, int parameter, Finding& finding) {
  const model::Parameter& whole = ledger.inventory()[static_cast<size_t>(parameter)];
  std::vector<std::string> parts;
  const layout::Mesh& mesh = ledger.mesh();
  if (mesh.tp > 1) {
    const int copies = ledger.Copies(parameter);
    parts.push_back(copies == mesh.tp ? "on every rank of tp"
                                      : absl::StrCat("split across tp (dimension ", whole.tensor_dim, ")"));
    if (copies > 1 && copies < mesh.tp) parts.push_back(absl::StrCat("with ", copies, " copies"));
  }
  if (mesh.dp_shard > 1) {
    parts.push_back(absl::StrCat(ledger.parameters_sharded()  ? "sharded"
                                 : ledger.gradients_sharded() ? "its gradient sharded"
                                                              : "its optimizer state sharded",
                                 " across dp_shard"));
  }
  const std::vector<int>& owners = ledger.owners(ledger.bucket_of(parameter));
  if (mesh.pp > 1) parts.push_back(absl::StrCat("on stage ranks ", absl::StrJoin(owners, ", "), " of pp"));
  finding.placement = parts.empty() ? "on every rank" : absl::StrJoin(parts, ", ");
  for (const layout::Axis axis : ledger.GradientAxes(parameter))
    finding.axes.emplace_back(layout::AxisName(axis));
}

// The same outcome, bit for bit.
bool IsSame(const Outcome& a, const Outcome& b, int num_ranks, int64_t numel) {
  for (int r = 0; r < num_ranks; ++r) {
    const RankOutcome &one = a.rank(r), &other = b.rank(r);
    if (one.loss != other.loss || one.grad_norm != other.grad_norm || one.eval_loss != other.eval_loss ||
        one.eval_tokens != other.eval_tokens)
      return false;
  }
  return std::equal(a.gradients(), a.gradients() + numel, b.gradients());
}

// Sums and gathers without which nothing changes are those that are not there. (One that is done twice is
// told by its gradients, where they have but one axis.) In the precision of the run, which is quicker.
absl::Status FindMissing(const Trial& trial, const schedule::LayoutStep& planned, const Batch& batch,
                         const Outcome& wrong, const comm::FaultHook& planted, Report& report) {
  const std::vector<Exchange> exchanges = ExchangesOf(planned);
  const int64_t numel = NumelOf(planned.ledger.inventory());
  std::vector<std::unique_ptr<Outcome>> outcomes;
  std::vector<Attempt> attempts;
  for (const Exchange& exchange : exchanges) {
    outcomes.push_back(std::make_unique<Outcome>(report.num_ranks, numel));
    attempts.push_back({trial, outcomes.back().get(), [&exchange, &planted](absl::string_view call) {
                          const comm::Fault fault = planted ? planted(call) : comm::Fault::kNone;
                          if (fault != comm::Fault::kNone) return fault;
                          return call == exchange.call ? comm::Fault::kSkip : comm::Fault::kNone;
                        }});
  }
  TRAINCTL_RETURN_IF_ERROR(RunTrials(attempts, {&batch, 1}));
  for (size_t i = 0; i < exchanges.size(); ++i) {
    if (IsSame(*outcomes[i], wrong, report.num_ranks, numel))
      report.missing.push_back({exchanges[i].call, exchanges[i].axis});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Report> Verify(const Subject& subject, const std::string& fault) {
  Report report;
  TRAINCTL_ASSIGN_OR_RETURN(report.small, Shrink(subject.spec, subject.layout, subject.setting.seq_len));
  const SmallRun& small = report.small;
  const std::vector<model::Parameter> inventory = model::Inventory(small.spec);
  report.num_ranks = static_cast<int>(small.layout.mesh.world_size());
  report.num_parameters = static_cast<int64_t>(inventory.size());

  Trial gradients{.spec = small.spec, .layout = small.layout};
  gradients.setting = subject.setting;
  gradients.setting.seq_len = small.seq_len;
  gradients.setting.types = schedule::Types::AllDouble();
  gradients.setting.on_device = gradients.setting.checkpoint_copy = false;
  gradients.setting.workspace_bytes = 0;
  gradients.setting.threads = 1;
  gradients.update.apply = false;
  gradients.update.z_loss = 1e-3f;
  Trial updates = gradients;
  updates.update = UpdateOf(*subject.setting.optimizer, inventory.size());
  updates.update.z_loss = gradients.update.z_loss;
  updates.num_steps = kUpdates;
  Trial rounded = gradients;
  rounded.setting.types = subject.setting.types;
  report.precision = rounded.setting.types.compute;

  const layout::Layout& layout = small.layout;
  const int64_t sequences = layout.micro_batch * layout.num_micro_batches * layout.mesh.data_degree();
  std::vector<Batch> batches;
  for (int step = 0; step < kUpdates; ++step)
    batches.emplace_back(BatchShape{sequences, small.seq_len, small.spec.vocab, 1}, kSeed + step);

  Outcomes alone(1, NumelOf(inventory)), together(report.num_ranks, NumelOf(inventory));
  const comm::FaultHook planted = HookOf(fault);
  TRAINCTL_RETURN_IF_ERROR(RunTrials({{OnOneProcess(gradients), &alone.gradients},
                                      {OnOneProcess(updates), &alone.updated},
                                      {OnOneProcess(rounded), &alone.rounded}},
                                     batches));
  TRAINCTL_RETURN_IF_ERROR(RunTrials({{gradients, &together.gradients, planted},
                                      {updates, &together.updated, planted},
                                      {rounded, &together.rounded, planted}},
                                     batches));

  constexpr Tolerances kTolerances = Tolerances::OfDouble();
  const Comparison exact =
      Compare(together.gradients, alone.gradients, report.num_ranks, inventory, kTolerances);
  report.wrong = exact.wrong;
  report.loss_error = exact.loss_error;
  report.grad_norm_error = exact.grad_norm_error;
  report.gradient_error = exact.WorstGradient();
  const auto worst =
      std::max_element(exact.parameters.begin(), exact.parameters.end(),
                       [](const ParameterError& a, const ParameterError& b) { return a.error < b.error; });
  report.worst_parameter = inventory[static_cast<size_t>(worst->parameter)].name;
  TRAINCTL_ASSIGN_OR_RETURN(
      const schedule::LayoutStep planned,
      schedule::BuildLayoutStep(small.spec, inventory, small.layout, gradients.setting));
  for (const ParameterError& error : exact.parameters) {
    if (error.error <= kTolerances.gradient) continue;
    Finding finding;
    finding.parameter = inventory[static_cast<size_t>(error.parameter)].name;
    finding.error = error.error;
    finding.ratio = error.ratio;
    Locate(planned.ledger, error.parameter, finding);
    report.findings.push_back(std::move(finding));
  }
  if (!exact.wrong.empty()) {
    TRAINCTL_RETURN_IF_ERROR(FindMissing(rounded, planned, batches[0], together.rounded, planted, report));
  }

  report.update_wrong =
      CompareUpdate(together.updated, alone.updated, alone.gradients, inventory, kTolerances);
  if (report.wrong.empty() && !report.update_wrong.empty())
    report.wrong = absl::StrCat("after ", kUpdates, " updates: ", report.update_wrong);
  const Tolerances any{.loss = 1, .grad_norm = 1, .gradient = 1};
  const Comparison own = Compare(together.rounded, alone.gradients, report.num_ranks, inventory, any);
  const Comparison one = Compare(alone.rounded, alone.gradients, 1, inventory, any);
  report.rounding_error = own.WorstGradient();
  report.rounding_error_alone = one.WorstGradient();
  report.rounding_wrong = CompareRounding(report.precision, own, one, inventory);
  if (report.wrong.empty() && !report.rounding_wrong.empty())
    report.wrong = absl::StrCat("in the precision of the run: ", report.rounding_wrong);
  return report;
}

}  // namespace trainctl::verify
