// `trainctl calibrate`: measures this machine, so that plans tell its times; with a file of measured runs it
// fits the few constants of the machine that they ran on (calibrate_runs.h).

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/trainctl/calibrate_runs.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/measure_device.h"
#include "apps/trainctl/measure_machine.h"
#include "apps/trainctl/option_checks.h"
#include "apps/trainctl/output_options.h"
#include "base/files.h"
#include "base/json.h"
#include "base/output_file.h"
#include "cluster/host.h"
#include "doctor/detect_device.h"
#include "simulate/machine.h"

namespace trainctl::cli {
namespace {

struct CalibrateOptions {
  std::string file;    // empty: this machine
  std::string device;  // "cpu" or "cuda"; empty: what is there
  std::string out;
  std::string precision;
  int64_t workers = 0;
  int64_t threads = 0;
  int64_t rounds = 0;
  OutputRules output_rules;

  // They are of CPUs.
  bool HasLoad() const { return !precision.empty() || workers > 0 || threads > 0 || rounds > 0; }
};

// The devices that a driver and CUDA_VISIBLE_DEVICES show; none if the driver does not answer.
doctor::ShownDevices Shown() { return doctor::FindShownDevices().value_or(doctor::ShownDevices()); }

// Whether the first visible device is to be measured, rather than the CPU.
absl::StatusOr<bool> MeasuresDevice(const CalibrateOptions& options) {
  if (options.device == "cpu" || (options.device.empty() && options.HasLoad())) return false;
  const doctor::ShownDevices shown = Shown();
  TRAINCTL_RETURN_IF_ERROR(shown.selection);
  if (!shown.hidden.empty()) std::fprintf(stderr, "note: %s\n", shown.hidden.c_str());
  if (options.device.empty()) return !shown.models.empty();
  if (shown.models.empty() && !shown.hidden.empty()) {
    return EnvironmentError(absl::StrCat("--device cuda: ", shown.hidden,
                                         "; `trainctl calibrate --device cpu` measures the CPU instead"));
  }
  return true;
}

// The loads that were asked for, of the usual ones or one of its own.
absl::StatusOr<std::vector<Load>> LoadsOf(const CalibrateOptions& options, const cluster::Host& host) {
  const bool any_precision = options.precision.empty();
  if (options.precision == "bf16" && !host.native_bf16) {
    return UsageError(absl::StrCat("--precision bf16: ", host.cpu, " has no bf16 instructions"));
  }
  if (options.workers > host.allowed_cores) {
    return UsageError(absl::StrCat("--workers ", options.workers, ": this process may use only ",
                                   host.allowed_cores,
                                   " core(s), and workers that wait for a core distort the measurement"));
  }
  std::vector<Load> loads;
  const bool own = options.workers > 0 || options.threads > 0;
  for (Load load : UsualLoads(host)) {
    if (!any_precision && (load.dtype == DType::kBF16) != (options.precision == "bf16")) continue;
    if (own) {
      load.workers = std::max<int64_t>(1, options.workers);
      load.threads =
          options.threads > 0 ? options.threads : std::max<int64_t>(1, host.allowed_cores / load.workers);
      const bool again = std::any_of(loads.begin(), loads.end(),
                                     [&](const Load& other) { return other.dtype == load.dtype; });
      if (again) continue;
    }
    loads.push_back(load);
  }
  return loads;
}

// What is measured now replaces what was. Other loads stay where they are of this CPU, and other devices
// whatever it is.
absl::StatusOr<simulate::MachineProfile> Merged(const OutputTarget& target, const cluster::Host& host,
                                                const simulate::MachineProfile& measured) {
  simulate::MachineProfile merged = measured;
  if (target.kind != OutputKind::kRegularFile) return merged;
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(target.path));
  const absl::StatusOr<simulate::MachineProfile> before = simulate::MachineFromJson(text, target.path);
  if (!before.ok()) return merged;
  for (const simulate::MeasuredDevice& old : before->devices) {
    if (measured.FindDevice(old.name) == nullptr) merged.devices.push_back(old);
  }
  if (measured.measured.empty()) {  // a device was measured: nothing is known better of the CPU
    merged.cpu = before->cpu;
    merged.cores = before->cores;
  } else if (!before->IsOf(host)) {
    return merged;
  }
  for (const simulate::MeasuredRates& old : before->measured) {
    const bool replaced = std::any_of(
        measured.measured.begin(), measured.measured.end(), [&](const simulate::MeasuredRates& rates) {
          return rates.dtype == old.dtype && rates.workers == old.workers && rates.threads == old.threads;
        });
    if (!replaced) merged.measured.push_back(old);
  }
  return merged;
}

void Print(const MachineMeasurement& measurement) {
  using simulate::Resource;
  constexpr std::pair<Resource, const char*> kUnits[] = {{Resource::kMatmulFlops, "FLOP"},
                                                         {Resource::kAttentionFlops, "FLOP"},
                                                         {Resource::kAttentionBackwardFlops, "FLOP"},
                                                         {Resource::kAttentionTiles, ""},
                                                         {Resource::kLogits, ""},
                                                         {Resource::kOperandBytes, "B"},
                                                         {Resource::kMovedBytes, "B"},
                                                         {Resource::kOptimizerElements, ""},
                                                         {Resource::kOperators, ""},
                                                         {Resource::kSentBytes, "B"},
                                                         {Resource::kCollectives, ""},
                                                         {Resource::kTensorExchanges, ""},
                                                         {Resource::kSteps, ""}};
  std::printf("%s, %d cores\n", measurement.profile.cpu.c_str(), static_cast<int>(measurement.profile.cores));
  for (size_t i = 0; i < measurement.fits.size(); ++i) {
    const MachineMeasurement::Fit& fit = measurement.fits[i];
    std::printf("\n%s: step times of %d probes predicted within %.1f %% (mean), %+.1f %% (worst)\n",
                fit.load.c_str(), fit.num_probes, 100 * fit.mean_error, 100 * fit.worst_error);
    for (const auto& [resource, unit] : kUnits) {
      std::printf("  %-26s %s\n", std::string(simulate::ResourceName(resource)).c_str(),
                  RateText(measurement.profile.measured[i].rates[resource], unit).c_str());
    }
  }
}

absl::StatusOr<MachineMeasurement> MeasureCpu(const cluster::Host& host, const std::vector<Load>& loads,
                                              const CalibrateOptions& options) {
  return MeasureMachine(host, loads, options.rounds > 0 ? options.rounds : kUsualRounds,
                        [](const std::string& what) { std::fprintf(stderr, "  %s\n", what.c_str()); });
}

absl::StatusOr<MachineMeasurement> MeasureDeviceOf(const cluster::Host& host) {
  MachineMeasurement measurement;
  measurement.profile.cpu = host.cpu;
  measurement.profile.cores = host.allowed_cores;
  const absl::StatusOr<simulate::MeasuredDevice> device = MeasureDeviceInWorker();
  if (!device.ok()) {
    return absl::Status(device.status().code(),
                        absl::StrCat(device.status().message(),
                                     "; `trainctl calibrate --device cpu` measures the CPU instead"));
  }
  measurement.profile.devices.push_back(*device);
  return measurement;
}

// Plans take what was measured of the device that the driver shows first.
void WarnOfAnotherName(const std::string& measured) {
  const std::vector<std::string> models = Shown().models;
  if (!models.empty() && models.front() == measured) return;
  std::fprintf(stderr,
               "note: plans on this machine are for %s and will not use this profile, which describes %s\n",
               models.empty() ? "no visible device" : models.front().c_str(), measured.c_str());
}

absl::Status MakeFolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash != std::string::npos && slash > 0 ? MakeDirs(path.substr(0, slash)) : absl::OkStatus();
}

