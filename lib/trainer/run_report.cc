#include "trainer/run_report.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "base/files.h"
#include "base/json.h"
#include "base/status.h"
#include "base/units.h"
#include "parallel/sharded_state.h"

namespace trainctl::trainer {
namespace {

constexpr int kWarmUpSteps = 3;

// The parts of a step that people look at.
enum Part { kProducts, kAttention, kLoss, kOtherOperators, kOptimizer, kRest, kNumParts };
constexpr const char* kPartNames[kNumParts] = {"linear layers",   "attention", "head and loss",
                                               "other operators", "optimizer", "communication and rest"};
using SecondsByPart = std::array<double, kNumParts>;

Part PartOf(const std::string& name) {
  if (absl::StartsWith(name, "linear cross entropy")) return kLoss;
  if (absl::StartsWith(name, "linear")) return kProducts;
  if (absl::StartsWith(name, "attention")) return kAttention;
  if (name == "optimizer step" || name == "gradient norm") return kOptimizer;
  if (name == simulate::kCommunication || name == simulate::kOther) return kRest;
  return kOtherOperators;
}

Json MemoryToJson(const MemoryByCategory& bytes) {
  Json json = Json::object();
  for (size_t c = 0; c < bytes.size(); ++c) {
    json[std::string(schedule::CategoryName(static_cast<schedule::Category>(c)))] = bytes[c];
  }
  return json;
}

Json PartsToJson(const SecondsByPart& seconds) {
  Json json = Json::object();
  for (size_t part = 0; part < seconds.size(); ++part) json[kPartNames[part]] = seconds[part];
  return json;
}

// Of the ranks at one place of the pipeline.
struct PlacePeaks {
  int64_t predicted = 0;
  int64_t measured = 0;  // of the rank that needed most
};

int PlaceOf(const plan::PlannedStep& planned, size_t rank) {
  return planned.ledger.mesh().coordinate(static_cast<int>(rank), layout::Axis::kPp);
}

// Bytes by rank. Of the ranks with one program those that hold only copies write no checkpoint, and have no
// room for one: it would live all the time.
std::vector<int64_t> PredictPeaks(const plan::PlannedStep& planned, size_t num_ranks) {
  std::vector<int64_t> of_writers, copies;
  for (const schedule::Program& program : planned.step.programs) {
    of_writers.push_back(simulate::SimulateMemory(program).peak_bytes);
    copies.push_back(0);
    for (const schedule::Value& value : program.values)
      copies.back() += value.kind == schedule::ValueKind::kCheckpointCopy ? value.bytes : 0;
  }
  std::vector<int64_t> peaks;
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    const auto place = static_cast<size_t>(PlaceOf(planned, rank));
    const bool writes = planned.ledger.WritesCheckpoint(static_cast<int>(rank));
    peaks.push_back(of_writers[place] - (writes ? 0 : copies[place]));
  }
  return peaks;
}

std::vector<PlacePeaks> PeaksByPlace(const plan::PlannedStep& planned, const std::vector<int64_t>& predicted,
                                     const std::vector<MeasuredMemory>& measured) {
  std::vector<PlacePeaks> places(planned.step.programs.size());
  for (size_t rank = 0; rank < measured.size(); ++rank) {
    PlacePeaks& place = places[static_cast<size_t>(PlaceOf(planned, rank))];
    place.predicted = std::max(place.predicted, predicted[rank]);
    place.measured = std::max(place.measured, measured[rank].peak_bytes());
  }
  return places;
}

void TellMemory(const plan::Plan& plan, const std::vector<PlacePeaks>& places, const MeasuredMemory& measured,
                std::vector<std::string>& lines) {
  const bool is_met = simulate::MeetsPeak(plan.predicted.peak_bytes, measured.peak_bytes());
  for (size_t place = 0; places.size() > 1 && place < places.size(); ++place) {
    lines.push_back(absl::StrFormat("tensor memory of pipeline rank %d: predicted %s, measured %s",
                                    static_cast<int>(place), FormatBytes(places[place].predicted),
                                    FormatBytes(places[place].measured)));
  }
  lines.push_back(absl::StrFormat("tensor memory per worker: predicted %s, measured %s%s; at the peak:",
                                  FormatBytes(plan.predicted.peak_bytes), FormatBytes(measured.peak_bytes()),
                                  is_met ? "" : " (differs by more than 3 %, or 2 MiB below 64 MiB)"));
  for (size_t c = 0; c < measured.at_peak.size(); ++c) {
    lines.push_back(absl::StrFormat(
        "  %-22s predicted %10s, measured %10s", schedule::CategoryName(static_cast<schedule::Category>(c)),
        FormatBytes(plan.predicted.at_peak[c]), FormatBytes(measured.at_peak[c])));
  }
  if (measured.library_scratch_bytes > 0) {
    lines.push_back(
        absl::StrFormat("  and %s that libraries allocated for matrix products, which plans do not include",
                        FormatBytes(measured.library_scratch_bytes)));
  }
}

void TellTime(const plan::Plan& plan, const StepTimes& times, const SecondsByPart& predicted,
              const SecondsByPart& measured, std::vector<std::string>& lines) {
  lines.push_back(absl::StrFormat(
      "step time: predicted %.4g s%s, measured %.4g s (median of %d steps; mean %.4g s); breakdown of the "
      "mean:",
      plan::Chosen(plan).step_seconds,
      plan.rates.measured
          ? ""
          : absl::StrCat(" (roughly; `trainctl calibrate --device ", plan.device, "` measures this machine)"),
      times.MedianSeconds(), times.count(), times.MeanSeconds()));
  for (size_t part = 0; part < measured.size(); ++part) {
    lines.push_back(absl::StrFormat("  %-22s predicted %8.4g s, measured %8.4g s", kPartNames[part],
                                    predicted[part], measured[part]));
  }
}

}  // namespace

