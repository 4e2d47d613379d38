#include "published/calibrate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "base/status.h"
#include "frameworks/price_memory.h"
#include "frameworks/price_time.h"

namespace trainctl::published {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
// The multipliers that are tried are powers of this; the search begins with kFirstSteps of them at a time.
constexpr double kStep = 1.02;
constexpr int kFirstSteps = 8;
constexpr int kNumTimeConstants = 3;

// Positions of the time's multipliers on the grid of powers.
using Point = std::array<int, kNumTimeConstants>;

double Multiplier(int steps) { return std::pow(kStep, steps); }
bool InBounds(int steps) {
  return Multiplier(steps) >= frameworks::kLeastMultiplier &&
         Multiplier(steps) <= frameworks::kMostMultiplier;
}
frameworks::Tuning TuningAt(const Point& point) {
  frameworks::Tuning tuning;
  tuning.matmul_rate = Multiplier(point[0]);
  tuning.memory_bandwidth = Multiplier(point[1]);
  tuning.link_bandwidth = Multiplier(point[2]);
  return tuning;
}

// Rows of one configuration, once.
struct Row {
  const PublishedRun* run = nullptr;
  std::string source;
  double tensors_gib = 0, reserved_gib = 0, beyond_gib = 0;  // by price, untuned
};

// Prices every row at a point once, however many fits ask for it.
class Fitter {
 public:
  explicit Fitter(absl::Span<const PublishedRun> runs) : runs_(WithMedians(runs)) {
    std::set<std::string> seen;
    for (const PublishedRun& run : runs_) {
      if (!run.workload.has_value() || (run.measured_step_seconds <= 0 && run.measured_memory_gib <= 0))
        continue;
      if (!seen.insert(run.configuration).second) continue;
      Row row;
      row.run = &run;
      row.source = SourceRepository(run.source);
      const frameworks::MemoryPrice price = frameworks::PriceMemory(*run.workload);
      const bool tensors = frameworks::CountsTensors(run.metric);
      row.tensors_gib = (tensors ? price.Of(run.metric) : price.allocated_bytes) / kGiB;
      row.reserved_gib = (price.reserved_bytes - price.allocated_bytes) / kGiB;
      if (run.metric == frameworks::MemoryMetric::kDevice)
        row.beyond_gib = (price.device_bytes - price.reserved_bytes) / kGiB;
      rows_.push_back(std::move(row));
    }
  }

  const std::vector<Row>& rows() const { return rows_; }

  // Seconds of every row; 0 where none was measured.
  const std::vector<double>& SecondsAt(const Point& point) {
    const auto [it, is_new] = seconds_.try_emplace(point);
    if (!is_new) return it->second;
    for (const Row& row : rows_) {
      double seconds = 0;
      if (row.run->measured_step_seconds > 0) {
        frameworks::Workload workload = *row.run->workload;
        const frameworks::TunedMachine machine(TuningAt(point), *workload.device, *workload.node);
        machine.Apply(workload);
        seconds = frameworks::PriceTime(workload).step_seconds;
      }
      it->second.push_back(seconds);
    }
    return it->second;
  }

  double MemoryGib(const Row& row, double reserved_share) const {
    if (frameworks::CountsTensors(row.run->metric)) return row.tensors_gib;
    return row.tensors_gib + row.reserved_gib * reserved_share + row.beyond_gib;
  }

  // The multipliers that all rows but those of `left_out` give (null: all rows).
  frameworks::Tuning Fit(const std::string* left_out) {
    frameworks::Tuning tuning = TuningAt(FitTime(left_out));
    tuning.reserved_share = Multiplier(FitReserved(left_out));
    return tuning;
  }

  Point PointOf(const frameworks::Tuning& tuning) const {
    const auto steps = [](double multiplier) {
      return static_cast<int>(std::lround(std::log(multiplier) / std::log(kStep)));
    };
    return {steps(tuning.matmul_rate), steps(tuning.memory_bandwidth), steps(tuning.link_bandwidth)};
  }

  // Errors of the rows of `source` (null: of all), in percent.
  void Errors(const frameworks::Tuning& tuning, const std::string* source, std::vector<double>& time,
              std::vector<double>& memory) {
    const std::vector<double>& seconds = SecondsAt(PointOf(tuning));
    for (size_t i = 0; i < rows_.size(); ++i) {
      const Row& row = rows_[i];
      if (source != nullptr && row.source != *source) continue;
      const PublishedRun& run = *row.run;
      if (run.measured_step_seconds > 0) time.push_back(PercentOff(seconds[i], run.measured_step_seconds));
      if (run.measured_memory_gib > 0)
        memory.push_back(PercentOff(MemoryGib(row, tuning.reserved_share), run.measured_memory_gib));
    }
  }

 private:
  static bool Counts(const Row& row, const std::string* left_out) {
    return left_out == nullptr || row.source != *left_out;
  }

  // The pull toward the data sheet: as much as so many rows that are off by the multiplier.
  static double Prior(int steps) { return kPriorRows * std::abs(steps) * std::log(kStep); }

  double TimeLoss(const Point& point, const std::string* left_out) {
    double loss = 0;
    for (int steps : point) loss += Prior(steps);
    const std::vector<double>& seconds = SecondsAt(point);
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (seconds[i] > 0 && Counts(rows_[i], left_out))
        loss += std::abs(std::log(seconds[i] / rows_[i].run->measured_step_seconds));
    }
    return loss;
  }

