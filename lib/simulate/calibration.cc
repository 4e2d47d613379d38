#include "simulate/calibration.h"

#include <algorithm>
#include <cmath>

namespace trainctl::simulate {
namespace {

// One equation: the units' seconds are to add up to `seconds`.
struct Row {
  Work work;
  double seconds = 0;
};

std::vector<Row> RowsOf(const Probe& probe) {
  std::vector<Row> rows;
  Row rest{.seconds = probe.step_seconds};
  for (const auto& [name, work] : probe.work) {
    const auto measured = probe.seconds.find(name);
    if (measured == probe.seconds.end()) {
      rest.work += work;
      continue;
    }
    rows.push_back({work, measured->second});
    rest.seconds -= measured->second;
  }
  // What the operators leave of the step: collectives and the step's own cost. Never less than nothing.
  rest.seconds = std::max(rest.seconds, 0.0);
  rows.push_back(rest);
  for (Row& row : rows) {
    for (double& units : row.work.units) units /= probe.step_seconds;
    row.seconds /= probe.step_seconds;
  }
  return rows;
}

// Non-negative least squares by coordinates: each is set to its best value in turn, which cannot be
// below nothing. Converges for any start, as the sum of squares is convex.
void Solve(const std::vector<Row>& rows, Rates& rates) {
  std::array<double, kNumResources> squares = {};
  for (const Row& row : rows) {
    for (size_t i = 0; i < squares.size(); ++i) squares[i] += row.work.units[i] * row.work.units[i];
  }
  std::vector<double> residuals;
  for (const Row& row : rows) residuals.push_back(row.seconds - rates.Seconds(row.work));
  for (int sweep = 0; sweep < 20000; ++sweep) {
    double change = 0;
    for (size_t i = 0; i < squares.size(); ++i) {
      if (squares[i] == 0) continue;
      double gradient = 0;
      for (size_t r = 0; r < rows.size(); ++r) gradient += residuals[r] * rows[r].work.units[i];
      const double before = rates.seconds_per_unit[i];
      const double after = std::max(0.0, before + gradient / squares[i]);
      const double step = after - before;
      if (step == 0) continue;
      rates.seconds_per_unit[i] = after;
      for (size_t r = 0; r < rows.size(); ++r) residuals[r] -= step * rows[r].work.units[i];
      change = std::max(change, std::abs(step) * std::sqrt(squares[i]));
    }
    if (change < 1e-12) return;
  }
}

}  // namespace

Rates FitRates(absl::Span<const Probe> probes, const Rates& initial) {
  std::vector<Row> rows;
  for (const Probe& probe : probes) {
    const std::vector<Row> of_probe = RowsOf(probe);
    rows.insert(rows.end(), of_probe.begin(), of_probe.end());
  }
  Rates rates = initial;
  Solve(rows, rates);
  rates.measured = true;
  return rates;
}

std::vector<double> ErrorsOf(absl::Span<const Probe> probes, const Rates& rates) {
  std::vector<double> errors;
  for (const Probe& probe : probes) {
    double seconds = 0;
    for (const auto& [name, work] : probe.work) seconds += rates.Seconds(work);
    errors.push_back(seconds / probe.step_seconds - 1);
  }
  return errors;
}

}  // namespace trainctl::simulate
