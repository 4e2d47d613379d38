// `trainctl doctor`: what of this machine a run can use, what is wrong with it and how to mend it.

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/worker_program.h"
#include "base/files.h"
#include "base/json.h"
#include "base/subprocess.h"
#include "cluster/inspect.h"
#include "planner/machine.h"

namespace trainctl::cli {
namespace {

using cluster::Finding;
using cluster::Health;

// What the worker program says of itself: that it starts, and with which LibTorch.
absl::StatusOr<std::string> AskWorker() {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string program, FindWorkerProgram());
  int ends[2];
  if (pipe(ends) != 0) return ErrnoError("make", "a pipe", errno);
  SpawnOptions options;
  options.argv = {program, "version"};
  options.env = CurrentEnvironment();
  options.stdout_fd = ends[1];
  options.die_with_parent = true;
  absl::StatusOr<Subprocess> worker = Subprocess::Start(options);
  close(ends[1]);
  std::string text;
  char buffer[256];
  for (ssize_t count; worker.ok() && (count = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  TRAINCTL_RETURN_IF_ERROR(worker.status());
  const ExitStatus ended = worker->Wait();
  if (!ended.Success()) return EnvironmentError(absl::StrCat(program, " ", ended.Describe()));
  return std::string(absl::StripAsciiWhitespace(text));
}

Finding Worker() {
  const absl::StatusOr<std::string> answer = AskWorker();
  if (answer.ok()) return {"worker", *answer, Health::kGood, ""};
  return {"worker", "does not start", Health::kWarning, std::string(answer.status().message())};
}

Finding Profile(const cluster::Host& host) {
  std::vector<std::string> notes;
  const auto profile = planner::LoadMachineProfile(host, notes);
  if (!profile.ok()) {
    return {"measured rates", "cannot be read", Health::kWarning, std::string(profile.status().message())};
  }
  if (profile->has_value()) return {"measured rates", planner::MachineProfilePath(), Health::kGood, ""};
  return {"measured rates", "none of this machine", Health::kNote,
          notes.empty() ? "`trainctl calibrate` measures it, so that plans tell its times" : notes[0]};
}

void Print(const cluster::Machine& machine) {
  for (const Finding& finding : machine.findings) {
    std::printf("%-8s %-15s %s\n", std::string(HealthName(finding.health)).c_str(), finding.name.c_str(),
                finding.value.c_str());
    if (!finding.advice.empty()) std::printf("%25s%s\n", "", finding.advice.c_str());
  }
  std::printf("\nFor a recipe:\n\n%s", ClusterTable(machine).c_str());
}

void PrintJson(const cluster::Machine& machine) {
  Json json = {{"schema", "trainctl.doctor.v1"},
               {"host", machine.host.name},
               {"cpu", machine.host.cpu},
               {"allowed_cores", machine.host.allowed_cores},
               {"native_bf16", machine.host.native_bf16},
               {"memory_total_bytes", machine.host.memory_total_bytes},
               {"memory_available_bytes", machine.host.memory_available_bytes},
               {"accelerators", machine.accelerators},
               {"device", machine.device == nullptr ? "cpu" : machine.device->name},
               {"findings", Json::array()}};
  for (const Finding& finding : machine.findings) {
    json["findings"].push_back({{"name", finding.name},
                                {"value", finding.value},
                                {"health", std::string(HealthName(finding.health))},
                                {"advice", finding.advice}});
  }
  std::puts(json.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

absl::StatusOr<ExitCode> RunDoctor(const Output& output) {
  TRAINCTL_ASSIGN_OR_RETURN(cluster::Machine machine, cluster::InspectMachine());
  machine.findings.push_back(Worker());
  machine.findings.push_back(Profile(machine.host));
  output.json ? PrintJson(machine) : Print(machine);
  for (const Finding& finding : machine.findings) {
    if (finding.health == Health::kWarning) return ExitCode::kEnvironment;
  }
  return ExitCode::kOk;
}

}  // namespace

void AddDoctor(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("doctor", "Say what of this machine a run can use, and what is wrong");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl doctor");
  verb->callback([&action] { action = RunDoctor; });
}

}  // namespace trainctl::cli
