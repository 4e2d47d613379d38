#include "apps/trainctl/kubernetes_job.h"

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "apps/trainctl/node_look.h"
#include "apps/trainctl/worker_program.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/folder_paths.h"
#include "base/shell_quote.h"
#include "cluster/kubernetes_manifest.h"
#include "launcher/agent_runner.h"
#include "launcher/printable_text.h"
#include "rpc/agent_client.h"
#include "rpc/job_secret.h"
#include "run/run_folder.h"

namespace trainctl::cli {
namespace {

constexpr size_t kMaxCertificateBytes = 64 << 10;

// As pods see it: below the mount, which is at the same place here.
absl::StatusOr<std::string> PathInPods(const recipe::Recipe& recipe, absl::string_view what,
                                       const std::string& path) {
  const std::string& mount = recipe.launch.kubernetes.mount;
  TRAINCTL_ASSIGN_OR_RETURN(const std::string absolute, AbsolutePath(path));
  if (absl::StartsWith(absolute, mount + "/")) return absolute;
  return UsageError(absl::StrCat(what, " ", absolute, " is not below ", mount,
                                 " (launch.kubernetes.mount), the mount point of the pods' file system; "
                                 "print the manifest on a machine that mounts it at the same path"));
}

absl::StatusOr<std::vector<std::string>> CommandOfPods(const recipe::Recipe& recipe,
                                                       const PrintedLaunch& launch) {
  if (launch.recipe.empty() || launch.run_dir.empty()) {
    return UsageError(
        absl::StrCat("pods need the recipe and the run folder; print the manifest with 'trainctl launch ",
                     launch.recipe.empty() ? "RECIPE" : ShellQuote(launch.recipe), " --run-dir ",
                     launch.run_dir.empty() ? "RUN" : ShellQuote(launch.run_dir), " --or-resume --dry-run'"));
  }
  if (launch.stop_after >= 0) {
    return UsageError("--stop-after cannot be used with Kubernetes, which restarts pods that stop");
  }
  TRAINCTL_ASSIGN_OR_RETURN(std::string path, PathInPods(recipe, "the recipe", launch.recipe));
  TRAINCTL_ASSIGN_OR_RETURN(std::string run_dir, PathInPods(recipe, "the run folder", launch.run_dir));
  std::vector<std::string> command = {"trainctl",  "launch",           std::move(path),
                                      "--run-dir", std::move(run_dir), "--or-resume"};
  for (const std::string& set : launch.sets) command.insert(command.end(), {"--set", set});
  if (launch.trust_folder) command.push_back("--trust-folder");
  return command;
}

// The launcher goes on for nothing once a run has done its steps, and so does an agent.
bool IsDone(const recipe::Recipe& recipe, const std::string& run_dir) {
  const absl::StatusOr<run::RunFolder> run = run::RunFolder::Open(run_dir);
  return run.ok() && run->NewestCheckpointStep() >= recipe.train.steps;
}

void Tell(absl::string_view text) {
  std::fprintf(stderr, "%s\n", launcher::PrintableText(text, /*keep_newlines=*/true).c_str());
}

}  // namespace

absl::StatusOr<std::string> MakeManifest(const recipe::Recipe& recipe, const plan::Plan& plan,
                                         const PrintedLaunch& launch) {
  const int64_t num_pods = recipe.cluster.nodes;
  cluster::KubernetesJob job;
  job.config = recipe.launch.kubernetes;
  TRAINCTL_ASSIGN_OR_RETURN(job.command, CommandOfPods(recipe, launch));
  const RealClock clock;
  TRAINCTL_ASSIGN_OR_RETURN(const rpc::JobSecret secret, rpc::MakeJobSecret(job.config.name, clock));
  job.secret.authority_pem = secret.authority.ca_pem;
  TRAINCTL_ASSIGN_OR_RETURN(const auto authority, rpc::JobAuthority::Open(job.config.name, secret, clock));
  TRAINCTL_ASSIGN_OR_RETURN(const rpc::Credential bootstrap,
                            authority->Issue({rpc::Role::kBootstrap, "agent"}));
  job.secret.bootstrap_certificate_pem = bootstrap.cert_pem;
  job.secret.bootstrap_key_pem = bootstrap.key_pem;
  job.secret.keys.push_back(rpc::FormatJobSecret(secret));
  for (int64_t i = 1; i < num_pods; ++i) {
    job.secret.keys.push_back(rpc::NodeKey(secret, cluster::PodName(job.config.name, i)));
  }
  if (recipe.cluster.device != "cpu") job.gpus_per_pod = plan.layout.mesh.world_size() / num_pods;
  job.max_restarts = recipe.launch.max_restarts;
  job.stop_timeout = recipe.launch.stop_timeout;
  return cluster::KubernetesManifest(job);
}

absl::StatusOr<cluster::KubernetesPod> ThisPod(const recipe::Recipe& recipe) {
  TRAINCTL_ASSIGN_OR_RETURN(std::optional<cluster::KubernetesPod> pod,
                            cluster::FindKubernetesPod(std::getenv));
  if (!pod) {
    return EnvironmentError(
        "launch.backend = \"kubernetes\" runs only inside the pods of its Job, and this process is not in "
        "one; start the Job with 'trainctl launch RECIPE --run-dir RUN --dry-run | kubectl apply -f -'");
  }
  if (pod->job == recipe.launch.kubernetes.name && pod->count == recipe.cluster.nodes) return *std::move(pod);
  return UsageError(absl::StrCat(
      "this pod belongs to job ", pod->job, " with ", pod->count,
      " pods, but the recipe has launch.kubernetes.name = \"", recipe.launch.kubernetes.name,
      "\" and cluster.nodes = ", recipe.cluster.nodes, "; delete the job and print its manifest again"));
}

absl::StatusOr<ExitCode> RunPodAgent(const cluster::KubernetesPod& pod, const recipe::Recipe& recipe,
                                     const std::string& run_dir) {
  rpc::AgentClientOptions client;
  client.timeout = cluster::kPodTimeout;
  client.invitation.node = cluster::PodName(pod.job, pod.index);
  client.invitation.endpoints = {pod.launcher};
  const std::string folder = pod.secret_folder + "/";
  rpc::Credential& bootstrap = client.invitation.bootstrap;
  TRAINCTL_ASSIGN_OR_RETURN(bootstrap.ca_pem,
                            ReadFile(folder + cluster::kAuthorityFile, kMaxCertificateBytes));
  TRAINCTL_ASSIGN_OR_RETURN(bootstrap.cert_pem,
                            ReadFile(folder + cluster::kBootstrapCertificateFile, kMaxCertificateBytes));
  TRAINCTL_ASSIGN_OR_RETURN(bootstrap.key_pem, rpc::ReadSecret(folder + cluster::kBootstrapKeyFile));
  TRAINCTL_ASSIGN_OR_RETURN(client.invitation.node_key, rpc::ReadSecret(folder + cluster::kKeyFile));
  if (IsDone(recipe, run_dir)) {
    Tell(absl::StrCat(run_dir, " has completed its ", recipe.train.steps, " steps"));
    return ExitCode::kOk;
  }
  bool is_in = false;
  launcher::AgentRunOptions options;
  TRAINCTL_ASSIGN_OR_RETURN(options.worker_program, FindWorkerProgram());
  options.look = [program = options.worker_program](const rendezvous::NodeSetup& setup) {
    return LookAtThisNode(program, setup);
  };
  options.node = client.invitation.node;
  TRAINCTL_ASSIGN_OR_RETURN(options.run_dir, AbsolutePath(run_dir));
  options.connect = [&](const std::string& socket_path, const std::string& token_path,
                        const std::function<bool()>& is_cancelled) {
    client.socket_path = socket_path;
    client.token_path = token_path;
    client.is_cancelled = is_cancelled;
    auto link = rpc::ConnectAgent(client);
    is_in = link.ok();
    if (is_in) Tell(absl::StrCat(options.node, " joined the run launched by ", pod.launcher));
    return link;
  };
  Tell(absl::StrCat(options.node, " is waiting for the launcher at ", pod.launcher));
  const absl::StatusOr<bool> is_finished = launcher::RunAgent(options);
  if (is_finished.ok()) return *is_finished ? ExitCode::kOk : ExitCode::kStoppedResumable;
  const absl::Status& why = is_finished.status();
  const bool is_lost = is_in && absl::IsUnavailable(why);
  if (is_lost && IsDone(recipe, run_dir)) return ExitCode::kOk;
  if (!is_lost && !absl::IsCancelled(why)) return why;
  Tell(absl::StrCat("trainctl: ", why.message()));
  return ExitCode::kStoppedResumable;
}

}  // namespace trainctl::cli
