#include "apps/trainctl/measure_machine.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "apps/trainctl/planned_job.h"
#include "base/files.h"
#include "base/json.h"
#include "base/status.h"
#include "base/temporary_folder.h"
#include "plan/plan.h"
#include "planner/make_plan.h"
#include "recipe/load.h"
#include "simulate/calibration.h"

namespace trainctl::cli {
namespace {

// A small model: wide and narrow, long and short, with few and with many words, so that no two
// resources grow together. All but the first have more activations than caches hold, as real ones do.
struct ProbeShape {
  int layers, hidden, ffn, heads, kv_heads, vocab, seq_len, micro_batch, accumulation, zero_stage, tp = 1;
};
constexpr ProbeShape kShapes[] = {
    {4, 128, 352, 4, 2, 512, 128, 2, 2, 1},    {2, 256, 704, 4, 4, 4096, 512, 3, 1, 2},
    {2, 512, 1408, 8, 4, 1024, 256, 4, 1, 3},  {1, 768, 2048, 12, 12, 8192, 128, 8, 1, 0},
    {2, 256, 1024, 4, 2, 512, 1024, 2, 1, 3},  {3, 384, 1024, 6, 6, 2048, 256, 6, 2, 0},
    {6, 128, 352, 4, 2, 512, 128, 4, 2, 0, 2}, {2, 384, 1024, 6, 2, 2048, 256, 4, 1, 0, 2},
};
constexpr int kSteps = 7;        // of a run
constexpr int kWarmUpSteps = 3;  // pages are touched, libraries choose their kernels

// Whether the workers of a load can be cut as the shape says.
bool IsPossible(const ProbeShape& shape, const Load& load) { return load.workers % shape.tp == 0; }

// The runs of one shape under one load.
struct Trial {
  std::map<std::string, simulate::Work> work;  // as in simulate::Probe
  std::vector<double> steps;                   // seconds
  std::map<std::string, std::vector<double>> seconds;
};

// Letters of no meaning: the time of a step does not depend on them.
std::string ProbeText() {
  std::string text;
  uint32_t state = 1;
  while (text.size() < size_t{1} << 20) {
    state = state * 1664525 + 1013904223;
    text.push_back(static_cast<char>('a' + (state >> 24) % 26));
  }
  return text;
}

std::string ProbeRecipe(const ProbeShape& shape, const Load& load, const std::string& data) {
  const int64_t replicas = load.workers / shape.tp;
  const bool sharded = shape.zero_stage > 0 && replicas > 1;
  return absl::StrCat(
      "recipe_version = 1\n[run]\nname = \"probe\"\n[model]\nfamily = \"llama\"\nlayers = ", shape.layers,
      "\nhidden = ", shape.hidden, "\nffn = ", shape.ffn, "\nheads = ", shape.heads,
      "\nkv_heads = ", shape.kv_heads, "\nvocab = ", shape.vocab,
      "\n[data]\ntokenizer = \"byte\"\nseq_len = ", shape.seq_len,
      "\npacking = \"continuous\"\n[[data.train]]\nname = \"text\"\nkind = \"text\"\nfiles = [\"", data,
      "\"]\n[train]\nsteps = ", kSteps,
      "\nbatch_sequences = ", shape.micro_batch * shape.accumulation * replicas,
      "\nmicro_batch = ", shape.micro_batch, "\nprecision = \"", load.dtype == DType::kBF16 ? "bf16" : "fp32",
      "\"\n[parallel]\nrecompute = \"none\"\nzero_stage = ", sharded ? shape.zero_stage : 0,
      "\ndp_shard = ", sharded ? replicas : 1, "\ntp = ", shape.tp,
      "\n[cluster]\ndevices_per_node = ", load.workers, "\nthreads_per_worker = ", load.threads,
      "\n[checkpoint]\nevery_steps = 1000000\n");
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Adds what the steps after the warm-up took, under the names of simulate::WorkOfStep.
absl::Status ReadTimings(const std::string& path, Trial& trial) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const size_t former = trial.steps.size();
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    TRAINCTL_ASSIGN_OR_RETURN(const Json json, ParseJson(line, path));
    TRAINCTL_ASSIGN_OR_RETURN(const int64_t step, JsonInt(json, "step", path));
    if (step <= kWarmUpSteps) continue;
    TRAINCTL_ASSIGN_OR_RETURN(trial.steps.emplace_back(), JsonDouble(json, "seconds", path));
    for (const char* group : {"operators", "phases"}) {
      const auto found = json.find(group);
      if (found == json.end() || !found->is_object()) return BadDataError(absl::StrCat(path, ": no ", group));
      for (const auto& [name, value] : found->items()) {
        if (trial.work.count(name) > 0) trial.seconds[name].push_back(value.get<double>());
      }
    }
  }
  if (trial.steps.size() == former) return BadDataError(absl::StrCat(path, ": contains no step times"));
  return absl::OkStatus();
}

// The medians, as at the end of a run.
simulate::Probe ProbeOf(const Trial& trial) {
  simulate::Probe probe;
  probe.work = trial.work;
  probe.step_seconds = Median(trial.steps);
  for (const auto& [name, values] : trial.seconds) probe.seconds[name] = Median(values);
  return probe;
}

absl::Status RunTrial(const ProbeShape& shape, const Load& load, const cluster::Host& host,
                      const std::string& folder, Trial& trial) {
  const std::string text = ProbeRecipe(shape, load, folder + "/text.txt");
  TRAINCTL_ASSIGN_OR_RETURN(const recipe::LoadedRecipe loaded,
                            recipe::LoadRecipeText(text, folder + "/probe.toml", {}, recipe::RealAccess()));
  TRAINCTL_ASSIGN_OR_RETURN(const plan::Plan plan, planner::MakePlan(loaded.recipe, host));
  const std::string path = folder + "/run";
  TRAINCTL_RETURN_IF_ERROR(RemoveAll(path));
  TRAINCTL_ASSIGN_OR_RETURN(run::RunFolder run, run::RunFolder::CreateAt(path));
  TRAINCTL_RETURN_IF_ERROR(run.Lock());
  TRAINCTL_RETURN_IF_ERROR(WriteRunFiles(run, loaded.recipe, plan));
  TRAINCTL_ASSIGN_OR_RETURN(launcher::JobOptions job, PlannedJob(run, loaded.recipe, plan));
  job.max_restarts = 0;
  TRAINCTL_ASSIGN_OR_RETURN(const launcher::JobOutcome outcome, launcher::RunJob(job));
  if (outcome.kind != launcher::JobOutcome::Kind::kFinished) {
    return EnvironmentError(absl::StrCat("a probe run (", load.ToString(),
                                         ") did not finish: ", outcome.message,
                                         outcome.log_tail.empty() ? "" : "\n", outcome.log_tail));
  }
  const plan::PlannedStep step = plan::BuildStep(plan, loaded.recipe.model.spec);
  trial.work = simulate::WorkOfStep(step.step, step.ledger, step.options);
  return ReadTimings(run.timings_path(), trial);
}

absl::Status MeasureLoads(const cluster::Host& host, const std::vector<Load>& loads, int64_t rounds,
                          const std::string& folder, const std::function<void(const std::string&)>& progress,
                          MachineMeasurement& measurement) {
  TRAINCTL_RETURN_IF_ERROR(WriteFileAtomic(folder + "/text.txt", ProbeText()));
  std::vector<std::vector<Trial>> trials(loads.size(), std::vector<Trial>(std::size(kShapes)));
  for (int64_t round = 1; round <= rounds; ++round) {
    for (size_t i = 0; i < loads.size(); ++i) {
      progress(absl::StrCat("round ", round, " of ", rounds, ": ", loads[i].ToString()));
      for (size_t shape = 0; shape < std::size(kShapes); ++shape) {
        if (!IsPossible(kShapes[shape], loads[i])) continue;
        TRAINCTL_RETURN_IF_ERROR(RunTrial(kShapes[shape], loads[i], host, folder, trials[i][shape]));
      }
    }
  }
  for (size_t i = 0; i < loads.size(); ++i) {
    const Load& load = loads[i];
    std::vector<simulate::Probe> probes;
    for (const Trial& trial : trials[i]) {
      if (!trial.steps.empty()) probes.push_back(ProbeOf(trial));
    }
    const simulate::Rates initial = simulate::CpuRates(load.threads, load.dtype, host.native_bf16);
    simulate::MeasuredRates measured{load.dtype, load.workers, load.threads,
                                     simulate::FitRates(probes, initial)};
    MachineMeasurement::Fit fit{.load = load.ToString(), .num_probes = static_cast<int>(probes.size())};
    for (double error : simulate::ErrorsOf(probes, measured.rates)) {
      fit.mean_error += std::abs(error) / static_cast<double>(probes.size());
      if (std::abs(error) > std::abs(fit.worst_error)) fit.worst_error = error;
    }
    measurement.fits.push_back(std::move(fit));
    measurement.profile.measured.push_back(std::move(measured));
  }
  return absl::OkStatus();
}

}  // namespace