void StepTimes::Add(double step_seconds, const Named& phases, const Named& operators) {
  if (++seen_ <= kWarmUpSteps) return;
  steps_.push_back(step_seconds);
  for (const Named* group : {&phases, &operators}) {
    for (const auto& [name, seconds] : *group) sums_[name] += seconds;
  }
}

double StepTimes::MedianSeconds() const {
  if (steps_.empty()) return 0;
  std::vector<double> sorted = steps_;
  std::sort(sorted.begin(), sorted.end());
  return sorted[sorted.size() / 2];
}

double StepTimes::MeanSeconds() const {
  return std::accumulate(steps_.begin(), steps_.end(), 0.0) /
         static_cast<double>(std::max<size_t>(steps_.size(), 1));
}

std::map<std::string, double> StepTimes::MeanByName() const {
  std::map<std::string, double> means = sums_;
  for (auto& [name, seconds] : means) seconds /= static_cast<double>(std::max<size_t>(steps_.size(), 1));
  return means;
}

absl::StatusOr<std::vector<MeasuredMemory>> GatherMemory(const device::Device& device, comm::Group& world) {
  constexpr size_t kScratch = schedule::kNumCategories, kNumbers = kScratch + 1;
  std::vector<double> measured(static_cast<size_t>(world.size()) * kNumbers);
  const absl::Span<double> mine =
      absl::MakeSpan(measured).subspan(static_cast<size_t>(world.index()) * kNumbers);
  const device::TaggedBytes own = device.memory().at_peak;
  for (size_t c = 0; c < schedule::kNumCategories; ++c) {
    const auto category = static_cast<schedule::Category>(c);
    mine[c] = static_cast<double>(own[static_cast<size_t>(parallel::MemoryTag(category))]);
    if (category == schedule::Category::kActivations) mine[c] += static_cast<double>(own[0]);
  }
  mine[kScratch] = static_cast<double>(own[device::kScratchTag]);
  TRAINCTL_RETURN_IF_ERROR(world.AllReduceScalars("report", absl::MakeSpan(measured)));
  std::vector<MeasuredMemory> by_rank(static_cast<size_t>(world.size()));
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    const double* const numbers = &measured[rank * kNumbers];
    MeasuredMemory& of_rank = by_rank[rank];
    for (size_t c = 0; c < of_rank.at_peak.size(); ++c) of_rank.at_peak[c] = static_cast<int64_t>(numbers[c]);
    of_rank.library_scratch_bytes = static_cast<int64_t>(numbers[kScratch]);
  }
  return by_rank;
}

