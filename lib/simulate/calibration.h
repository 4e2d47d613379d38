// Fits the seconds per unit of work to measured steps, by non-negative least squares. Each operator of each
// probe gives one equation, and so does the rest of each probe's step. Each equation is divided by its
// probe's step time, so the fit is best for the operators that take a large part of their step. Pure
// functions; thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "simulate/cost.h"

namespace trainctl::simulate {

// The work and the measured times of one step of a short run.
struct Probe {
  std::map<std::string, Work> work;  // result of WorkOfStep
  // Measured seconds under the same names, without kCommunication and kOther.
  std::map<std::string, double> seconds;
  double step_seconds = 0;
};

// Returns `initial` with the fitted rates, and with `measured` set. A resource that no probe uses keeps its
// rate from `initial`.
Rates FitRates(absl::Span<const Probe> probes, const Rates& initial);

// Returns the relative error of the predicted step time of each probe: predicted / measured - 1.
std::vector<double> ErrorsOf(absl::Span<const Probe> probes, const Rates& rates);

}  // namespace trainctl::simulate
