#include "telemetry/log_follower.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/files.h"

namespace trainctl::telemetry {
namespace {

class LogFollowerTest : public testing::Test {
 protected:
  LogFollowerTest() : folder_(absl::StrCat(testing::TempDir(), "/log_follower_", ::getpid())) {
    EXPECT_TRUE(MakeDirs(folder_).ok());
  }
  ~LogFollowerTest() override { (void)RemoveAll(folder_); }

  void Write(const std::string& text) const {
    EXPECT_TRUE(AppendFile(folder_ + "/metrics.jsonl", text).ok());
  }
  // Replaces the log as StepLog does.
  void Replace(const std::string& text) const {
    EXPECT_TRUE(WriteFileAtomic(folder_ + "/metrics.jsonl", text).ok());
  }

  const std::string folder_;
  LogFollower follower_{folder_ + "/metrics.jsonl", folder_ + "/timings.jsonl"};
};

TEST_F(LogFollowerTest, LinesComeAsTheyAreWritten) {
  EXPECT_FALSE(follower_.Update());
  EXPECT_EQ(follower_.numbers().step, -1);
  Write("{\"step\":0,\"loss\":null,\"tokens\":0,\"eval\":{\"a\":9,\"b\":4}}\n");
  EXPECT_TRUE(follower_.Update());
  EXPECT_EQ(follower_.numbers().step, 0);
  EXPECT_FALSE(follower_.numbers().loss.has_value()) << "before training";
  Write("{\"step\":1,\"loss\":2.5,\"lr\":3e-04,\"tokens\":64}\n{\"step\":2,\"lo");
  EXPECT_TRUE(follower_.Update());
  EXPECT_EQ(follower_.numbers().step, 1);
  EXPECT_EQ(follower_.numbers().loss, 2.5);
  EXPECT_FALSE(follower_.Update()) << "half a line is none";
  Write("ss\":\"nan\",\"eval\":{\"a\":8.5,\"b\":5}}\n");
  EXPECT_TRUE(follower_.Update());
  EXPECT_TRUE(std::isnan(*follower_.numbers().loss));
  const EvaluationsBySet& sets = follower_.numbers().evaluation;
  ASSERT_EQ(sets.size(), 2u);
  EXPECT_EQ(sets.at("a").last.loss, 8.5);
  EXPECT_EQ(sets.at("b").last.step, 2);
  EXPECT_EQ(sets.at("b").best->step, 0);
  EXPECT_EQ(BestEvaluated(sets)->first, "b");
}

TEST_F(LogFollowerTest, ARestartTakesStepsBack) {
  Write("{\"step\":1,\"loss\":3,\"eval\":{\"a\":1}}\n{\"step\":2,\"loss\":2}\n");
  EXPECT_TRUE(follower_.Update());
  Replace("{\"step\":1,\"loss\":3}\n");
  EXPECT_TRUE(follower_.Update());
  EXPECT_EQ(follower_.numbers().step, 1);
  EXPECT_TRUE(follower_.numbers().evaluation.empty());
}

// The evaluations of a long log are found wherever they are, also across the pieces in which it is read.
TEST_F(LogFollowerTest, LongLogsAreReadWhole) {
  std::string text;
  for (int step = 1; step <= 50'000; ++step) {
    absl::StrAppend(&text, "{\"step\":", step, ",\"loss\":", step);
    if (step % 1000 == 7) absl::StrAppend(&text, ",\"eval\":{\"a\":", 100'000 - step, "}");
    text += "}\n";
  }
  Write(text);
  EXPECT_TRUE(follower_.Update());
  EXPECT_EQ(follower_.numbers().step, 50'000);
  EXPECT_EQ(follower_.numbers().loss, 50'000);
  EXPECT_EQ(follower_.numbers().evaluation.at("a").last.step, 49'007);
  EXPECT_EQ(follower_.numbers().evaluation.at("a").best->loss, 100'000 - 49'007);
}

TEST_F(LogFollowerTest, RubbishIsPassedOver) {
  Write("no json\n[1]\n{\"step\":\"x\"}\n{\"step\":3,\"loss\":1,\"eval\":7}\n\xff\n");
  EXPECT_TRUE(follower_.Update());
  Write("{\"step\":4,\"loss\":0.5,\"eval\":{\"a\":null}}\n");
  EXPECT_TRUE(follower_.Update());
  EXPECT_EQ(follower_.numbers().loss, 0.5);
  EXPECT_TRUE(follower_.numbers().evaluation.empty());
  EXPECT_EQ(BestEvaluated(follower_.numbers().evaluation), follower_.numbers().evaluation.end());
}

}  // namespace
}  // namespace trainctl::telemetry
