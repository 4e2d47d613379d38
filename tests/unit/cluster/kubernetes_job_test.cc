#include "cluster/kubernetes_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/status.h"

namespace trainctl::cluster {
namespace {

using ::testing::HasSubstr;

std::map<std::string, std::string> OfPod1() {
  return {{"TRAINCTL_LAUNCHER", "llm-0.llm:29650"},
          {"TRAINCTL_PODS", "3"},
          {"TRAINCTL_ADDRESS", "10.0.0.7"},
          {"TRAINCTL_SECRET", "/run/trainctl"},
          {"JOB_COMPLETION_INDEX", "1"}};
}

absl::StatusOr<std::optional<KubernetesPod>> Find(const std::map<std::string, std::string>& variables) {
  return FindKubernetesPod([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(KubernetesPod, NoneOutsideOfAJobThatTrainctlPrinted) {
  const auto pod = Find({{"JOB_COMPLETION_INDEX", "0"}});
  ASSERT_TRUE(pod.ok());
  EXPECT_FALSE(pod->has_value());
}

TEST(KubernetesPod, KnowsItsIndexAndTheLauncher) {
  const auto pod = Find(OfPod1());
  ASSERT_TRUE(pod.ok()) << pod.status();
  ASSERT_TRUE(pod->has_value());
  EXPECT_EQ((*pod)->job, "llm");
  EXPECT_EQ((*pod)->index, 1);
  EXPECT_EQ((*pod)->count, 3);
  EXPECT_EQ((*pod)->launcher, "llm-0.llm:29650");
  EXPECT_EQ((*pod)->port, 29650);
  EXPECT_EQ((*pod)->address, "10.0.0.7");
  EXPECT_EQ((*pod)->secret_folder, "/run/trainctl");
}

TEST(KubernetesPod, RefusesWhatTheManifestDoesNotSay) {
  for (const auto& [name, value] : std::map<std::string, std::string>{{"TRAINCTL_LAUNCHER", "llm-1.llm:1"},
                                                                      {"TRAINCTL_PODS", "0"},
                                                                      {"TRAINCTL_ADDRESS", ""},
                                                                      {"TRAINCTL_SECRET", "secret"},
                                                                      {"JOB_COMPLETION_INDEX", "3"}}) {
    auto variables = OfPod1();
    variables[name] = value;
    const auto pod = Find(variables);
    EXPECT_EQ(ExitCodeFor(pod.status()), ExitCode::kUsage) << name;
    EXPECT_THAT(std::string(pod.status().message()), HasSubstr(name));
    variables.erase(name);
    EXPECT_EQ(Find(variables).ok(), name == "TRAINCTL_LAUNCHER") << name;
  }
}

TEST(KubernetesNames, AreThoseThatKubernetesTakes) {
  for (const char* name : {"a", "llm", "llm-7b", "l0"})
    EXPECT_TRUE(CheckKubernetesName(name, 2).ok()) << name;
  for (const char* name : {"7b", "Llm", "llm_7b", "llm-", "-llm", "llm.7b", "l lm", "ll\"m", "ll\nm"}) {
    EXPECT_FALSE(CheckKubernetesName(name, 2).ok()) << name;
  }
  for (const char* claim : {"disk", "0disk", "a.b-c"}) EXPECT_TRUE(CheckKubernetesClaim(claim).ok()) << claim;
  for (const char* claim : {".a", "a..b", "A", "a_b"})
    EXPECT_FALSE(CheckKubernetesClaim(claim).ok()) << claim;
  EXPECT_TRUE(CheckKubernetesNamespace("team-1").ok());
  EXPECT_FALSE(CheckKubernetesNamespace("team.1").ok());
  EXPECT_TRUE(CheckKubernetesImage("registry:5000/team/trainctl@sha256:00").ok());
  EXPECT_FALSE(CheckKubernetesImage("a b").ok());
  EXPECT_TRUE(CheckKubernetesMount("/mnt/shared").ok());
  for (const char* mount : {"/", "shared", "/a/../b", "/a//b", "/a/", "/a:b", ""}) {
    EXPECT_FALSE(CheckKubernetesMount(mount).ok()) << mount;
  }
}

TEST(KubernetesNames, LeaveRoomForTheLastPodsNumber) {
  const std::string name(60, 'n');
  EXPECT_TRUE(CheckKubernetesName(name, 100).ok());
  EXPECT_FALSE(CheckKubernetesName(name, 101).ok());
}

}  // namespace
}  // namespace trainctl::cluster
