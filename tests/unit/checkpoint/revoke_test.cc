// Writers that stood still while others took their place: what they were writing is not committed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "checkpoint/examine.h"
#include "checkpoint/phase_hook.h"
#include "tests/unit/checkpoint/checkpoint_test_util.h"

namespace trainctl::checkpoint {
namespace {

using testing::IsEmpty;

// Runs `what` when a save reaches the phase.
class AtPhase {
 public:
  AtPhase(std::string phase, std::function<void()> what) {
    SetPhaseHook([phase = std::move(phase), what = std::move(what)](const char* reached) {
      if (reached == phase) what();
    });
  }
  ~AtPhase() { SetPhaseHook({}); }
};

std::vector<Slice> One() { return {Whole("w", DType::kF32, {1 << 18})}; }

TEST(RevokedSaves, AreNotCommittedWhereverTheyStoodStill) {
  for (const char* phase : {"saving", "before_commit_rename"}) {
    SCOPED_TRACE(phase);
    TempFolder folder;
    ASSERT_TRUE(Save(folder.path(), 1, {One()}, 1).ok());
    const AtPhase taken_over(phase, [&] { EXPECT_TRUE(RevokeUnfinished(folder.path()).ok()); });
    EXPECT_FALSE(Save(folder.path(), 2, {One()}, 2).ok());
    EXPECT_EQ(FindNewestGood(folder.path(), nullptr)->step, 1);
    EXPECT_THAT(ReadOrDie(StepPath(folder.path(), 1) + "/manifest.json"), testing::Not(IsEmpty()));
  }
}

TEST(RevokedSaves, DoNotTakeThePlaceOfTheSameStepOfTheirSuccessor) {
  TempFolder folder;
  {
    bool was_taken_over = false;
    const AtPhase taken_over("before_commit_rename", [&] {
      if (std::exchange(was_taken_over, true)) return;  // the successor is there, too
      EXPECT_TRUE(RevokeUnfinished(folder.path()).ok());
      CheckpointWriter successor(folder.path(), 2, 0, 1, "2-1");
      ASSERT_TRUE(successor.Begin().ok());
      ASSERT_TRUE(successor.Write(One(), ContentsOf(One(), 8)).ok());
      ASSERT_TRUE(successor.Commit({2, "{}"}).ok());
    });
    CheckpointWriter former(folder.path(), 2, 0, 1, "1-1");
    ASSERT_TRUE(former.Begin().ok());
    ASSERT_TRUE(former.Write(One(), ContentsOf(One(), 7)).ok());
    EXPECT_FALSE(former.Commit({2, "{}"}).ok());
  }
  ExpectContents(*CheckpointReader::Open(StepPath(folder.path(), 2)), One(), 8);
}

TEST(RevokedSaves, ThatWereCommittedBeforeStay) {
  TempFolder folder;
  ASSERT_TRUE(Save(folder.path(), 1, {One()}, 1).ok());
  ASSERT_TRUE(RevokeUnfinished(folder.path()).ok());
  ExpectContents(*CheckpointReader::Open(StepPath(folder.path(), 1)), One(), 1);
}

TEST(RevokedSaves, LeaveNothingBehind) {
  TempFolder folder;
  for (const char* name : {".tmp-step-00000002-1-7", ".tmp-step-00000003", ".tmp-removed-step-00000001",
                           ".tmp-removed-step-00000002-1-7", "mine"}) {
    ASSERT_TRUE(MakeDirs(folder.path() + "/" + name).ok());
    WriteOrDie(folder.path() + "/" + name + "/rank-00000.safetensors", "x");
  }
  ASSERT_TRUE(RevokeUnfinished(folder.path()).ok());
  EXPECT_FALSE(PathExists(folder.path() + "/.tmp-step-00000002-1-7"));
  EXPECT_FALSE(PathExists(folder.path() + "/.tmp-step-00000003"));
  EXPECT_FALSE(PathExists(folder.path() + "/.tmp-removed-step-00000001"));
  EXPECT_FALSE(PathExists(folder.path() + "/.tmp-removed-step-00000002-1-7"));
  EXPECT_FALSE(PathExists(folder.path() + "/.tmp-removed-step-00000003"));
  EXPECT_TRUE(PathExists(folder.path() + "/mine"));
  EXPECT_TRUE(RevokeUnfinished(folder.path() + "/none").ok());
}

TEST(RevokedRetention, RemovesNothingMore) {
  TempFolder folder;
  for (int64_t step = 1; step <= 4; ++step) ASSERT_TRUE(Save(folder.path(), step, {One()}, 1).ok());
  int num_asked = 0;
  const auto may_remove = [&] {
    return ++num_asked == 1 ? absl::OkStatus() : absl::UnavailableError("taken over");
  };
  EXPECT_EQ(ApplyRetention(folder.path(), {1, 0}, 4, nullptr, may_remove).message(), "taken over");
  EXPECT_EQ(ListCheckpoints(folder.path())->size(), 3u);
}

}  // namespace
}  // namespace trainctl::checkpoint