std::string Load::ToString() const {
  return absl::StrCat(dtype == DType::kBF16 ? "bf16" : "fp32", ", ", workers, " worker",
                      workers == 1 ? "" : "s", " x ", threads, " thread", threads == 1 ? "" : "s");
}

std::vector<Load> UsualLoads(const cluster::Host& host) {
  std::vector<Load> loads;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    if (dtype == DType::kBF16 && !host.native_bf16) continue;
    loads.push_back({dtype, 1, host.allowed_cores});
    if (host.allowed_cores == 1) continue;
    loads.push_back({dtype, 1, 1});
    loads.push_back({dtype, host.allowed_cores, 1});
  }
  return loads;
}

absl::StatusOr<MachineMeasurement> MeasureMachine(const cluster::Host& host, const std::vector<Load>& loads,
                                                  int64_t rounds,
                                                  const std::function<void(const std::string&)>& progress) {
  MachineMeasurement measurement;
  measurement.profile.cpu = host.cpu;
  measurement.profile.cores = host.allowed_cores;
  TRAINCTL_ASSIGN_OR_RETURN(
      const std::string folder,
      MakeTemporaryFolder(TemporaryFolders(), "trainctl-calibrate-XXXXXX", PATH_MAX - 1));
  const absl::Status status = MeasureLoads(host, loads, rounds, folder, progress, measurement);
  const absl::Status removed = RemoveAll(folder);
  TRAINCTL_RETURN_IF_ERROR(status);
  TRAINCTL_RETURN_IF_ERROR(removed);
  return measurement;
}

}  // namespace trainctl::cli