absl::StatusOr<ExitCode> CalibrateMachine(const CalibrateOptions& options, const Output& output) {
  const std::string path = options.out.empty() ? simulate::MachineProfilePath() : options.out;
  if (path.empty()) return UsageError("neither HOME nor XDG_CONFIG_HOME is set; specify a file with --out");
  OutputRules rules = options.output_rules;
  rules.overwrite |= options.out.empty();  // the user's configuration is there to be kept up to date
  TRAINCTL_ASSIGN_OR_RETURN(const cluster::Host host, cluster::DetectHost());
  TRAINCTL_ASSIGN_OR_RETURN(const bool of_device, MeasuresDevice(options));
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<Load> loads, LoadsOf(options, host));
  TRAINCTL_RETURN_IF_ERROR(MakeFolderOf(path));
  TRAINCTL_ASSIGN_OR_RETURN(const OutputTarget target, FindOutput(path, rules));
  std::fprintf(stderr, "measuring this machine%s; other work on this machine distorts the result\n",
               of_device ? "'s device" : "");
  TRAINCTL_ASSIGN_OR_RETURN(const MachineMeasurement measurement,
                            of_device ? MeasureDeviceOf(host) : MeasureCpu(host, loads, options));
  TRAINCTL_ASSIGN_OR_RETURN(const simulate::MachineProfile profile,
                            Merged(target, host, measurement.profile));
  const std::string json = simulate::MachineToJson(profile);
  TRAINCTL_RETURN_IF_ERROR(WriteOutputFile(path, json, rules));
  if (output.json) {
    std::fputs(json.c_str(), stdout);
  } else {
    if (of_device) {
      PrintMeasured(measurement.profile.devices.front());
    } else {
      Print(measurement);
    }
    std::printf("\nwrote %s\n", path.c_str());
  }
  if (of_device) WarnOfAnotherName(measurement.profile.devices.front().name);
  return ExitCode::kOk;
}

