// `trainctl agent`: one node's part of a run. Started by `trainctl launch`, not by hand.

#include <cstdio>
#include <iostream>
#include <string>

#include "apps/trainctl/command.h"
#include "apps/trainctl/worker_program.h"
#include "launcher/agent_runner.h"
#include "rpc/agent_client.h"
#include "rpc/agent_hub.h"

namespace trainctl::cli {
namespace {

constexpr size_t kMaxInvitationBytes = 64 << 10;

absl::StatusOr<ExitCode> RunAgentHere() {
  std::string invitation;
  for (int c = std::getchar(); c != EOF && c != '\n' && invitation.size() < kMaxInvitationBytes;
       c = std::getchar()) {
    invitation.push_back(static_cast<char>(c));
  }
  if (invitation.empty()) {
    return UsageError("an agent is started by 'trainctl launch', which writes an invitation to its input");
  }
  TRAINCTL_ASSIGN_OR_RETURN(const rpc::Invitation read, rpc::ReadInvitation(invitation));
  launcher::AgentRunOptions options;
  TRAINCTL_ASSIGN_OR_RETURN(options.worker_program, FindWorkerProgram());
  options.node = read.node;
  options.connect = [&](const std::string& socket_path, const std::string& token_path) {
    return rpc::ConnectAgent(
        {.invitation = invitation, .socket_path = socket_path, .token_path = token_path});
  };
  TRAINCTL_RETURN_IF_ERROR(launcher::RunAgent(options));
  return ExitCode::kOk;
}

}  // namespace

void AddAgent(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("agent", "One machine's part of a run; started by launch, not by hand");
  SetExample(*verb, "ssh node2 trainctl agent < invitation");
  verb->callback([&action] { action = [](const Output&) { return RunAgentHere(); }; });
}

}  // namespace trainctl::cli
