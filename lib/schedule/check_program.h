// The proof of one class's program: see Check in step.h. Everything is derived from "happens before": what
// has completed, whatever the streams' relative speed, when an instruction starts. Internal to the checker.
#pragma once

#include "absl/status/status.h"
#include "schedule/step.h"

namespace trainctl::schedule {

// `ledger` is null for a step without parameters.
absl::Status CheckProgram(const Step& step, const layout::Ledger* ledger, int own_class);

// The error of an instruction; every part of the checker words it so.
absl::Status CheckFailure(const Step& step, int own_class, int instruction, const std::string& reason);
// Of a class as a whole.
absl::Status CheckFailure(const Step& step, int own_class, const std::string& reason);

}  // namespace trainctl::schedule