absl::StatusOr<ExitCode> RunCalibrate(const CalibrateOptions& options, const Output& output) {
  if (options.file.empty()) {
    if (options.device == "cuda" && options.HasLoad()) {
      return UsageError("--precision, --workers, --threads and --rounds apply only to the CPU");
    }
    return CalibrateMachine(options, output);
  }
  if (!options.device.empty() || options.HasLoad()) {
    return UsageError(
        "--device, --precision, --workers, --threads and --rounds apply to measuring this machine and cannot "
        "be combined with FILE");
  }
  return CalibrateToRuns(options.file, options.out, options.output_rules, output);
}

}  // namespace

void AddCalibrate(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand(
      "calibrate", "Measure this machine, or fit another machine to its measured runs, for accurate plans");
  auto options = std::make_shared<CalibrateOptions>();
  verb->add_option("FILE", options->file,
                   "CSV of measured runs to fit the constants of their machine to, instead of measuring this "
                   "one (columns: docs/reference/other-trainers.md)");
  verb->add_option(
          "--out", options->out,
          "Write the profile to this file (default: the user's configuration folder; nowhere with FILE)")
      ->type_name("FILE");
  AddForceFlag(*verb, options->output_rules.overwrite);
  verb->add_option("--device", options->device,
                   "Device to measure (default: cuda if a device is visible and no CPU option is given, "
                   "otherwise cpu)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  verb->add_option("--precision", options->precision,
                   "Measure only this data type (default: both if the CPU has bf16 instructions)")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  verb->add_option("--workers", options->workers,
                   "Measure only with this many concurrent workers (default: one, and one per core)")
      ->check(WholeNumber(1, 1024));
  verb->add_option("--threads", options->threads,
                   "Measure only with this many threads per worker (default: its share of the cores)")
      ->check(WholeNumber(1, 1024));
  verb->add_option("--rounds", options->rounds,
                   "Number of measurement rounds (default: 3). Fewer rounds are faster but noisier")
      ->check(WholeNumber(1, 100));
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl calibrate --device cpu && trainctl plan recipes/toy_1m_cpu.toml");
  verb->callback([&action, options] {
    action = [options](const Output& output) { return RunCalibrate(*options, output); };
  });
}

}  // namespace trainctl::cli