absl::StatusOr<std::vector<std::string>> WriteReport(const std::string& path, const plan::Plan& plan,
                                                     const model::Architecture& spec,
                                                     const plan::PlannedStep& planned,
                                                     const std::string& executed_hash,
                                                     const std::vector<MeasuredMemory>& measured_memory,
                                                     const StepTimes& times) {
  const auto work = simulate::WorkOfStep(planned.step, planned.ledger, planned.options);
  const std::map<std::string, double> means = times.MeanByName();
  SecondsByPart predicted = {}, measured = {};
  measured[kRest] = times.MeanSeconds();  // as the parts: a few slow steps move means and not the median
  for (const auto& [name, units] : work) {
    predicted[PartOf(name)] += plan.rates.Seconds(units);
    const auto mean = means.find(name);
    if (mean == means.end()) continue;
    measured[PartOf(name)] += mean->second;
    measured[kRest] -= mean->second;
  }
  measured[kRest] = std::max(measured[kRest], 0.0);

  const MeasuredMemory& largest = *std::max_element(
      measured_memory.begin(), measured_memory.end(),
      [](const MeasuredMemory& a, const MeasuredMemory& b) { return a.peak_bytes() < b.peak_bytes(); });
  const std::vector<int64_t> predicted_peaks = PredictPeaks(planned, measured_memory.size());
  bool is_met = true;
  Json ranks = Json::array();
  for (size_t rank = 0; rank < measured_memory.size(); ++rank) {
    const int64_t measured_bytes = measured_memory[rank].peak_bytes();
    is_met = is_met && simulate::MeetsPeak(predicted_peaks[rank], measured_bytes);
    ranks.push_back(
        {{"predicted_peak_bytes", predicted_peaks[rank]}, {"measured_peak_bytes", measured_bytes}});
  }
  Json report = {{"schema", "trainctl.report.v1"},
                 {"step_hash", executed_hash},
                 {"predicted_peak_bytes", plan.predicted.peak_bytes},
                 {"measured_peak_bytes", largest.peak_bytes()},
                 {"peak_is_met", is_met},
                 {"predicted_at_peak", MemoryToJson(plan.predicted.at_peak)},
                 {"measured_at_peak", MemoryToJson(largest.at_peak)},
                 {"library_scratch_bytes", largest.library_scratch_bytes},
                 {"ranks", std::move(ranks)}};
  if (plan.shares_devices) report["shared_devices"] = true;
  std::vector<std::string> lines;
  TellMemory(plan, PeaksByPlace(planned, predicted_peaks, measured_memory), largest, lines);
  if (times.count() > 0) {
    report["rates_measured"] = plan.rates.measured;
    report["predicted_step_seconds"] = plan::Chosen(plan).step_seconds;
    report["measured_step_seconds"] = times.MedianSeconds();
    report["measured_mean_step_seconds"] = times.MeanSeconds();  // what measured_seconds are parts of
    report["predicted_seconds"] = PartsToJson(predicted);
    report["measured_seconds"] = PartsToJson(measured);
    TellTime(plan, times, predicted, measured, lines);
  }
  TRAINCTL_RETURN_IF_ERROR(WriteFileAtomic(path, FormatJson(report, 2) + "\n"));
  return lines;
}

}  // namespace trainctl::trainer
