// Whether a job that lost a worker starts again.
#include "rendezvous/restart_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/status.h"

namespace trainctl::rendezvous {
namespace {

using testing::HasSubstr;

FailureFacts At(int64_t step) {
  return {.rank = 1, .step = step, .checkpoint_step = -1, .exit_code = std::nullopt};
}

TEST(RestartPolicyTest, AFirstFailureIsRestartedFromTheCheckpoint) {
  FailureFacts facts = At(57);
  facts.checkpoint_step = 50;
  const RestartDecision decision = DecideRestart(facts, std::nullopt, 0, 3, false);
  EXPECT_TRUE(decision.restart);
  EXPECT_EQ(decision.reason, "restarting all workers (1 of 3) from the checkpoint of step 50");
}

TEST(RestartPolicyTest, ProgressEarnsAnotherRestart) {
  EXPECT_TRUE(DecideRestart(At(57), At(20), 1, 3, false).restart);
  EXPECT_TRUE(DecideRestart(At(20), At(57), 1, 3, false).restart) << "another place: not the same cause";
  EXPECT_TRUE(DecideRestart(At(0), At(-1), 1, 3, false).restart) << "it came past start-up";
}

TEST(RestartPolicyTest, TheSamePlaceTwiceIsNotRestarted) {
  for (const int64_t step : {-1, 0, 57}) {
    const RestartDecision decision = DecideRestart(At(step), At(step), 1, 3, false);
    EXPECT_FALSE(decision.restart);
    EXPECT_THAT(decision.reason, HasSubstr("the same rank failed in the same place for the same cause"));
  }
  EXPECT_FALSE(DecideRestart(At(58), At(57), 1, 3, false).restart) << "reports can be one step late";
}

TEST(RestartPolicyTest, AnotherCauseOrRankInTheSamePlaceIsRestarted) {
  for (const int64_t step : {-1, 0, 57}) {
    FailureFacts before = At(step);
    before.message = "no route to 10.0.0.7:4711, process 1234";
    FailureFacts again = At(step);
    again.message = "no route to 10.0.0.9:815, process 99";
    EXPECT_FALSE(DecideRestart(again, before, 1, 3, false).restart) << "numbers are not the cause";
    FailureFacts other_words = again;
    other_words.message = "killed by SIGKILL (9)";
    EXPECT_TRUE(DecideRestart(other_words, before, 1, 3, false).restart);
    FailureFacts other_rank = again;
    other_rank.rank = 2;
    EXPECT_TRUE(DecideRestart(other_rank, before, 1, 3, false).restart);
  }
}

TEST(RestartPolicyTest, AnExitCodeIsACause) {
  FailureFacts before = At(-1), again = At(-1);
  before.exit_code = 1;
  before.message = "exited with code 1";
  again.exit_code = 100;
  again.message = "exited with code 100";
  EXPECT_TRUE(DecideRestart(again, before, 1, 3, false).restart);
  again = before;
  EXPECT_FALSE(DecideRestart(again, before, 1, 3, false).restart);
  again.exit_code.reset();  // ended by the launcher before it could exit by itself
  EXPECT_FALSE(DecideRestart(again, before, 1, 3, false).restart);
}

TEST(RestartPolicyTest, AddressesAreNoCause) {
  FailureFacts before = At(3), again = At(3);
  before.message = "bad access at 0x7f3a00c8 after 1.25s";
  again.message = "bad access at 0xdeadbeef after 61.5s";
  EXPECT_FALSE(DecideRestart(again, before, 1, 3, false).restart);
}

TEST(RestartPolicyTest, ANewCheckpointStartsTheCountAgain) {
  FailureFacts before = At(57), again = At(58);
  before.checkpoint_step = 57;
  again.checkpoint_step = 58;
  const RestartDecision decision = DecideRestart(again, before, 3, 3, false);
  EXPECT_TRUE(decision.restart) << decision.reason;
  EXPECT_THAT(decision.reason, HasSubstr("(1 of 3)"));
  EXPECT_EQ(decision.restarts_used, 1);
  EXPECT_FALSE(DecideRestart(again, before, 3, 0, false).restart);
}

TEST(RestartPolicyTest, StepsOfWordsCountFromOne) {
  FailureFacts facts = At(3);
  facts.message = "disk full";
  EXPECT_EQ(Describe(facts), "rank 1 failed in step 3: disk full");
  facts.step = -1;
  EXPECT_EQ(Describe(facts), "rank 1 failed during start-up: disk full");
}

TEST(RestartPolicyTest, RestartsAreLimited) {
  EXPECT_TRUE(DecideRestart(At(9), At(5), 2, 3, false).restart);
  EXPECT_EQ(DecideRestart(At(9), At(5), 2, 3, false).restarts_used, 3);
  EXPECT_THAT(DecideRestart(At(9), At(5), 3, 3, false).reason,
              HasSubstr("launch.max_restarts = 3 is used up"));
  EXPECT_FALSE(DecideRestart(At(9), std::nullopt, 0, 0, false).restart);
}

TEST(RestartPolicyTest, NothingIsRestartedAgainstAStopOrABadInput) {
  EXPECT_FALSE(DecideRestart(At(9), std::nullopt, 0, 3, true).restart);
  for (const int code : {2, 3, 5, 6, 7, 127}) {
    FailureFacts facts = At(9);
    facts.exit_code = code;
    EXPECT_FALSE(DecideRestart(facts, std::nullopt, 0, 3, false).restart) << code;
  }
  for (const int code : {1, 4, 134}) {
    FailureFacts facts = At(9);
    facts.exit_code = code;
    EXPECT_TRUE(DecideRestart(facts, std::nullopt, 0, 3, false).restart) << code;
  }
}

}  // namespace
}  // namespace trainctl::rendezvous
