#include "schedule/check_program.h"

#include "base/status.h"
#include "schedule/program_view.h"

namespace trainctl::schedule {

absl::Status CheckProgram(const Step& step, const layout::Ledger* ledger, int own_class) {
  TRAINCTL_RETURN_IF_ERROR(CheckShape(ProgramView(step, ledger, own_class, /*order=*/nullptr)));
  const HappensBefore order(step.programs[static_cast<size_t>(own_class)]);
  const ProgramView view(step, ledger, own_class, &order);
  TRAINCTL_RETURN_IF_ERROR(CheckValues(view));
  TRAINCTL_RETURN_IF_ERROR(CheckBlocks(view));
  if (ledger == nullptr) return absl::OkStatus();
  TRAINCTL_RETURN_IF_ERROR(CheckParameters(view));
  if (!step.has_update) return CheckNoUpdate(view);
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<int> last_reductions, CheckGradients(view));
  return CheckUpdate(view, last_reductions);
}

}  // namespace trainctl::schedule
