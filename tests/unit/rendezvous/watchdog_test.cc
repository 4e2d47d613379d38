// Who hangs, and who only waits.
#include "rendezvous/watchdog.h"

#include <gmock/gmock.h>

#include <random>
#include <set>

#include "absl/time/time.h"
#include "tests/unit/num_cases.h"

namespace trainctl::rendezvous {
namespace {

using testing::HasSubstr;

constexpr int kWorld = 0;  // a group

// Ranks that work a little each 100 ms; a test lets some of them do something else.
class WatchdogTest : public testing::Test {
 protected:
  explicit WatchdogTest(WatchdogLimits limits = {}) : watchdog_(limits) {}

  Standing& Rank(int rank) {
    Standing& standing = boards_[rank];
    if (standing.groups.empty()) standing.groups = {{.index = kWorld}};
    if (standing.phase.empty()) standing.phase = "step";
    return standing;
  }
  // Waits for a message within the next call of the group.
  void LetWait(int rank, int for_rank) {
    Rank(rank).is_waiting = true;
    Rank(rank).groups[0] = {kWorld, 1, 0, for_rank};
  }
  // Runs for `time`, `working` ranks alive, and returns the first hang.
  std::optional<Hang> Run(absl::Duration time, const std::vector<int>& working = {}) {
    for (const absl::Duration end = now_ + time; now_ < end; now_ += absl::Milliseconds(100)) {
      for (const int rank : working) ++Rank(rank).beats;
      if (const auto hang = watchdog_.Look(now_, boards_, [this](int rank) { return activity_[rank]; }))
        return hang;
    }
    return std::nullopt;
  }

  Watchdog watchdog_;
  std::map<int, Standing> boards_;
  std::map<int, Activity> activity_;
  absl::Duration now_ = absl::Hours(1);
};

TEST_F(WatchdogTest, ARankThatWorksMayTakeAsLongAsItLikes) {
  Rank(0);
  EXPECT_FALSE(Run(absl::Hours(1), {0}));
}

TEST_F(WatchdogTest, AnUnknownPhaseGetsTheDefaultAndAKnownOneManyTimesItsLongestPause) {
  Rank(0).phase = "startup";
  ASSERT_FALSE(Run(absl::Seconds(299)));
  EXPECT_THAT(Run(absl::Seconds(2))->description, HasSubstr("(startup)"));

  Rank(0).phase = "step";
  ASSERT_FALSE(Run(absl::Seconds(10), {0}));  // a hundred signs of life, 0.1 s apart
  ASSERT_FALSE(Run(absl::Seconds(59)));
  EXPECT_TRUE(Run(absl::Seconds(2))) << "60 s, however quick a phase is";
}

TEST_F(WatchdogTest, ASlowPhaseIsLearnt) {
  for (int i = 0; i < 30; ++i) {
    ++Rank(0).beats;
    ASSERT_FALSE(Run(absl::Seconds(10)));
  }
  ASSERT_FALSE(Run(absl::Seconds(189)));  // 20 times 10 s, 10 of them gone
  EXPECT_TRUE(Run(absl::Seconds(2)));
}

TEST_F(WatchdogTest, WhoComputesOrWaitsForADiskGetsAsLongAsTheRecipeAllows) {
  Rank(0);
  ASSERT_FALSE(Run(absl::Seconds(10), {0}));
  activity_[0] = Activity::kBusy;
  ASSERT_FALSE(Run(absl::Seconds(598)));
  EXPECT_TRUE(Run(absl::Seconds(3)));
}

TEST_F(WatchdogTest, OneOfManyIsNamedAndNotThoseThatWaitForIt) {
  for (int rank = 0; rank < 4; ++rank) Rank(rank);
  ASSERT_FALSE(Run(absl::Seconds(10), {0, 1, 2, 3}));
  LetWait(0, 1);
  LetWait(1, 2);
  LetWait(3, 2);
  const std::optional<Hang> hang = Run(absl::Seconds(120));
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->rank, 2);
  EXPECT_THAT(hang->description, HasSubstr("; ranks 1 and 3 waited for it"));
}

TEST_F(WatchdogTest, NobodyIsBlamedWhileTheAwaitedOneWorks) {
  Rank(1);
  LetWait(0, 1);
  EXPECT_FALSE(Run(absl::Hours(1), {1}));
}

TEST_F(WatchdogTest, WithoutMessagesTheOneThatIsBehindInAGroupIsNamed) {
  for (int rank = 0; rank < 3; ++rank) {
    Rank(rank).is_waiting = true;  // for its device, say
    Rank(rank).groups[0] = {kWorld, rank == 1 ? 6u : 7u, rank == 1 ? 6u : 7u, -1};
  }
  const std::optional<Hang> hang = Run(absl::Minutes(6));
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->rank, 1);
}

TEST_F(WatchdogTest, OfThousandsThatWaitAFewAreNamed) {
  for (int rank = 1; rank < 3000; ++rank) LetWait(rank, 0);
  Rank(0);
  const std::optional<Hang> hang = Run(absl::Minutes(6));
  ASSERT_TRUE(hang);
  EXPECT_THAT(hang->description,
              HasSubstr("; ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2989 more waited for it"));
}

