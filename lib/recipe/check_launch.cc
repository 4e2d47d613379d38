#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cluster/kubernetes_job.h"
#include "cluster/slurm_job.h"
#include "recipe/check_subjects.h"
#include "recipe/hosts.h"
#include "recipe/schema.h"
#include "recipe/timeouts.h"
#include "recipe/values.h"

namespace trainctl::recipe {
namespace {

void CheckSsh(CheckContext& context) {
  const SshConfig& ssh = context.recipe().launch.ssh;
  if (const absl::Status status = CheckSshOptions(ssh.options); !status.ok()) {
    context.Fail({"launch.ssh.options"}, status.message());
  }
  if (!context.IsUsable({"launch.ssh.hosts", "launch.ssh.hosts_file"})) return;
  if (ssh.hosts.empty() == ssh.hosts_file.empty()) {
    if (ssh.hosts.empty()) {
      return context.Lack({"launch.backend"},
                          "launch.backend = \"ssh\" requires a list of machines; set launch.ssh.hosts = "
                          "[\"node0\", \"node1\"] or launch.ssh.hosts_file");
    }
    return context.Fail(
        {"launch.ssh.hosts", "launch.ssh.hosts_file"},
        "launch.ssh.hosts and launch.ssh.hosts_file exclude each other; set only one of them");
  }
  if (ssh.hosts.empty()) return;  // the file is looked at where files are read
  if (const absl::Status status = CheckHosts(ssh.hosts, "launch.ssh.hosts"); !status.ok()) {
    return context.Fail({"launch.ssh.hosts"}, status.message());
  }
  if (!context.IsUsable({"cluster.nodes"})) return;
  const absl::Status status = CheckEnoughHosts(ssh.hosts, context.recipe().cluster.nodes, "launch.ssh.hosts");
  if (!status.ok()) context.Lack({"launch.ssh.hosts"}, status.message());
}

void CheckSlurm(CheckContext& context) {
  if (!context.IsUsable({"launch.slurm.submit_options"})) return;
  const absl::Status status = cluster::CheckSubmitOptions(context.recipe().launch.slurm.submit_options);
  if (!status.ok()) context.Fail({"launch.slurm.submit_options"}, status.message());
}

void CheckKubernetes(CheckContext& context) {
  const cluster::KubernetesConfig& config = context.recipe().launch.kubernetes;
  const std::pair<absl::string_view, absl::Status> results[] = {
      {"launch.kubernetes.name", cluster::CheckKubernetesName(config.name, context.recipe().cluster.nodes)},
      {"launch.kubernetes.namespace", cluster::CheckKubernetesNamespace(config.name_space)},
      {"launch.kubernetes.image", cluster::CheckKubernetesImage(config.image)},
      {"launch.kubernetes.claim", cluster::CheckKubernetesClaim(config.claim)},
      {"launch.kubernetes.mount", cluster::CheckKubernetesMount(config.mount)}};
  for (const auto& [path, status] : results) {
    if (context.IsUsable({path}) && !status.ok()) context.Fail({path}, status.message());
  }
  std::string lacks;
  for (const auto& [field, value] : {std::pair{"name", &config.name}, std::pair{"image", &config.image},
                                     std::pair{"claim", &config.claim}}) {
    if (value->empty()) absl::StrAppend(&lacks, lacks.empty() ? "" : ", ", "launch.kubernetes.", field);
  }
  if (lacks.empty()) return;
  context.Lack({"launch.backend"},
               absl::StrCat("launch.backend = \"kubernetes\" requires ", lacks,
                            ": the job's name, the container image and the PersistentVolumeClaim"));
}

void CheckTimeouts(CheckContext& context) {
  for (const WrongOrder& wrong : FindWrongOrders(context.recipe().launch)) {
    const std::vector<absl::string_view> paths(wrong.paths.begin(), wrong.paths.end());
    if (context.IsUsable(paths)) context.Fail(paths, wrong.message);
  }
}

void CheckLocal(CheckContext& context) {
  const int64_t nodes = context.recipe().cluster.nodes;
  if (!context.IsUsable({"cluster.nodes"}) || nodes <= 1) return;
  context.Lack({"cluster.nodes"},
               absl::StrCat("cluster.nodes = ", nodes,
                            ", but launch.backend = \"local\" starts workers only on this machine; set "
                            "cluster.nodes = 1, or set launch.backend to \"ssh\" (and list the machines in "
                            "launch.ssh.hosts), \"slurm\" or \"kubernetes\""));
}

// The fields in [launch.ssh], [launch.slurm] and [launch.kubernetes] need that backend. A stored recipe may
// keep them from a launch of another backend: there they were not given.
void CheckTablesOfBackends(CheckContext& context) {
  constexpr absl::string_view kLaunch = "launch.";
  const std::string& backend = context.recipe().launch.backend;
  for (const Field& field : GetSchema().fields()) {
    const absl::string_view path = field.name;
    const size_t dot = path.rfind('.');
    if (!absl::StartsWith(path, kLaunch) || dot < kLaunch.size()) continue;
    const absl::string_view needed = path.substr(kLaunch.size(), dot - kLaunch.size());
    if (needed == backend || !context.IsGiven(path)) continue;
    context.Fail({path}, absl::StrCat(path, " is used only with launch.backend = ", QuoteToml(needed),
                                      ", but launch.backend is ", QuoteToml(backend),
                                      "; set launch.backend = ", QuoteToml(needed),
                                      ", or remove the table (--set launch.", needed, "=default)"));
  }
}

bool IsVariableName(absl::string_view name) {
  const auto is_word = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  return !name.empty() && std::all_of(name.begin(), name.end(), is_word) &&
         !absl::ascii_isdigit(static_cast<unsigned char>(name[0]));
}

bool IsReserved(absl::string_view name) {
  constexpr absl::string_view kReserved[] = {
      "RANK",           "WORLD_SIZE",  "LOCAL_RANK",  "LOCAL_WORLD_SIZE",     "NODE_RANK",
      "GROUP_RANK",     "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS",
      "MKL_NUM_THREADS"};
  return absl::StartsWith(name, "TRAINCTL_") ||
         std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved);
}

void CheckSetVariables(CheckContext& context) {
  for (const auto& [name, value] : context.recipe().launch.env) {
    const std::string path = absl::StrCat("launch.env.", name);
    if (!IsVariableName(name)) {
      context.Fail({path}, absl::StrCat("launch.env: ", QuoteToml(name), " is not a valid variable name"));
    } else if (IsReserved(name)) {
      context.Fail(
          {path},
          absl::StrCat(path, ": trainctl sets this variable itself",
                       absl::EndsWith(name, "_NUM_THREADS") ? "; use cluster.threads_per_worker" : ""));
    }
  }
}

void CheckPassedVariables(CheckContext& context) {
  const LaunchConfig& launch = context.recipe().launch;
  std::set<absl::string_view> seen;
  for (const std::string& name : launch.pass_env) {
    const auto fail = [&](absl::string_view why) {
      context.Fail({"launch.pass_env"}, absl::StrCat("launch.pass_env: ", QuoteToml(name), " ", why));
    };
    if (!IsVariableName(name)) {
      fail("is not a valid variable name");
    } else if (IsReserved(name)) {
      fail("is a variable that trainctl sets itself");
    } else if (launch.env.count(name) > 0) {
      fail(absl::StrCat("is also set in launch.env.", name, "; remove one of them"));
    } else if (!seen.insert(name).second) {
      fail("is listed twice");
    }
  }
}

}  // namespace

void CheckBackend(CheckContext& context) {
  const std::string& backend = context.recipe().launch.backend;
  if (!context.IsUsable({"launch.backend"})) return;
  if (backend == "ssh") CheckSsh(context);
  if (backend == "slurm") CheckSlurm(context);
  if (backend == "kubernetes") CheckKubernetes(context);
  CheckTimeouts(context);
  if (backend == "local") CheckLocal(context);
  CheckTablesOfBackends(context);
}

void CheckEnvironment(CheckContext& context) {
  CheckSetVariables(context);
  CheckPassedVariables(context);
}

void CheckInterface(CheckContext& context) {
  if (!context.recipe().launch.interface.has_value()) return;
  const std::string& name = *context.recipe().launch.interface;
  const bool is_plain = std::all_of(name.begin(), name.end(),
                                    [](unsigned char c) { return absl::ascii_isgraph(c) && c != ','; });
  if (is_plain && name.size() <= 64 && !absl::StartsWith(name, "-")) return;
  context.Fail({"launch.interface"},
               absl::StrCat("launch.interface: ", QuoteToml(name),
                            " is not a network interface, an address or a range such as \"10.0.0.0/8\""));
}

}  // namespace trainctl::recipe
