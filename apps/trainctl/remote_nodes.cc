#include "apps/trainctl/remote_nodes.h"

#include <cstdlib>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "apps/trainctl/kubernetes_job.h"
#include "apps/trainctl/machine_access.h"
#include "apps/trainctl/slurm_job.h"
#include "apps/trainctl/worker_program.h"
#include "base/shell_quote.h"
#include "base/status.h"
#include "cluster/batch_job.h"
#include "cluster/kubernetes_job.h"
#include "cluster/node_order.h"
#include "cluster/slurm_job.h"
#include "launcher/agent_starter.h"
#include "recipe/hosts.h"
#include "recipe/timeouts.h"

namespace trainctl::cli {
namespace {

// The part of "user@name" that is the machine's.
std::string NameOf(const std::string& host) {
  const size_t at = host.find('@');
  return at == std::string::npos ? host : host.substr(at + 1);
}

absl::Status FillFromSsh(const recipe::Recipe& recipe, launcher::RemoteNodes& remote) {
  const recipe::SshConfig& ssh = recipe.launch.ssh;
  TRAINCTL_ASSIGN_OR_RETURN(std::vector<std::string> hosts, recipe::ReadHosts(recipe, MachineAccess()));
  hosts.resize(static_cast<size_t>(recipe.cluster.nodes));  // the others are spare
  for (const std::string& host : hosts) remote.nodes.push_back({NameOf(host), host});
  remote.starter_options = ssh.options;
  if (ssh.program) remote.program = *ssh.program;
  return absl::OkStatus();
}

absl::Status FillFromSlurm(const recipe::Recipe& recipe, launcher::RemoteNodes& remote) {
  remote.starter = launcher::RemoteNodes::Starter::kSlurm;
  const std::vector<std::string>& step_options = recipe.launch.slurm.step_options;
  remote.starter_options = launcher::SrunGpuOptions(
      step_options, recipe.cluster.device == "cpu" ? 0 : recipe.cluster.devices_per_node,
      std::getenv(cluster::kGpusOnNodeVariable) != nullptr);
  remote.starter_options.insert(remote.starter_options.end(), step_options.begin(), step_options.end());
  TRAINCTL_ASSIGN_OR_RETURN(const std::optional<cluster::BatchJob> job, cluster::FindBatchJob(std::getenv));
  const int64_t wanted = recipe.cluster.nodes;
  if (!job) {
    return EnvironmentError(
        absl::StrCat("launch.backend = \"slurm\" starts workers on the nodes of an allocation, but this "
                     "process is not in one; request one with 'salloc --nodes=",
                     wanted, "'"));
  }
  if (static_cast<int64_t>(job->nodes.size()) < wanted) {
    return EnvironmentError(absl::StrCat(
        "cluster.nodes = ", wanted, ", but Slurm job ", job->id, " has ", job->nodes.size(), " (",
        job->node_list, "); request --nodes=", wanted, ", or set cluster.nodes = ", job->nodes.size()));
  }
  if (cluster::FindSubmittedJob(std::getenv)) remote.node_timeout = cluster::kSubmittedNodeTimeout;
  std::vector<std::string> nodes = job->nodes;
  if (nodes.size() > 2) nodes = cluster::OrderBySwitch(nodes, SlurmTopology());
  nodes.resize(static_cast<size_t>(wanted));
  std::map<std::string, std::string> addresses = SlurmAddresses(job->node_list);
  for (const std::string& name : nodes) remote.nodes.push_back({name, addresses[name]});
  return absl::OkStatus();
}

absl::Status FillFromKubernetes(const recipe::Recipe& recipe, launcher::RemoteNodes& remote) {
  TRAINCTL_ASSIGN_OR_RETURN(const cluster::KubernetesPod pod, ThisPod(recipe));
  if (pod.index != 0) {
    return UsageError(
        absl::StrCat("only pod 0 can launch, and this is pod ", pod.index, " of job ", pod.job));
  }
  remote.starter = launcher::RemoteNodes::Starter::kPods;
  for (int64_t i = 0; i < pod.count; ++i) remote.nodes.push_back({cluster::PodName(pod.job, i), ""});
  remote.address = pod.address;
  remote.port = pod.port;
  remote.secret_path = absl::StrCat(pod.secret_folder, "/", cluster::kKeyFile);
  return absl::OkStatus();
}

struct Backend {
  const char* name;
  absl::Status (*fill)(const recipe::Recipe&, launcher::RemoteNodes&);
};
constexpr Backend kBackends[] = {
    {"ssh", FillFromSsh}, {"slurm", FillFromSlurm}, {"kubernetes", FillFromKubernetes}};

}  // namespace

absl::StatusOr<std::optional<launcher::RemoteNodes>> FindRemoteNodes(const recipe::Recipe& recipe) {
  const recipe::LaunchConfig& launch = recipe.launch;
  if (launch.backend == "local") return std::nullopt;
  launcher::RemoteNodes remote;
  TRAINCTL_ASSIGN_OR_RETURN(remote.program, OwnProgram());
  remote.node_timeout = recipe::NodeTimeout(launch);
  for (const Backend& backend : kBackends) {
    if (launch.backend == backend.name) TRAINCTL_RETURN_IF_ERROR(backend.fill(recipe, remote));
  }
  remote.interface = launch.interface.value_or("auto");
  remote.pass_env = launch.pass_env;
  remote.coordinator_timeout = launch.coordinator_timeout;
  return remote;
}

std::vector<std::string> StartCommands(const launcher::RemoteNodes& remote) {
  std::vector<std::vector<std::string>> commands;
  if (remote.starter == launcher::RemoteNodes::Starter::kSlurm) {
    std::vector<std::string> names;
    for (const launcher::RemoteNodes::Node& node : remote.nodes) names.push_back(node.name);
    commands.push_back(
        launcher::SrunCommand(remote.starter_options, names, remote.program, "RUN/invitations"));
  } else if (remote.starter == launcher::RemoteNodes::Starter::kSsh) {
    for (const launcher::RemoteNodes::Node& node : remote.nodes) {
      commands.push_back(launcher::SshCommand(remote.starter_options, node.host, remote.program));
    }
  }
  std::vector<std::string> lines;
  for (const std::vector<std::string>& command : commands) {
    std::string line;
    for (const std::string& word : command) absl::StrAppend(&line, line.empty() ? "" : " ", ShellQuote(word));
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace trainctl::cli