TEST_F(WatchdogTest, AThreadBesideTheMainOneMayHang) {
  Rank(0).is_waiting = true;  // for its own thread, which waits for nobody
  LetWait(1, 0);
  EXPECT_EQ(Run(absl::Minutes(6))->rank, 0);
}

TEST_F(WatchdogTest, WhereAllWaitForEachOtherOnlyAStoppedProcessIsNamed) {
  LetWait(0, 1);
  LetWait(1, 0);
  ASSERT_FALSE(Run(absl::Minutes(6)));
  activity_[1] = Activity::kStopped;
  const std::optional<Hang> hang = Run(absl::Seconds(1));
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->rank, 1);
  EXPECT_THAT(hang->description, HasSubstr("as its process is stopped"));
}

TEST_F(WatchdogTest, AStopThatCannotBeObeyedIsNoticedWithinItsTimeout) {
  Rank(0);
  ASSERT_FALSE(Run(absl::Seconds(40)));
  watchdog_.NoteStop(now_);
  ASSERT_FALSE(Run(absl::Seconds(29)));
  EXPECT_TRUE(Run(absl::Seconds(2)));
}

class ShortCollectiveTest : public WatchdogTest {
 protected:
  ShortCollectiveTest() : WatchdogTest({.collective = absl::Seconds(3)}) {}
};

TEST_F(ShortCollectiveTest, WhoIsAwaitedHasTheTimeoutOfTheCollective) {
  Rank(1);
  activity_[1] = Activity::kBusy;
  LetWait(0, 1);
  ASSERT_FALSE(Run(absl::Seconds(2.9)));
  EXPECT_EQ(Run(absl::Seconds(0.3))->rank, 1);
}

TEST_F(ShortCollectiveTest, AlsoOnceTheOthersHaveGivenUpAndEnded) {
  Rank(1);
  ASSERT_FALSE(Run(absl::Seconds(4)));  // a pause of its own is none of the collective's
  watchdog_.NoteGivenUp();
  EXPECT_EQ(Run(absl::Seconds(0.1))->rank, 1);
}

// The definition, board by board.
class Definition {
 public:
  explicit Definition(const std::map<int, Standing>& boards) : boards_(boards) {}

  std::optional<int> WhoIsAwaited() const {
    std::vector<int> candidates;
    for (const auto& [rank, standing] : boards_) {
      if (!standing.is_waiting) candidates.push_back(rank);
    }
    if (candidates.empty()) {
      for (const auto& [rank, standing] : boards_) {
        if (AwaitedBy(rank).empty()) candidates.push_back(rank);
      }
    }
    for (const int rank : candidates) {
      for (const auto& [other, standing] : boards_) {
        if (other != rank && AwaitedBy(other).contains(rank)) return rank;
      }
    }
    return candidates.empty() ? std::nullopt : std::optional(candidates.front());
  }

  std::set<int> AwaitedBy(int rank) const {
    const Standing& standing = boards_.at(rank);
    std::set<int> awaited;
    for (const Standing::Group& group : standing.groups) {
      if (group.waits_for >= 0) awaited.insert(group.waits_for);
    }
    if (!awaited.empty() || !standing.is_waiting) return awaited;
    for (const auto& [other, others] : boards_) {
      for (const Standing::Group& own : standing.groups) {
        for (const Standing::Group& its : others.groups) {
          if (other != rank && its.index == own.index && its.entered < own.entered) awaited.insert(other);
        }
      }
    }
    return awaited;
  }

 private:
  const std::map<int, Standing>& boards_;
};

TEST(WhoIsAwaitedTest, IsWhoTheDefinitionSaysOnRandomBoards) {
  std::mt19937_64 random(1);
  const auto below = [&](int bound) { return std::uniform_int_distribution<>(0, bound - 1)(random); };
  int num_named = 0, num_unnamed = 0;
  for (int i = 0; i < NumCases(20000); ++i) {
    const int num_ranks = 1 + below(8), num_groups = 1 + below(4), depth = 1 + below(3);
    const int percent_waiting = below(3) * 50, percent_named = below(4) * 25;
    std::map<int, Standing> boards;
    for (int rank = 0; rank < num_ranks; ++rank) {
      if (below(8) == 0) continue;  // it has ended
      Standing& standing = boards[rank];
      standing.is_waiting = below(100) < percent_waiting || below(20) > 0;
      for (int group = 0; group < num_groups; ++group) {
        if (below(4) == 0) continue;  // no member
        const bool is_named = below(100) < percent_named;
        standing.groups.push_back({.index = group,
                                   .entered = static_cast<uint64_t>(below(depth)),
                                   .waits_for = is_named ? below(num_ranks) : -1});
      }
    }
    const std::optional<int> found = WhoIsAwaited(boards);
    ASSERT_EQ(found, Definition(boards).WhoIsAwaited()) << "boards " << i;
    ++(found ? num_named : num_unnamed);
  }
  EXPECT_GT(num_named, NumCases(1000));
  EXPECT_GT(num_unnamed, NumCases(1000));
}

}  // namespace
}  // namespace trainctl::rendezvous
