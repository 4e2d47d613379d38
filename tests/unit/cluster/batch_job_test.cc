#include "cluster/batch_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/status.h"

namespace trainctl::cluster {
namespace {

using ::testing::ElementsAre;

Environment Given(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

TEST(BatchJob, NoneOutsideOfOne) {
  const absl::StatusOr<std::optional<BatchJob>> job = FindBatchJob(Given({}));
  ASSERT_TRUE(job.ok());
  EXPECT_FALSE(job->has_value());
}

TEST(BatchJob, OfSlurmWithItsNodes) {
  const absl::StatusOr<std::optional<BatchJob>> job = FindBatchJob(
      Given({{"SLURM_JOB_ID", "71"}, {"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURMD_NODENAME", "n2"}}));
  ASSERT_TRUE(job.ok() && job->has_value());
  EXPECT_EQ((*job)->id, "71");
  EXPECT_THAT((*job)->nodes, ElementsAre("n1", "n2"));
  EXPECT_EQ((*job)->this_node, "n2");
}

TEST(BatchJob, AListThatIsNoneIsAnError) {
  EXPECT_FALSE(FindBatchJob(Given({{"SLURM_JOB_ID", "71"}, {"SLURM_JOB_NODELIST", "n[1-"}})).ok());
}

TEST(Copies, OfEachStarter) {
  const std::optional<Copies> srun =
      FindCopies(Given({{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "3"}}));
  ASSERT_TRUE(srun.has_value());
  EXPECT_EQ(srun->starter, "srun");
  EXPECT_EQ(srun->count, 4);
  EXPECT_EQ(srun->rank, "3");
  EXPECT_EQ(FindCopies(Given({{"OMPI_COMM_WORLD_SIZE", "2"}}))->starter, "mpirun");
  EXPECT_EQ(FindCopies(Given({{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}}))->starter, "mpiexec");
  EXPECT_EQ(FindCopies(Given({{"TORCHELASTIC_RUN_ID", "none"}, {"WORLD_SIZE", "8"}, {"RANK", "1"}}))->starter,
            "torchrun");
}

TEST(Copies, NotOfACommandThatIsStartedOnce) {
  EXPECT_FALSE(FindCopies(Given({})).has_value());
  EXPECT_FALSE(FindCopies(Given({{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_NUM_TASKS", "1"}})).has_value());
  EXPECT_FALSE(FindCopies(Given({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "8"}})).has_value())
      << "a batch script asks for tasks that nobody has started";
  EXPECT_FALSE(FindCopies(Given({{"WORLD_SIZE", "8"}})).has_value()) << "a variable that many scripts export";
  EXPECT_FALSE(FindCopies(Given({{"PMI_SIZE", "many"}})).has_value());
}

}  // namespace
}  // namespace trainctl::cluster