  // From the data sheet by ever smaller steps: along one constant, and where none helps along two at once.
  // Equal points do not move it, so that the answer depends on nothing but the rows.
  Point FitTime(const std::string* left_out) {
    Point best = {};
    double least = TimeLoss(best, left_out);
    const auto move = [&](const std::vector<Point>& directions, int step) {
      bool moved = false;
      for (const Point& direction : directions) {
        Point next = best;
        bool possible = true;
        for (size_t k = 0; k < next.size(); ++k) {
          next[k] += direction[k] * step;
          possible = possible && InBounds(next[k]);
        }
        if (!possible) continue;
        const double loss = TimeLoss(next, left_out);
        if (loss >= least - kLeastGain) continue;
        least = loss;
        best = next;
        moved = true;
      }
      return moved;
    };
    for (int step = kFirstSteps; step >= 1; step /= 2) {
      while (move(Directions(1), step) || move(Directions(2), step)) {
      }
    }
    return best;
  }

  // All that change so many constants.
  static std::vector<Point> Directions(int changed) {
    std::vector<Point> directions;
    for (int a = -1; a <= 1; ++a) {
      for (int b = -1; b <= 1; ++b) {
        for (int c = -1; c <= 1; ++c) {
          if (std::abs(a) + std::abs(b) + std::abs(c) == changed) directions.push_back({a, b, c});
        }
      }
    }
    return directions;
  }

  int FitReserved(const std::string* left_out) const {
    int best = 0;
    double least = 0;
    bool first = true;
    for (int distance = 0; InBounds(distance); ++distance) {
      for (int steps : {distance, -distance}) {
        double loss = 0, moved = 0;
        int64_t counted = 0;
        for (const Row& row : rows_) {
          if (row.run->measured_memory_gib <= 0 || frameworks::CountsTensors(row.run->metric) ||
              !Counts(row, left_out))
            continue;
          const double gib = MemoryGib(row, Multiplier(steps));
          loss += std::abs(std::log(gib / row.run->measured_memory_gib));
          moved += std::abs(std::log(gib / MemoryGib(row, 1)));
          ++counted;
        }
        // A share of a small part: what the prior's rows are off by is what it moves the whole.
        if (counted > 0) loss += kPriorRows * moved / static_cast<double>(counted);
        if (first || loss < least - kLeastGain) {
          least = loss;
          best = steps;
          first = false;
        }
      }
    }
    return best;
  }

  static constexpr double kLeastGain = 1e-9;
  std::vector<PublishedRun> runs_;
  std::vector<Row> rows_;
  std::map<Point, std::vector<double>> seconds_;
};

}  // namespace

absl::StatusOr<Calibration> Calibrate(absl::Span<const PublishedRun> runs) {
  Fitter fitter(runs);
  if (fitter.rows().empty()) {
    return UsageError(
        "no row can be priced and has a measured time or memory; `trainctl score FILE --out OUT.csv` gives "
        "the reason of every row");
  }
  Calibration calibration;
  frameworks::HardwareProfile& profile = calibration.profile;
  std::set<std::string> devices;
  for (const Row& row : fitter.rows()) {
    devices.insert(row.run->workload->device->name);
    calibration.timed += row.run->measured_step_seconds > 0;
    calibration.reserved += row.run->measured_memory_gib > 0 && !frameworks::CountsTensors(row.run->metric);
  }
  profile.devices.assign(devices.begin(), devices.end());
  profile.rows = static_cast<int64_t>(fitter.rows().size());
  profile.tuning = fitter.Fit(nullptr);
  std::vector<double> time, memory;
  fitter.Errors(frameworks::Tuning{}, nullptr, time, memory);
  calibration.time_before = Summarize(time);
  calibration.memory_before = Summarize(memory);
  time.clear();
  memory.clear();
  fitter.Errors(profile.tuning, nullptr, time, memory);
  calibration.time_after = Summarize(time);
  calibration.memory_after = Summarize(memory);
  return calibration;
}

std::vector<LeftOut> LeaveOneSourceOut(absl::Span<const PublishedRun> runs) {
  Fitter fitter(runs);
  std::set<std::string> sources;
  for (const Row& row : fitter.rows()) sources.insert(row.source);
  std::vector<LeftOut> out;
  std::vector<double> all_time_before, all_time_after, all_memory_before, all_memory_after;
  for (const std::string& source : sources) {
    LeftOut left;
    left.source = source;
    left.tuning = fitter.Fit(&source);
    std::vector<double> time_before, time_after, memory_before, memory_after;
    fitter.Errors(frameworks::Tuning{}, &source, time_before, memory_before);
    fitter.Errors(left.tuning, &source, time_after, memory_after);
    left.time_before = Summarize(time_before);
    left.time_after = Summarize(time_after);
    left.memory_before = Summarize(memory_before);
    left.memory_after = Summarize(memory_after);
    const auto append = [](std::vector<double>& all, const std::vector<double>& some) {
      all.insert(all.end(), some.begin(), some.end());
    };
    append(all_time_before, time_before);
    append(all_time_after, time_after);
    append(all_memory_before, memory_before);
    append(all_memory_after, memory_after);
    out.push_back(std::move(left));
  }
  LeftOut all;
  all.source = "all";
  all.tuning = fitter.Fit(nullptr);
  all.time_before = Summarize(all_time_before);
  all.time_after = Summarize(all_time_after);
  all.memory_before = Summarize(all_memory_before);
  all.memory_after = Summarize(all_memory_after);
  out.push_back(std::move(all));
  return out;
}

}  // namespace trainctl::published
