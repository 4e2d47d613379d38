#include "cluster/kubernetes_manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"

namespace trainctl::cluster {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

KubernetesJob Job() {
  KubernetesJob job;
  job.config = {.name = "llm", .name_space = "", .image = "registry/trainctl:1", .claim = "disk"};
  job.secret = {.authority_pem = "-----BEGIN\nca\n",
                .bootstrap_certificate_pem = "cert",
                .bootstrap_key_pem = "key",
                .keys = {"launcher's", "of pod 1"}};
  job.command = {"trainctl", "launch", "/shared/r.toml"};
  job.stop_timeout = absl::Milliseconds(1500);
  return job;
}

std::string Manifest(const KubernetesJob& job) {
  const absl::StatusOr<std::string> text = KubernetesManifest(job);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

TEST(KubernetesManifest, HasAPodAndAKeyForEachNode) {
  const std::string text = Manifest(Job());
  for (const char* part :
       {"completions: 2\n", "parallelism: 2\n", "key-0: \"launcher's\"\n", "key-1: \"of pod 1\"\n",
        "ca.pem: \"-----BEGIN\\nca\\n\"\n", "subPathExpr: key-$(JOB_COMPLETION_INDEX)", "defaultMode: 256",
        "value: \"llm-0.llm:29650\"", "command: [\"trainctl\", \"launch\", \"/shared/r.toml\"]",
        "values: [2, 3, 6, 7, 130]"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("namespace")));
}

TEST(KubernetesManifest, TellsEachPodItsAddress) {
  EXPECT_THAT(Manifest(Job()),
              HasSubstr("- {name: TRAINCTL_ADDRESS, valueFrom: {fieldRef: {fieldPath: status.podIP}}}"));
}

TEST(KubernetesManifest, GivesTheWorkersTimeToSave) {
  EXPECT_THAT(Manifest(Job()), HasSubstr("terminationGracePeriodSeconds: 32\n"));
}

TEST(KubernetesManifest, AsksForGpusWhereWorkersComputeOnThem) {
  KubernetesJob job = Job();
  EXPECT_THAT(Manifest(job), Not(HasSubstr("nvidia.com/gpu")));
  job.gpus_per_pod = 8;
  EXPECT_THAT(Manifest(job), HasSubstr("limits: {nvidia.com/gpu: 8}"));
}

TEST(KubernetesManifest, GivesPodsNoMoreRightsThanTheyNeed) {
  KubernetesJob job = Job();
  for (const char* part : {"runAsNonRoot: true\n", "runAsUser: 1000\n", "fsGroup: 1000\n",
                           "seccompProfile: {type: RuntimeDefault}\n",
                           "{allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}\n",
                           "kind: NetworkPolicy\n", "{name: tmp, mountPath: /tmp}\n"}) {
    EXPECT_THAT(Manifest(job), HasSubstr(part));
  }
  job.config.user = 0;
  EXPECT_THAT(Manifest(job), Not(HasSubstr("runAsNonRoot")));
  EXPECT_THAT(Manifest(job), HasSubstr("runAsUser: 0, runAsGroup: 0, seccompProfile"));
  EXPECT_THAT(Manifest(job), HasSubstr("drop: [ALL], add: [DAC_OVERRIDE]"));
}

TEST(KubernetesManifest, KeepsWordsApartWhateverIsInThem) {
  KubernetesJob job = Job();
  job.config.name_space = "team";
  job.command = {"a: b", "\"]\nkind: x", "\x7f", "$(HOME)"};
  const std::string text = Manifest(job);
  EXPECT_THAT(text, HasSubstr("namespace: \"team\"\n"));
  EXPECT_THAT(text, HasSubstr(R"yaml(command: ["a: b", "\"]\nkind: x", "\u007f", "$$(HOME)"])yaml"));
}

TEST(KubernetesManifest, RefusesMoreKeysThanASecretHolds) {
  KubernetesJob job = Job();
  job.secret.keys.assign(20000, std::string(64, 'k'));
  EXPECT_EQ(ExitCodeFor(KubernetesManifest(job).status()), ExitCode::kUsage);
}

}  // namespace
}  // namespace trainctl::cluster
