// `trainctl doctor`: what of this machine a run can use, what is wrong with it and how to mend it.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/worker_program.h"
#include "base/json.h"
#include "doctor/doctor.h"
#include "simulate/machine.h"

namespace trainctl::cli {
namespace {

using doctor::Finding;
using doctor::Health;

// Where NCCL may be beside those of the system: what the loader is told, and the wheels beside LibTorch.
std::vector<std::string> NcclFolders() {
  std::vector<std::string> folders;
  for (const char* variable : {"LD_LIBRARY_PATH", "TRAINCTL_LIBTORCH"}) {
    const char* const value = std::getenv(variable);
    for (absl::string_view folder : absl::StrSplit(value == nullptr ? "" : value, ':', absl::SkipEmpty())) {
      folders.emplace_back(folder);
      folders.push_back(absl::StrCat(folder, "/lib"));
      folders.push_back(absl::StrCat(folder, "/../nvidia/nccl/lib"));
    }
  }
  return folders;
}

// Whether `trainctl calibrate` has measured what runs here would use: the first accelerator, else the CPU.
Finding Profile(const doctor::Machine& machine) {
  std::vector<std::string> notes;
  const auto profile = simulate::LoadMachineProfile(machine.host, notes);
  if (!profile.ok()) {
    return {"measured rates", "cannot be read", Health::kWarning, std::string(profile.status().message())};
  }
  const bool has_accelerator = !machine.accelerators.empty();
  const bool is_measured = profile->has_value() &&
                           (has_accelerator ? (*profile)->FindDevice(machine.accelerators.front()) != nullptr
                                            : !(*profile)->measured.empty());
  if (is_measured) return {"measured rates", simulate::MachineProfilePath(), Health::kGood, ""};
  if (has_accelerator) {
    return {"measured rates", "none for " + machine.accelerators.front(), Health::kNote,
            "run `trainctl calibrate --device cuda` so that plans can predict its speed"};
  }
  return {"measured rates", "none for this machine", Health::kNote,
          notes.empty() ? "run `trainctl calibrate` so that plans can predict its speed" : notes[0]};
}

void Print(const doctor::Machine& machine) {
  for (const Finding& finding : machine.findings) {
    std::printf("%-8s %-15s %s\n", std::string(HealthName(finding.health)).c_str(), finding.name.c_str(),
                finding.value.c_str());
    if (!finding.advice.empty()) std::printf("%25s%s\n", "", finding.advice.c_str());
  }
  std::printf("\nFor a recipe:\n\n%s", ClusterTable(machine).c_str());
}

void PrintJson(const doctor::Machine& machine) {
  Json json = {{"schema", "trainctl.doctor.v1"},
               {"host", machine.host.name},
               {"cpu", machine.host.cpu},
               {"allowed_cores", machine.host.allowed_cores},
               {"native_bf16", machine.host.native_bf16},
               {"memory_total_bytes", machine.host.memory_total_bytes},
               {"memory_available_bytes", machine.host.memory_available_bytes},
               {"accelerators", machine.accelerators},
               {"driver", nullptr},
               {"device", machine.device == nullptr ? "cpu" : machine.device->name},
               {"findings", Json::array()}};
  if (machine.driver.ok()) {
    json["driver"] = {{"version", machine.driver->version},
                      {"cuda_version", machine.driver->cuda_version},
                      {"devices", Json::array()}};
    const std::vector<doctor::CudaDevice>& devices = machine.driver->devices;
    for (size_t i = 0; i < devices.size(); ++i) {
      const bool is_visible =
          machine.visible.ok() && std::any_of(machine.visible->gpus.begin(), machine.visible->gpus.end(),
                                              [i](const cluster::VisibleGpu& gpu) { return gpu.gpu == i; });
      json["driver"]["devices"].push_back({{"name", devices[i].name},
                                           {"memory_bytes", devices[i].memory_bytes},
                                           {"used_bytes", devices[i].used_bytes},
                                           {"visible", is_visible}});
    }
  }
  for (const Finding& finding : machine.findings) {
    json["findings"].push_back({{"name", finding.name},
                                {"value", finding.value},
                                {"health", std::string(HealthName(finding.health))},
                                {"advice", finding.advice}});
  }
  std::puts(PrintableJson(json, 2).c_str());
}

absl::StatusOr<ExitCode> RunDoctor(const Output& output) {
  doctor::Sources sources;
  sources.nccl_folders = NcclFolders();
  TRAINCTL_ASSIGN_OR_RETURN(doctor::Machine machine, doctor::InspectMachine(sources));
  machine.findings.push_back(doctor::InspectWorker(FindWorkerProgram()));
  machine.findings.push_back(Profile(machine));
  output.json ? PrintJson(machine) : Print(machine);
  for (const Finding& finding : machine.findings) {
    if (finding.health == Health::kBad) return ExitCode::kEnvironment;
  }
  return ExitCode::kOk;
}

}  // namespace

void AddDoctor(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("doctor", "Check this machine and report problems");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl doctor");
  verb->callback([&action] { action = RunDoctor; });
}

}  // namespace trainctl::cli
