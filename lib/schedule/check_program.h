// Internal to the checker: proves the program of one class (see Check in step.h). The proof is based on the
// happens-before relation: which instructions have completed when another one starts, at any relative speed
// of the streams.
#pragma once

#include "absl/status/status.h"
#include "schedule/step.h"

namespace trainctl::schedule {

// Returns InternalError, from CheckFailure, if the program is wrong. `ledger` is null for a step without
// parameters.
absl::Status CheckProgram(const Step& step, const layout::Ledger* ledger, int own_class);

// Returns the InternalError that all parts of the checker use. It names the step, the class (if there are
// several), the instruction and the reason.
absl::Status CheckFailure(const Step& step, int own_class, int instruction, const std::string& reason);
// The same without an instruction. If `own_class` is -1, it does not name a class either.
absl::Status CheckFailure(const Step& step, int own_class, const std::string& reason);

}  // namespace trainctl::schedule
