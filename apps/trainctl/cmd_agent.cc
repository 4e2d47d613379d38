// `trainctl agent`: one node's part of a run. Started by `trainctl launch`, not by hand.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/node_look.h"
#include "apps/trainctl/worker_program.h"
#include "base/files.h"
#include "launcher/agent_runner.h"
#include "rpc/agent_client.h"
#include "rpc/invitation.h"

namespace trainctl::cli {
namespace {

constexpr size_t kMaxInvitationBytes = 64 << 10;
constexpr int64_t kMaxInvitationsBytes = int64_t{64} << 20;

std::string ReadFromInput() {
  std::string invitation;
  for (int c = std::getchar(); c != EOF && c != '\n' && invitation.size() < kMaxInvitationBytes;
       c = std::getchar()) {
    invitation.push_back(static_cast<char>(c));
  }
  return invitation;
}

// That of the node which Slurm says that this is.
absl::StatusOr<std::string> ReadFromFile(const std::string& path) {
  const char* name = std::getenv("SLURMD_NODENAME");
  if (name == nullptr)
    return UsageError("--invitations works only inside a Slurm step, but SLURMD_NODENAME is not set");
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxInvitationsBytes));
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    TRAINCTL_ASSIGN_OR_RETURN(const rpc::Invitation invitation, rpc::ReadInvitation(std::string(line)));
    if (invitation.node == name) return std::string(line);
  }
  return UsageError(absl::StrCat(path, " contains no invitation for node ", name));
}

absl::StatusOr<ExitCode> RunAgentHere(const std::string& path) {
  std::string invitation;
  if (path.empty()) {
    invitation = ReadFromInput();
  } else {
    TRAINCTL_ASSIGN_OR_RETURN(invitation, ReadFromFile(path));
  }
  if (invitation.empty()) {
    return UsageError(
        "'trainctl launch' starts agents and writes an invitation to their standard input; do not start one "
        "by hand");
  }
  TRAINCTL_ASSIGN_OR_RETURN(const rpc::Invitation read, rpc::ReadInvitation(invitation));
  launcher::AgentRunOptions options;
  TRAINCTL_ASSIGN_OR_RETURN(options.worker_program, FindWorkerProgram());
  options.look = [program = options.worker_program](const rendezvous::NodeSetup& setup) {
    return LookAtThisNode(program, setup);
  };
  options.node = read.node;
  options.run_dir = read.run_dir;
  options.connect = [&](const std::string& socket_path, const std::string& token_path,
                        const std::function<bool()>& is_cancelled) {
    return rpc::ConnectAgent({.invitation = read,
                              .socket_path = socket_path,
                              .token_path = token_path,
                              .is_cancelled = is_cancelled});
  };
  TRAINCTL_RETURN_IF_ERROR(launcher::RunAgent(options).status());
  return ExitCode::kOk;
}

}  // namespace

void AddAgent(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("agent", "Run one machine's part of a job (started by launch, not by hand)");
  SetExample(*verb, "ssh node2 trainctl agent < invitation");
  const auto path = std::make_shared<std::string>();
  verb->add_option(
      "--invitations", *path,
      "File with one invitation per line, one for each node of a Slurm step (default: standard input)");
  verb->callback([&action, path] { action = [path](const Output&) { return RunAgentHere(*path); }; });
}

}  // namespace trainctl::cli
