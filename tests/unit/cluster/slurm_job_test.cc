#include "cluster/slurm_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

#include "base/status.h"

namespace trainctl::cluster {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

SlurmJob AJob() {
  SlurmJob job;
  job.name = "llm";
  job.nodes = 4;
  job.devices_per_node = 8;
  job.folder = "/home/me";
  job.output = "/shared/runs/llm/slurm-%j.out";
  job.command = {"/opt/trainctl", "launch", "/shared/it's.toml"};
  return job;
}

Environment Of(const std::map<std::string, std::string>& variables) {
  return [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

TEST(SlurmScript, AsksForItsNodesAndIsWarned) {
  const auto script = SlurmScript(AJob());
  ASSERT_TRUE(script.ok()) << script.status();
  EXPECT_EQ(*script,
            "#!/bin/bash\n"
            "#SBATCH --job-name=llm\n"
            "#SBATCH --nodes=4\n"
            "#SBATCH --ntasks-per-node=1\n"
            "#SBATCH --exclusive\n"
            "#SBATCH --no-kill\n"
            "#SBATCH --requeue\n"
            "#SBATCH --signal=B:USR1@300\n"
            "#SBATCH --chdir=/home/me\n"
            "#SBATCH --output=/shared/runs/llm/slurm-%j.out\n"
            "#SBATCH --open-mode=append\n"
            "#SBATCH --gpus-per-node=8\n"
            "export TRAINCTL_SUBMITTED=1\n"
            "exec /opt/trainctl launch '/shared/it'\\''s.toml'\n");
}

TEST(SlurmScript, TheUsersOptionsComeLastAndMaySayTheDevices) {
  SlurmJob job = AJob();
  job.config.submit_options = {"--gres=gpu:a100:8", "--comment=two words"};
  const auto script = SlurmScript(job);
  ASSERT_TRUE(script.ok()) << script.status();
  EXPECT_THAT(*script,
              HasSubstr("append\n#SBATCH --gres=gpu:a100:8\n#SBATCH \"--comment=two words\"\nexport"));
  EXPECT_THAT(*script, Not(HasSubstr("--gpus-per-node")));
}

TEST(SlurmScript, NothingLeavesItsDirective) {
  for (const char* folder : {"/a\nrm -rf b", "/a\"b", "/a\\b"}) {
    SlurmJob job = AJob();
    job.folder = folder;
    const auto script = SlurmScript(job);
    EXPECT_EQ(ExitCodeFor(script.status()), ExitCode::kUsage) << folder;
    EXPECT_THAT(std::string(script.status().message()), HasSubstr("cannot be passed to Slurm"));
  }
}

TEST(SlurmSubmitOptions, WhatTheJobNeedsAsItIsIsRefused) {
  for (const char* option :
       {"--nodes=3", "-N3", "-n", "--signal=TERM@9", "--array=1-3", "--wrap=x", "-D/tmp"}) {
    const absl::Status status = CheckSubmitOptions({option});
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kUsage) << option;
    EXPECT_THAT(std::string(status.message()), HasSubstr("remove it"));
  }
  EXPECT_THAT(std::string(CheckSubmitOptions({"-p", "gpu"}).message()),
              HasSubstr("'gpu' is not an sbatch option"));
  EXPECT_THAT(std::string(CheckSubmitOptions({"--comment=a\nb"}).message()),
              StartsWith("launch.slurm.submit_options: "));
  EXPECT_TRUE(CheckSubmitOptions({"--nodelist=n[1-3]", "--ntasks-per-core=1", "--wait-all-nodes=1", "-pgpu",
                                  "--time=1-00:00:00", "--no-requeue", "--exclude=n1,n2"})
                  .ok());
}

TEST(SubmittedJob, IsOneThatWeSubmitted) {
  EXPECT_EQ(FindSubmittedJob(Of({{"SLURM_JOB_ID", "7"}})), std::nullopt);
  EXPECT_EQ(FindSubmittedJob(Of({{"TRAINCTL_SUBMITTED", "1"}})), std::nullopt);
  const std::map<std::string, std::string> ours = {{"SLURM_JOB_ID", "7"}, {"TRAINCTL_SUBMITTED", "1"}};
  EXPECT_EQ(FindSubmittedJob(Of(ours)), "7");
  EXPECT_FALSE(IsRequeued(Of(ours)));
  std::map<std::string, std::string> again = ours;
  again["SLURM_RESTART_COUNT"] = "0";
  EXPECT_FALSE(IsRequeued(Of(again)));
  again["SLURM_RESTART_COUNT"] = "2";
  EXPECT_TRUE(IsRequeued(Of(again)));
  again.erase("TRAINCTL_SUBMITTED");
  EXPECT_FALSE(IsRequeued(Of(again)));
}

TEST(SubmittedJob, HasTheNumberThatSbatchTells) {
  EXPECT_EQ(ParseSubmitted("1234\n").value(), "1234");
  EXPECT_EQ(ParseSubmitted("sbatch: a note of the site\n1234;north\n").value(), "1234");
  for (const char* none : {"", "Submitted batch job 12", "12x", ";north"}) {
    EXPECT_EQ(ExitCodeFor(ParseSubmitted(none).status()), ExitCode::kEnvironment) << none;
  }
}

TEST(JobRecord, IsOfOneFolderOnly) {
  const std::string record = FormatJobRecord("1234", "/shared/runs/llm");
  EXPECT_EQ(FindRecordedJob(record, "/shared/runs/llm"), "1234");
  EXPECT_EQ(FindRecordedJob(record, "/shared/runs/copy"), std::nullopt);
  for (const char* other : {"", "[]", "{\"job\": 1234, \"folder\": \"/r\"}", "{\"job\": \"1234\"}",
                            "{\"job\": \"-l\", \"folder\": \"/r\"}"}) {
    EXPECT_EQ(FindRecordedJob(other, "/r"), std::nullopt) << other;
  }
}

// As Slurm 22.05 prints them.
TEST(SlurmJobState, IsReadOfWhatSlurmShows) {
  const auto waits =
      ParseJobState("JobId=1 JobName=run JobState=PENDING Reason=Resources PreemptTime=None\n");
  ASSERT_TRUE(waits.has_value());
  EXPECT_TRUE(waits->IsWaiting() && waits->WillLaunch() && waits->IsAlive() && !waits->makes_room);
  EXPECT_EQ(waits->reason, "Resources");
  const auto runs = ParseJobState(
      "JobId=1 JobState=RUNNING Reason=None PreemptEligibleTime=x PreemptTime=2026-11-24T17:24:08 A=");
  ASSERT_TRUE(runs.has_value());
  EXPECT_TRUE(!runs->IsWaiting() && runs->WillLaunch() && runs->makes_room);
  EXPECT_EQ(runs->reason, "");
  const auto ended = ParseJobState("JobId=1 JobState=FAILED Reason=NonZeroExitCode");
  ASSERT_TRUE(ended.has_value());
  EXPECT_FALSE(ended->IsAlive() || ended->WillLaunch());
  EXPECT_EQ(ParseJobState("slurm_load_jobs error: Invalid job id specified"), std::nullopt);
  EXPECT_EQ(ParseJobState(""), std::nullopt);
}

TEST(SlurmNodes, AreReachedByTheirAddresses) {
  EXPECT_EQ(ParseNodeAddresses("NodeName=n1 Arch=x86_64 CPUAlloc=0 NodeAddr=10.1.0.1 NodeHostName=n1\n"
                               "NodeName=n3 CPUTot=2 NodeAddr=n3-ib NodeHostName=n3\n\n"),
            (std::map<std::string, std::string>{{"n1", "10.1.0.1"}, {"n3", "n3-ib"}}));
  // One that is not there yet.
  EXPECT_TRUE(ParseNodeAddresses("NodeName=cloud7 NodeAddr=(null)\nNodeName=cloud8").empty());
  EXPECT_TRUE(ParseNodeAddresses("slurm_load_node error: Unable to contact slurm controller").empty());
}

TEST(SlurmWarning, IsTheSignalThatTheScriptAsksForWhoeverGotIt) {
  EXPECT_TRUE(IsWarning("SIGUSR1"));
  EXPECT_TRUE(IsWarning("node7: SIGUSR1"));
  EXPECT_FALSE(IsWarning("SIGTERM"));
  EXPECT_FALSE(IsWarning("trainctl stop: SIGUSR1 is not this"));
  EXPECT_FALSE(IsWarning(""));
}

}  // namespace
}  // namespace trainctl::cluster
