#include "cluster/kubernetes_job.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/names.h"
#include "base/network.h"
#include "base/status.h"

namespace trainctl::cluster {
namespace {

constexpr size_t kMaxLabel = 63;  // DNS-1123, as Kubernetes takes it
constexpr size_t kMaxSubdomain = 253;

bool IsLabel(absl::string_view text) {
  if (text.empty() || text.size() > kMaxLabel || text.front() == '-' || text.back() == '-') return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) ||
           absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-';
  });
}

absl::Status Wrong(absl::string_view field, absl::string_view value, absl::string_view why) {
  return UsageError(absl::StrCat("launch.kubernetes.", field, ": ", QuotedName(value), " ", why));
}

absl::Status WrongVariable(const char* name, absl::string_view value) {
  return UsageError(absl::StrCat(name, "=", QuotedName(value),
                                 " differs from the value that trainctl printed into this job's manifest"));
}

std::string Text(const Environment& environment, const char* name) {
  const char* const value = environment(name);
  return value == nullptr ? "" : value;
}

}  // namespace

absl::Status CheckKubernetesName(absl::string_view name, int64_t nodes) {
  if (name.empty()) return absl::OkStatus();
  if (!IsLabel(name) || !absl::ascii_islower(static_cast<unsigned char>(name.front()))) {
    return Wrong("name", name,
                 "is not a valid job name: use lowercase letters, digits and '-', starting with a letter and "
                 "not ending with '-'");
  }
  const std::string longest = PodName(name, std::max<int64_t>(nodes, 1) - 1);
  if (longest.size() <= kMaxLabel) return absl::OkStatus();
  return Wrong("name", name,
               absl::StrCat("is too long: the host name ", longest, " would have ", longest.size(),
                            " characters, but only ", kMaxLabel, " are allowed"));
}

absl::Status CheckKubernetesNamespace(absl::string_view name_space) {
  if (name_space.empty() || IsLabel(name_space)) return absl::OkStatus();
  return Wrong(
      "namespace", name_space,
      "is not a valid namespace: use lowercase letters, digits and '-', and do not start or end with '-'");
}

absl::Status CheckKubernetesImage(absl::string_view image) {
  const bool is_printable = std::all_of(
      image.begin(), image.end(), [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); });
  if (is_printable) return absl::OkStatus();
  return Wrong("image", image, "is not a valid image: it contains a space or a non-ASCII character");
}

absl::Status CheckKubernetesClaim(absl::string_view claim) {
  if (claim.empty()) return absl::OkStatus();
  const std::vector<absl::string_view> labels = absl::StrSplit(claim, '.');
  if (claim.size() <= kMaxSubdomain && std::all_of(labels.begin(), labels.end(), IsLabel)) {
    return absl::OkStatus();
  }
  return Wrong("claim", claim,
               "is not a valid PersistentVolumeClaim name: use lowercase letters, digits, '-' and '.'");
}

absl::Status CheckKubernetesMount(absl::string_view mount) {
  const auto is_bad = [&](absl::string_view part) { return part.empty() || part == "." || part == ".."; };
  absl::string_view rest = mount;
  const bool is_absolute = absl::ConsumePrefix(&rest, "/");
  const std::vector<absl::string_view> parts = absl::StrSplit(rest, '/');
  if (is_absolute && !absl::StrContains(mount, ':') && std::none_of(parts.begin(), parts.end(), is_bad)) {
    return absl::OkStatus();
  }
  return Wrong("mount", mount, "is not a valid mount point: use an absolute path such as \"/shared\"");
}

std::string PodName(absl::string_view job, int64_t index) { return absl::StrCat(job, "-", index); }

absl::StatusOr<std::optional<KubernetesPod>> FindKubernetesPod(const Environment& environment) {
  const std::string launcher = Text(environment, kLauncherVariable);
  if (launcher.empty()) return std::nullopt;
  KubernetesPod pod;
  const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(launcher);
  const absl::string_view host = endpoint.ok() ? absl::string_view(endpoint->host) : absl::string_view();
  absl::string_view name = host.substr(0, host.find('.'));
  if (!absl::ConsumeSuffix(&name, "-0") || !IsLabel(name)) return WrongVariable(kLauncherVariable, launcher);
  pod.job = std::string(name);
  pod.launcher = launcher;
  pod.port = endpoint->port;
  const std::string count = Text(environment, kPodsVariable);
  if (!absl::SimpleAtoi(count, &pod.count) || pod.count < 1) return WrongVariable(kPodsVariable, count);
  const std::string index = Text(environment, kIndexVariable);
  if (!absl::SimpleAtoi(index, &pod.index) || pod.index < 0 || pod.index >= pod.count) {
    return WrongVariable(kIndexVariable, index);
  }
  pod.address = Text(environment, kAddressVariable);
  if (pod.address.empty()) return WrongVariable(kAddressVariable, pod.address);
  pod.secret_folder = Text(environment, kSecretVariable);
  if (!absl::StartsWith(pod.secret_folder, "/")) return WrongVariable(kSecretVariable, pod.secret_folder);
  return pod;
}

}  // namespace trainctl::cluster
