// Finds the seconds per unit of work from steps that were measured. The fit is a non-negative least-squares
// one over all operators of all probes, each weighted by its probe's step, so that what takes long is met
// best. Pure; thread safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "simulate/cost.h"

namespace trainctl::simulate {

// One short run: what its step asked for and what it took.
struct Probe {
  std::map<std::string, Work> work;       // WorkOfStep
  std::map<std::string, double> seconds;  // by the same names, kCommunication and kOther excepted
  double step_seconds = 0;
};

// `initial` gives the constants that no probe exercises.
Rates FitRates(absl::Span<const Probe> probes, const Rates& initial);

// Predicted over measured step time, less one; per probe.
std::vector<double> ErrorsOf(absl::Span<const Probe> probes, const Rates& rates);

}  // namespace trainctl::simulate
