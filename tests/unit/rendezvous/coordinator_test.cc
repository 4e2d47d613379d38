#include "rendezvous/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace trainctl::rendezvous {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Drives a coordinator by hand; time passes only when a test says so.
class CoordinatorTest : public testing::Test {
 protected:
  void Expect(int num_members) {
    rendezvous::Expect expect;
    for (int i = 0; i < num_members; ++i) expect.slots.push_back({Name(i), "n", i, 1, {i}});
    Give(expect);
  }
  static std::string Name(int i) { return absl::StrCat("n/", i); }
  MemberId Id(int i, int64_t incarnation = 1) const { return {Name(i), incarnation}; }
  Decision Give(const Event& event) { return last_ = coordinator_.Decide(now_, event); }
  Decision GiveJoin(int i, int64_t incarnation = 1) { return Give(Join{Id(i, incarnation), 100 + i}); }
  Decision GiveAck(int i) {
    return Give(Ack{Id(i), coordinator_.generation(), coordinator_.assignment_hash()});
  }
  Decision GiveRecorded() { return Give(Recorded{coordinator_.generation()}); }
  void Prepare(int num_members) {
    Expect(num_members);
    for (int i = 0; i < num_members; ++i) GiveJoin(i);
    for (int i = 0; i < num_members; ++i) GiveAck(i);
  }
  void Start(int num_members) {
    Prepare(num_members);
    GiveRecorded();
    ASSERT_TRUE(coordinator_.running());
  }
  // Time passes, with ticks as they come in life; `heard` members keep up their heartbeats.
  std::vector<Notice> Pass(absl::Duration duration, const std::vector<int>& heard) {
    std::vector<Notice> notices;
    const absl::Duration end = now_ + duration;
    while (now_ < end) {
      now_ += coordinator_.timeouts().tick;
      for (const int i : heard) Give(Heartbeat{Id(i), coordinator_.generation(), {}});
      const Decision decision = Give(Tick{});
      notices.insert(notices.end(), decision.notices.begin(), decision.notices.end());
    }
    return notices;
  }
  static Exited Killed(int i) {
    return {Name(i), false, true, "killed by SIGKILL (9)", {-1, ""}, /*echo=*/false, /*killed=*/true};
  }
  static Exited Crashed(int i, bool waited) {
    Exited exited{Name(i), false, true, "killed by SIGSEGV (11)"};
    exited.waited = waited;
    return exited;
  }
  std::vector<Notice::Kind> Kinds() const {  // of the last notices
    std::vector<Notice::Kind> kinds;
    for (const Notice& notice : last_.notices) kinds.push_back(notice.kind);
    return kinds;
  }
  static int Count(const Decision& decision, Command::Kind kind) {
    int count = 0;
    for (const Command& command : decision.commands) count += command.kind == kind ? 1 : 0;
    return count;
  }

  Coordinator coordinator_{Timeouts::FromDetect(absl::Seconds(3)), 2, 7};
  absl::Duration now_ = absl::Seconds(1000);
  Decision last_;
};

TEST_F(CoordinatorTest, NobodyGoesBeforeEverybodyHasAcknowledged) {
  Expect(3);
  EXPECT_THAT(GiveJoin(0).commands, IsEmpty());
  EXPECT_THAT(GiveJoin(2).commands, IsEmpty());
  EXPECT_EQ(Count(GiveJoin(1), Command::Kind::kPrepare), 3);
  EXPECT_EQ(coordinator_.generation(), 8) << "the generation after the journal's";
  EXPECT_EQ(Count(GiveAck(0), Command::Kind::kGo), 0);
  EXPECT_EQ(Count(GiveAck(1), Command::Kind::kGo), 0);
  EXPECT_EQ(Count(GiveAck(2), Command::Kind::kGo), 0);
  ASSERT_THAT(last_.notices, SizeIs(1));
  EXPECT_EQ(last_.notices[0].kind, Notice::Kind::kPrepared);
  EXPECT_EQ(last_.notices[0].generation, 8);
  EXPECT_EQ(Count(GiveRecorded(), Command::Kind::kGo), 3);
  EXPECT_TRUE(coordinator_.running());
}

TEST_F(CoordinatorTest, NobodyGoesBeforeTheGenerationIsRecorded) {
  Prepare(2);
  EXPECT_EQ(coordinator_.phase_name(), "recording");
  EXPECT_THAT(Give(Recorded{7}).commands, IsEmpty()) << "another generation is";
  const Decision again = GiveJoin(1);
  EXPECT_EQ(Count(again, Command::Kind::kPrepare), 1);
  EXPECT_EQ(Count(again, Command::Kind::kGo), 0);
  EXPECT_THAT(GiveAck(1).notices, IsEmpty()) << "it was said before";
  EXPECT_THAT(Pass(absl::Minutes(10), {0, 1}), IsEmpty()) << "a slow disk is no failure";
  EXPECT_EQ(Count(GiveRecorded(), Command::Kind::kGo), 2);
  EXPECT_THAT(GiveRecorded().commands, IsEmpty());
}

TEST_F(CoordinatorTest, ARecordThatCameTooLateLetsNobodyGo) {
  Prepare(2);
  GiveJoin(1, 2);  // its process was replaced meanwhile
  EXPECT_EQ(coordinator_.generation(), 9);
  EXPECT_THAT(Give(Recorded{8}).commands, IsEmpty());
  EXPECT_EQ(coordinator_.phase_name(), "preparing");
}

TEST_F(CoordinatorTest, AFailureWhileTheGenerationIsRecordedIsOne) {
  Prepare(2);
  Give(Exited{Name(1), false, true, "killed by SIGSEGV (11)"});
  ASSERT_THAT(last_.notices, SizeIs(1));
  EXPECT_EQ(last_.notices[0].failure.rank, 1);
  EXPECT_THAT(GiveRecorded().commands, IsEmpty());
}

TEST_F(CoordinatorTest, RanksFollowTheSlotsAndLocalRanksTheNode) {
  rendezvous::Expect expect;
  for (const auto& [node, id] : std::vector<std::pair<std::string, int>>{{"a", 0}, {"b", 0}, {"a", 1}}) {
    expect.slots.push_back({absl::StrCat(node, "/", id), node, id, 4, {}});
  }
  Give(expect);
  for (const char* name : {"b/0", "a/1", "a/0"}) Give(Join{{name, 5}, 1});
  const auto assignment = ParseAssignment(coordinator_.assignment_bytes());
  ASSERT_TRUE(assignment.ok());
  const auto world = FindMember(*assignment, "a/1", 5);
  ASSERT_TRUE(world.ok());
  EXPECT_EQ(world->rank, 2);
  EXPECT_EQ(world->local_rank, 1);
  EXPECT_EQ(world->world_size, 3);
  EXPECT_EQ(world->threads, 4);
  EXPECT_FALSE(FindMember(*assignment, "a/1", 4).ok());
}

TEST_F(CoordinatorTest, JoiningTwiceChangesNothing) {
  Expect(3);
  for (const int i : {0, 0, 0}) EXPECT_THAT(GiveJoin(i).commands, IsEmpty());
  Start(2);
  const Decision again = GiveJoin(1);
  EXPECT_EQ(Count(again, Command::Kind::kPrepare), 1);
  EXPECT_EQ(Count(again, Command::Kind::kGo), 1);
  EXPECT_THAT(again.notices, IsEmpty());
  EXPECT_EQ(coordinator_.generation(), 8);
}

TEST_F(CoordinatorTest, AnOlderIncarnationIsFencedOff) {
  Expect(2);
  GiveJoin(0, 5);
  EXPECT_EQ(Count(GiveJoin(0, 4), Command::Kind::kReject), 1);
  EXPECT_EQ(Count(Give(Heartbeat{Id(0, 4), 0, {}}), Command::Kind::kReject), 1);
  EXPECT_FALSE(last_.commands[0].rejoin);
}

TEST_F(CoordinatorTest, AnOlderIncarnationDoesNotTakeThePlaceOfOneThatHasToJoinAgain) {
  Expect(2);
  GiveJoin(0, 5);
  GiveJoin(1);
  GiveAck(1);
  Pass(absl::Seconds(3.1), {1});  // 0 did not acknowledge
  ASSERT_EQ(coordinator_.phase_name(), "gathering");
  Give(Heartbeat{Id(0, 4), 0, {}});
  ASSERT_EQ(Count(last_, Command::Kind::kReject), 1);
  EXPECT_FALSE(last_.commands[0].rejoin);
  EXPECT_EQ(Count(GiveJoin(0, 4), Command::Kind::kReject), 1);
  EXPECT_EQ(coordinator_.phase_name(), "gathering");
  EXPECT_EQ(Count(GiveJoin(0, 5), Command::Kind::kPrepare), 2);
}

TEST_F(CoordinatorTest, AProcessIsNotOfThePastBecauseItsJoinIsStillOnTheWay) {
  Expect(2);
  GiveJoin(0, 4);
  Give(ReportFailure{Id(0, 5), 0, {-1, -1, "", "out of memory", false}});
  ASSERT_EQ(Count(last_, Command::Kind::kReject), 1);
  EXPECT_TRUE(last_.commands[0].rejoin);
}

TEST_F(CoordinatorTest, AMissingAcknowledgementLeadsToANewGeneration) {
  Expect(3);
  for (int i = 0; i < 3; ++i) GiveJoin(i);
  GiveAck(0);
  GiveAck(2);
  EXPECT_THAT(Pass(absl::Seconds(2), {0, 1, 2}), IsEmpty());
  EXPECT_EQ(coordinator_.phase_name(), "preparing");
  Pass(absl::Seconds(1.1), {0, 1, 2});
  EXPECT_EQ(coordinator_.phase_name(), "gathering");
  EXPECT_EQ(Count(GiveJoin(1), Command::Kind::kPrepare), 3) << "the others do not have to join again";
  EXPECT_EQ(coordinator_.generation(), 9);
  for (int i = 0; i < 3; ++i) GiveAck(i);
  GiveRecorded();
  EXPECT_TRUE(coordinator_.running());
}

TEST_F(CoordinatorTest, WhoeverDidNotAcknowledgeIsAskedBackAndWaitedFor) {
  Expect(3);
  for (int i = 0; i < 3; ++i) GiveJoin(i);
  GiveAck(0);
  now_ += coordinator_.timeouts().ack / 2;
  Give(Tick{});
  now_ += coordinator_.timeouts().ack / 2;
  Give(Tick{});
  ASSERT_EQ(Count(last_, Command::Kind::kReject), 2);
  for (const Command& command : last_.commands) EXPECT_TRUE(command.rejoin);
  EXPECT_THAT(GiveJoin(2).commands, IsEmpty()) << "1 is missing";
  EXPECT_EQ(Count(GiveJoin(1), Command::Kind::kPrepare), 3);
}

TEST_F(CoordinatorTest, AnAcknowledgementOfAnOlderGenerationDoesNotCount) {
  Expect(2);
  GiveJoin(0);
  GiveJoin(1);
  const uint64_t old_hash = coordinator_.assignment_hash();
  GiveAck(0);
  GiveJoin(1, 2);  // its process was replaced
  EXPECT_EQ(coordinator_.generation(), 9);
  Give(Ack{Id(0), 8, old_hash});
  Give(Ack{Id(1, 2), 9, coordinator_.assignment_hash()});
  EXPECT_EQ(coordinator_.phase_name(), "preparing") << "0 has not acknowledged generation 9";
  Give(Ack{Id(0), 9, old_hash});
  EXPECT_EQ(coordinator_.phase_name(), "preparing") << "nor with the hash of generation 8";
  Give(Ack{Id(0), 9, coordinator_.assignment_hash()});
  EXPECT_EQ(coordinator_.phase_name(), "recording");
}

TEST_F(CoordinatorTest, WhoeverDoesNotJoinIsNamed) {
  Expect(3);
  GiveJoin(0);
  GiveJoin(2);
  const std::vector<Notice> notices = Pass(coordinator_.timeouts().join + absl::Seconds(1), {0, 2});
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_EQ(notices[0].member, Name(1));
  EXPECT_THAT(notices[0].failure.message, HasSubstr("missing: n/1"));
}

TEST_F(CoordinatorTest, TheSameAcknowledgementTwiceCountsOnce) {
  Expect(2);
  GiveJoin(0);
  GiveJoin(1);
  GiveAck(0);
  EXPECT_THAT(GiveAck(0).notices, IsEmpty());
  EXPECT_EQ(coordinator_.phase_name(), "preparing");
}

TEST_F(CoordinatorTest, WordsOfAnOlderGenerationChangeNothing) {
  Prepare(2);
  GiveJoin(1, 2);  // its process was replaced
  ASSERT_EQ(coordinator_.generation(), 9);
  const uint64_t hash = coordinator_.assignment_hash();
  Give(Ack{Id(1, 2), 9, hash});
  EXPECT_THAT(Give(Ack{Id(0), 8, hash}).notices, IsEmpty());
  EXPECT_EQ(coordinator_.phase_name(), "preparing");
  GiveAck(0);
  GiveRecorded();
  ASSERT_TRUE(coordinator_.running());
  EXPECT_THAT(Give(Heartbeat{Id(0), 8, {5, "step"}}).notices, IsEmpty());
  EXPECT_THAT(Give(Leave{Id(0), 8, LeaveKind::kFinished}).notices, IsEmpty());
  Give(ReportFailure{Id(0), 8, {0, 5, "", "disk full", false}});
  now_ += coordinator_.timeouts().settle;
  EXPECT_THAT(Give(Tick{}).notices, IsEmpty());
}

TEST_F(CoordinatorTest, AProcessThatIsReplacedWhileTheJobRunsHasFailed) {
  Start(2);
  GiveJoin(1, 2);
  ASSERT_EQ(Kinds(), std::vector{Notice::Kind::kFailed});
  EXPECT_EQ(last_.notices[0].failure.rank, 1);
}

TEST_F(CoordinatorTest, WhoHasEndedDoesNotJoin) {
  Expect(2);
  GiveJoin(0);
  Give(Exited{Name(0), true, false, "exited with code 0"});
  EXPECT_EQ(Count(GiveJoin(0), Command::Kind::kReject), 1);
  EXPECT_EQ(Count(GiveJoin(1), Command::Kind::kReject), 0);
}

TEST_F(CoordinatorTest, NobodyLeavesBeforeTheJobRuns) {
  Prepare(1);
  EXPECT_THAT(Give(Leave{Id(0), 8, LeaveKind::kFinished}).notices, IsEmpty());
}

TEST_F(CoordinatorTest, WhatIsToldTwiceOfAnEndCountsOnce) {
  Start(3);
  for (const int i : {0, 0, 1, 1}) Give(Leave{Id(i), 8, LeaveKind::kStopped});
  for (const int i : {0, 0, 1, 1}) Give(Exited{Name(i), true, false, "exited with code 75"});
  for (const int i : {0, 1}) Give(Leave{Id(i), 8, LeaveKind::kFinished});
  EXPECT_THAT(last_.reason, HasSubstr("2 of 3"));
  EXPECT_EQ(coordinator_.phase_name(), "running");
  Give(Leave{Id(2), 8, LeaveKind::kFinished});
  Give(Exited{Name(2), true, false, "exited with code 0"});
  ASSERT_EQ(Kinds(), std::vector{Notice::Kind::kFinished});
  EXPECT_FALSE(last_.notices[0].stopped) << "the last word of each counts";
}

TEST_F(CoordinatorTest, WhoFallsSilentAfterItsJoinIsBlamedBeforeTheOthersHaveJoined) {
  Expect(2);
  GiveJoin(1);
  const std::vector<Notice> notices = Pass(absl::Seconds(3.2), {});
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_EQ(notices[0].member, Name(1));
  EXPECT_THAT(notices[0].failure.message, HasSubstr("no heartbeat"));
}

TEST_F(CoordinatorTest, OfThousandsMissingTheFirstAreNamed) {
  Expect(1010);
  GiveJoin(0);
  const std::vector<Notice> notices = Pass(coordinator_.timeouts().join + absl::Seconds(1), {0});
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_EQ(notices[0].member, Name(1));
  EXPECT_THAT(notices[0].failure.message,
              HasSubstr("(missing: n/1, n/2, n/3, n/4, n/5, n/6, n/7, n/8, n/9, n/10, ... and 999 more)"));
}

TEST_F(CoordinatorTest, OfSeveralSilentAtATickTheFirstSlotIsBlamed) {
  Start(4);
  for (const int i : {2, 0, 1, 3}) {
    now_ += absl::Milliseconds(1);
    Give(Heartbeat{Id(i), 8, {}});
  }
  Give(Leave{Id(0), 8, LeaveKind::kFinished});
  const std::vector<Notice> notices = Pass(absl::Seconds(3.2), {3});
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_EQ(notices[0].failure.rank, 1) << "0 has left, 2 is silent for longer";
}

TEST_F(CoordinatorTest, SilenceIsAFailureWithItsRankAndStep) {
  Start(3);
  Give(Heartbeat{Id(1), 8, {42, "backward"}});
  EXPECT_THAT(Pass(absl::Seconds(2.9), {0, 2}), IsEmpty());
  const std::vector<Notice> notices = Pass(absl::Seconds(0.3), {0, 2});
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_EQ(notices[0].kind, Notice::Kind::kFailed);
  EXPECT_EQ(notices[0].failure.rank, 1);
  EXPECT_EQ(notices[0].failure.step, 42);
  EXPECT_THAT(notices[0].failure.message, HasSubstr("last seen in backward"));
}

TEST_F(CoordinatorTest, ACoordinatorThatStoodStillBlamesNobody) {
  Start(2);
  now_ += absl::Minutes(10);  // suspended
  EXPECT_THAT(Give(Tick{}).notices, IsEmpty());
  EXPECT_THAT(last_.reason, HasSubstr("stood still"));
  EXPECT_THAT(Pass(absl::Seconds(1), {0, 1}), IsEmpty());
  EXPECT_THAT(Pass(absl::Seconds(4), {0}), SizeIs(1)) << "real silence still counts";
}

// After a suspension the messages that waited in the sockets can be handled before the first tick.
TEST_F(CoordinatorTest, WhatIsHeardBetweenAStandstillAndTheNextTickHasLostNoTime) {
  Start(2);
  now_ += absl::Hours(8);
  for (const int i : {0, 1}) Give(Heartbeat{Id(i), 8, {}});
  EXPECT_THAT(Give(Tick{}).notices, IsEmpty());
  const std::vector<Notice> notices = Pass(absl::Seconds(3.2), {0});
  ASSERT_THAT(notices, SizeIs(1)) << "silence is noticed as late as ever, not 8 hours later";
  EXPECT_EQ(notices[0].failure.rank, 1);
}

TEST_F(CoordinatorTest, AFailureHeardBetweenAStandstillAndTheNextTickDoesNotWaitLonger) {
  Start(2);
  now_ += absl::Hours(8);
  Give(Exited{Name(1), false, false, "exited with code 3"});
  EXPECT_THAT(Give(Tick{}).notices, IsEmpty());
  EXPECT_THAT(Pass(coordinator_.timeouts().settle, {0}), SizeIs(1));
}

TEST_F(CoordinatorTest, AnAssignmentSentBetweenAStandstillAndTheNextTickDoesNotWaitLonger) {
  Expect(2);
  GiveJoin(0);
  now_ += absl::Hours(8);
  GiveJoin(1);
  Give(Tick{});
  GiveAck(0);
  Pass(coordinator_.timeouts().ack, {0, 1});
  EXPECT_EQ(coordinator_.phase_name(), "gathering");
}

TEST_F(CoordinatorTest, AnEchoWaitsForItsCause) {
  Start(3);
  Give(ReportFailure{Id(0), 8, {0, 5, "dp", "connection closed", true}});
  EXPECT_EQ(Kinds(), std::vector{Notice::Kind::kGivenUp});
  Give(Exited{Name(0), false, false, "exited with code 4"});
  EXPECT_THAT(last_.notices, IsEmpty()) << "it only tells of another's death";
  Give(Exited{Name(2), false, true, "killed by SIGSEGV (11)"});
  ASSERT_THAT(last_.notices, SizeIs(1));
  EXPECT_EQ(last_.notices[0].failure.rank, 2);
}

TEST_F(CoordinatorTest, AnEchoWithoutACauseIsReportedInTheEnd) {
  Start(2);
  Give(ReportFailure{Id(0), 8, {0, 5, "dp", "connection closed", true}});
  const std::vector<Notice> notices = Pass(absl::Seconds(3.2), {0, 1});
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_EQ(notices[0].failure.rank, 0);
}

TEST_F(CoordinatorTest, AReportThatOvertakesTheDeathItTellsOfYields) {
  Start(3);
  Give(ReportFailure{Id(0), 8, {0, 5, "", "unmarked: connection reset", false}});
  EXPECT_THAT(last_.notices, IsEmpty());
  now_ += absl::Milliseconds(1);
  Give(Killed(1));
  ASSERT_THAT(last_.notices, SizeIs(1));
  EXPECT_EQ(last_.notices[0].failure.rank, 1);
}

// Rank 0 lost its peer and did not survive its own end.
TEST_F(CoordinatorTest, ACauseThatWasReportedIsNotHiddenByACrashThatFollows) {
  Start(3);
  Give(ReportFailure{Id(1), 8, {1, 5, "", "disk full", false}});
  now_ += absl::Milliseconds(1);
  Give(Exited{Name(0), false, true, "killed by SIGSEGV (11)"});
  EXPECT_THAT(last_.notices, IsEmpty());
  Give(Exited{Name(1), false, false, "exited with code 4"});
  now_ += coordinator_.timeouts().settle;
  Give(Tick{});
  ASSERT_THAT(last_.notices, SizeIs(1));
  EXPECT_EQ(last_.notices[0].failure.rank, 1);
  EXPECT_EQ(last_.notices[0].failure.message, "disk full");
}

TEST_F(CoordinatorTest, ItsOwnCrashDoesNotHideWhatARankHasTold) {
  Start(2);
  Give(ReportFailure{Id(1), 8, {1, 5, "", "disk full", false}});
  Give(Exited{Name(1), false, true, "killed by SIGSEGV (11)"});
  now_ += coordinator_.timeouts().settle;
  Give(Tick{});
  ASSERT_THAT(last_.notices, SizeIs(1));
  EXPECT_EQ(last_.notices[0].failure.message, "disk full; then killed by SIGSEGV (11)");
}

// Two crashes: whoever stood in a collective is the one that followed, whichever is heard of first.
TEST_F(CoordinatorTest, TheCrashOfOneThatWaitedDoesNotHideThatOfOneThatDidNot) {
  Start(3);
  Give(Crashed(0, /*waited=*/true));
  EXPECT_THAT(last_.notices, IsEmpty());
  now_ += absl::Milliseconds(40);
  Give(Crashed(2, /*waited=*/false));
  ASSERT_THAT(last_.notices, SizeIs(1));
  EXPECT_EQ(last_.notices[0].failure.rank, 2);
}

TEST_F(CoordinatorTest, WordsOfOneThatWaitedYieldOnceItHasEnded) {
  Start(3);
  Give(ReportFailure{Id(0), 8, {0, 5, "", "connection reset", false}});
  Give(Crashed(2, /*waited=*/false));
  EXPECT_THAT(last_.notices, IsEmpty()) << "it may be the end of one that lost rank 0";
  Give(Crashed(0, /*waited=*/true));
  now_ += coordinator_.timeouts().settle;
  Give(Tick{});
  ASSERT_THAT(last_.notices, SizeIs(1));
  EXPECT_EQ(last_.notices[0].failure.rank, 2);
}

// A node lost its power: those that waited for it fell at once, and its silence is noticed much later.
TEST_F(CoordinatorTest, TheSilenceOfOneExplainsTheCrashesOfThoseThatWaited) {
  Start(3);
  (void)Pass(absl::Seconds(1), {0, 1, 2});
  Give(Crashed(0, /*waited=*/true));
  Give(Crashed(1, /*waited=*/true));
  EXPECT_THAT(Pass(coordinator_.timeouts().echo - absl::Milliseconds(200), {}), IsEmpty());
  Give(Hung{Name(2), "lost with its node"});
  ASSERT_THAT(last_.notices, SizeIs(1));
  EXPECT_EQ(last_.notices[0].failure.rank, 2);
}

// Killed by its own library in a collective, say, while the others wait on a device and notice nothing.
TEST_F(CoordinatorTest, TheCrashOfOneThatWaitedIsNamedOnceTheOthersAreKnownToLive) {
  Start(3);
  (void)Pass(absl::Seconds(1), {0, 1, 2});
  Give(Crashed(0, /*waited=*/true));
  EXPECT_THAT(Pass(coordinator_.timeouts().settle / 2, {1, 2}), IsEmpty())
      << "what was on its way may be heard after the end of its node";
  EXPECT_THAT(Pass(absl::Seconds(1), {1}), IsEmpty()) << "rank 2 may have been lost with its node";
  const std::vector<Notice> notices = Pass(3 * coordinator_.timeouts().tick, {1, 2});
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_EQ(notices[0].failure.rank, 0);
}

TEST_F(CoordinatorTest, WhenEverybodyHasSpokenTheFirstThatWaitedIsNamed) {
  Start(3);
  Give(ReportFailure{Id(2), 8, {2, 5, "", "connection closed", true}});
  Give(Crashed(1, /*waited=*/true));
  Give(Crashed(0, /*waited=*/true));
  const std::vector<Notice> notices = Pass(2 * coordinator_.timeouts().settle, {});
  ASSERT_THAT(notices, SizeIs(1)) << "nothing better can come";
  EXPECT_EQ(notices[0].failure.rank, 1);
}

TEST_F(CoordinatorTest, AnEchoThatCrashesIsStillOne) {
  Start(3);
  Give(ReportFailure{Id(0), 8, {0, 5, "", "connection closed", true}});
  Give(Exited{Name(0), false, true, "killed by SIGSEGV (11)"});
  EXPECT_THAT(last_.notices, IsEmpty());
  Give(Exited{Name(2), false, false, "exited with code 3"});
  const std::vector<Notice> notices = Pass(absl::Seconds(0.5), {1});
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_EQ(notices[0].failure.rank, 2);
}

TEST_F(CoordinatorTest, ACrashExplainsTheExitCodeBeforeIt) {
  Start(3);
  Give(Exited{Name(0), false, false, "exited with code 1"});
  Give(Exited{Name(1), false, true, "killed by SIGSEGV (11)"});
  ASSERT_THAT(last_.notices, SizeIs(1));
  EXPECT_EQ(last_.notices[0].failure.rank, 1);
}

TEST_F(CoordinatorTest, TheFirstOfTwoReportsWins) {
  Start(3);
  Give(ReportFailure{Id(2), 8, {2, 5, "", "first", false}});
  Give(ReportFailure{Id(0), 8, {0, 5, "", "second", false}});
  Give(Exited{Name(0), false, false, "exited with code 4"});
  EXPECT_THAT(last_.notices, IsEmpty());
  Give(Exited{Name(2), false, false, "exited with code 4"});
  now_ += coordinator_.timeouts().settle;
  Give(Tick{});
  ASSERT_THAT(last_.notices, SizeIs(1));
  EXPECT_EQ(last_.notices[0].failure.message, "first");
  EXPECT_EQ(Count(last_, Command::Kind::kDirective), 1) << "only rank 1 is left to be told";
}

TEST_F(CoordinatorTest, AnExitThatOvertakesTheDeathItFollowsFromYields) {
  Start(3);
  Give(ReportFailure{Id(0), 8, {0, 5, "", "unmarked: connection reset", false}});
  Give(Exited{Name(0), false, false, "exited with code 4"});
  EXPECT_THAT(last_.notices, IsEmpty());
  Give(Killed(1));
  ASSERT_THAT(last_.notices, SizeIs(1));
  EXPECT_EQ(last_.notices[0].failure.rank, 1);
}

// The words of rank 0 are lost; its exit code says that it only followed.
TEST_F(CoordinatorTest, AnExitThatTellsOfAPeerWaitsForTheCause) {
  Start(3);
  Exited follower{Name(0), false, false, "exited with code 4"};
  follower.echo = true;
  Give(follower);
  EXPECT_THAT(Pass(absl::Seconds(1), {1, 2}), IsEmpty());
  Give(ReportFailure{Id(2), 8, {2, 5, "", "index out of range", false}});
  const std::vector<Notice> notices = Pass(absl::Seconds(0.5), {1, 2});
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_EQ(notices[0].failure.rank, 2);
}

TEST_F(CoordinatorTest, AnExitThatTellsOfAPeerIsNamedWhenNobodyElseFails) {
  Start(2);
  Exited follower{Name(0), false, false, "exited with code 4"};
  follower.echo = true;
  Give(follower);
  const std::vector<Notice> notices = Pass(absl::Seconds(3.2), {1});
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_EQ(notices[0].failure.rank, 0);
}

TEST_F(CoordinatorTest, WhoHasEndedIsNotBlamedForSilence) {
  Start(2);
  Pass(absl::Seconds(1), {1});
  Exited follower{Name(0), false, false, "exited with code 4"};
  follower.echo = true;
  Give(follower);
  EXPECT_THAT(Pass(absl::Seconds(2.5), {1}), IsEmpty()) << "its echo still waits";
  const std::vector<Notice> notices = Pass(absl::Seconds(1), {1});
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_EQ(notices[0].failure.message, "exited with code 4");
}

TEST_F(CoordinatorTest, TheFirstWordsOfARankCount) {
  Start(2);
  Give(ReportFailure{Id(1), 8, {1, 5, "", "first", false}});
  Give(ReportFailure{Id(1), 8, {1, 5, "", "second", true}});
  const std::vector<Notice> notices = Pass(absl::Seconds(0.5), {0, 1});
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_EQ(notices[0].failure.message, "first");
}

TEST_F(CoordinatorTest, WhatFailedInAnAttemptIsForgottenInTheNext) {
  Start(3);
  Give(ReportFailure{Id(1), 8, {1, 5, "", "disk full", false}});
  ASSERT_THAT(Pass(absl::Seconds(0.5), {0, 1, 2}), SizeIs(1));
  Start(3);
  Give(ReportFailure{Id(0), 9, {0, 5, "", "connection closed", true}});
  now_ += coordinator_.timeouts().settle;
  EXPECT_THAT(Give(Tick{}).notices, IsEmpty()) << "an echo, not the cause of before";
  Give(Exited{Name(2), false, true, "killed by SIGSEGV (11)"});
  ASSERT_THAT(last_.notices, SizeIs(1)) << "nobody has told of a cause in this attempt";
  EXPECT_EQ(last_.notices[0].failure.rank, 2);
}

TEST_F(CoordinatorTest, WordsThatArriveAfterTheExitStillCount) {
  Start(3);
  Give(Exited{Name(1), false, false, "exited with code 4"});
  Give(ReportFailure{Id(1), 8, {1, 5, "", "loss is not a number", false}});
  now_ += coordinator_.timeouts().settle;
  Give(Tick{});
  ASSERT_THAT(last_.notices, SizeIs(1));
  EXPECT_EQ(last_.notices[0].failure.message, "loss is not a number");
}

TEST_F(CoordinatorTest, AnEchoThatArrivesAfterItsExitStillWaitsForItsCause) {
  Start(3);
  Give(Exited{Name(1), false, false, "exited with code 4"});
  Give(ReportFailure{Id(1), 8, {1, 5, "", "connection closed", true}});
  EXPECT_THAT(Pass(absl::Seconds(1), {0, 2}), IsEmpty());
  Give(Exited{Name(2), false, false, "exited with code 3"});
  const std::vector<Notice> notices = Pass(absl::Seconds(0.5), {0});
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_EQ(notices[0].failure.rank, 2);
}

// A busy machine shows exits before the words of the dead: rank 1, that only tells of rank 2's end, is
// seen to end first, and its words come last.
TEST_F(CoordinatorTest, ACauseHeardBetweenAnExitAndItsEchoIsNamed) {
  Start(3);
  Give(Exited{Name(1), false, false, "exited with code 4"});
  Give(ReportFailure{Id(2), 8, {2, 5, "", "index out of range", false}});
  Give(Exited{Name(2), false, false, "exited with code 4"});
  Give(ReportFailure{Id(1), 8, {1, 5, "", "connection closed", true}});
  EXPECT_EQ(Kinds(), std::vector{Notice::Kind::kGivenUp});
  now_ += coordinator_.timeouts().settle;
  Give(Tick{});
  ASSERT_THAT(last_.notices, SizeIs(1));
  EXPECT_EQ(last_.notices[0].failure.rank, 2);
  EXPECT_EQ(last_.notices[0].failure.message, "index out of range");
}

TEST_F(CoordinatorTest, AnExitCodeWithoutWordsIsAFailureToo) {
  Start(2);
  Give(Exited{Name(1), false, false, "exited with code 3"});
  now_ += coordinator_.timeouts().settle;
  Give(Tick{});
  ASSERT_THAT(last_.notices, SizeIs(1));
  EXPECT_EQ(last_.notices[0].failure.message, "exited with code 3");
}

TEST_F(CoordinatorTest, OneFailureIsReportedOnce) {
  Start(3);
  Give(Exited{Name(2), false, true, "killed by SIGSEGV (11)"});
  EXPECT_THAT(last_.notices, SizeIs(1));
  EXPECT_THAT(Give(Exited{Name(1), false, true, "killed by SIGSEGV (11)"}).notices, IsEmpty());
  EXPECT_THAT(Give(ReportFailure{Id(0), 8, {0, 5, "", "late", false}}).notices, IsEmpty());
  EXPECT_THAT(Give(ReportFailure{Id(0), 8, {0, 5, "", "connection closed", true}}).notices, IsEmpty());
  EXPECT_THAT(Pass(absl::Minutes(5), {}), IsEmpty());
}

TEST_F(CoordinatorTest, TheEndNeedsBothTheWordAndTheExitOfEverybody) {
  Start(2);
  Give(Leave{Id(0), 8, LeaveKind::kFinished});
  Give(Exited{Name(0), true, false, "exited with code 0"});
  EXPECT_THAT(last_.notices, IsEmpty());
  Give(Leave{Id(1), 8, LeaveKind::kFinished});
  EXPECT_EQ(Kinds(), std::vector{Notice::Kind::kLeft});
  Give(Exited{Name(1), true, false, "exited with code 0"});
  ASSERT_EQ(Kinds(), std::vector{Notice::Kind::kFinished});
  EXPECT_FALSE(last_.notices[0].stopped);
}

TEST_F(CoordinatorTest, HowAMemberEndsAfterTheLastWordIsOfNoAccount) {
  Start(2);
  for (const int member : {0, 1}) Give(Leave{Id(member), 8, LeaveKind::kStopped});
  EXPECT_THAT(Pass(absl::Hours(1), {}), IsEmpty()) << "the agent sees to it that it ends";
  Give(Exited{Name(0), false, true, "killed by SIGSEGV (11)"});
  EXPECT_THAT(last_.notices, IsEmpty());
  Give(Exited{Name(1), false, false, "exited with code 1"});
  ASSERT_EQ(Kinds(), std::vector{Notice::Kind::kFinished});
  EXPECT_TRUE(last_.notices[0].stopped);
}

TEST_F(CoordinatorTest, AnEndThatIsHeardBeforeTheLastWordBlamesNobody) {
  for (const bool echo : {false, true}) {
    Start(2);
    const int64_t generation = coordinator_.generation();
    Give(Exited{Name(0), !echo, false, "exited", {-1, ""}, echo});
    EXPECT_THAT(last_.notices, IsEmpty());
    Give(Leave{Id(0), generation, LeaveKind::kFinished});
    EXPECT_EQ(Kinds(), std::vector{Notice::Kind::kLeft});
    EXPECT_THAT(Pass(absl::Minutes(1), {1}), IsEmpty());
    Give(Leave{Id(1), generation, LeaveKind::kFinished});
    Give(Exited{Name(1), true, false, "exited with code 0"});
    EXPECT_EQ(Kinds(), std::vector{Notice::Kind::kFinished});
  }
}

TEST_F(CoordinatorTest, ALastWordThatIsHeardAfterTheEndLeavesTheOthersToBlame) {
  Start(3);
  Give(Exited{Name(0), false, false, "exited with code 1"});
  Give(Exited{Name(2), false, false, "exited with code 3"});
  Give(Leave{Id(0), 8, LeaveKind::kFinished});
  const std::vector<Notice> notices = Pass(coordinator_.timeouts().settle + absl::Milliseconds(50), {1});
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_EQ(notices[0].failure.rank, 2);
  EXPECT_EQ(notices[0].failure.message, "exited with code 3");
}

TEST_F(CoordinatorTest, TheLastWordDoesNotTakeBackAFailureThatWasTold) {
  Start(2);
  Give(ReportFailure{Id(0), 8, {0, 5, "", "disk full", false}});
  Give(Leave{Id(0), 8, LeaveKind::kFinished});
  const std::vector<Notice> notices = Pass(absl::Seconds(1), {1});
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_EQ(notices[0].failure.message, "disk full");
}

TEST_F(CoordinatorTest, AHangIsAFailureOfWhoeverHangs) {
  Start(3);
  Give(ReportFailure{Id(0), 8, {0, 5, "", "connection closed", true}});
  Give(Hung{Name(2), "stood still for 3s", {7, "step"}});
  ASSERT_EQ(Kinds(), std::vector{Notice::Kind::kFailed});
  EXPECT_EQ(last_.notices[0].failure.rank, 2);
  EXPECT_EQ(last_.notices[0].failure.step, 7);
  EXPECT_EQ(last_.notices[0].failure.message, "stood still for 3s");
  EXPECT_TRUE(last_.notices[0].is_hang);
  EXPECT_THAT(last_.commands, IsEmpty()) << "they show first where they stand";
}

TEST_F(CoordinatorTest, OneThatHasLeftCannotHang) {
  Start(2);
  Give(Leave{Id(1), 8, LeaveKind::kFinished});
  Give(Hung{Name(1), "stood still for 3s"});
  EXPECT_THAT(last_.notices, IsEmpty());
}

TEST_F(CoordinatorTest, AStopReachesTheRunningAndThoseWhoComeLater) {
  Start(2);
  EXPECT_EQ(Count(Give(StopRequest{StopMode::kAfterSave, "SIGTERM"}), Command::Kind::kDirective), 2);
  ASSERT_THAT(last_.notices, SizeIs(1));
  EXPECT_THAT(Give(StopRequest{StopMode::kAfterSave, "SIGTERM"}).commands, IsEmpty()) << "it is known";
  EXPECT_EQ(Count(Give(StopRequest{StopMode::kNow, "SIGINT"}), Command::Kind::kDirective), 2);
  Expect(1);
  GiveJoin(0, 2);
  Give(Ack{Id(0, 2), coordinator_.generation(), coordinator_.assignment_hash()});
  EXPECT_EQ(Count(GiveRecorded(), Command::Kind::kDirective), 1);
}

TEST_F(CoordinatorTest, AStopIsToldToWhoeverJoinsAgainAndNotToWhoeverLeft) {
  Start(3);
  Give(Leave{Id(0), 8, LeaveKind::kFinished});
  EXPECT_EQ(Count(Give(StopRequest{StopMode::kNow, "SIGINT"}), Command::Kind::kDirective), 2);
  EXPECT_THAT(Give(StopRequest{StopMode::kAfterSave, "SIGTERM"}).commands, IsEmpty());
  EXPECT_EQ(coordinator_.stop(), StopMode::kNow) << "a weaker request changes nothing";
  GiveJoin(1);
  ASSERT_EQ(Count(last_, Command::Kind::kDirective), 1);
  EXPECT_EQ(last_.commands.back().directive.kind, DirectiveKind::kAbort);
}

TEST_F(CoordinatorTest, ASaveIsAskedOfRankZeroEachTimeAndOnlyWhileWorkersTrain) {
  EXPECT_THAT(Give(SaveRequest{}).commands, IsEmpty());
  Start(3);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(Count(Give(SaveRequest{}), Command::Kind::kDirective), 1);
    EXPECT_EQ(last_.commands.back().to.member, Name(0));
    EXPECT_EQ(last_.commands.back().directive.kind, DirectiveKind::kSave);
    EXPECT_THAT(last_.notices, IsEmpty());
  }
  GiveJoin(0);
  EXPECT_EQ(Count(last_, Command::Kind::kDirective), 0) << "it has heard it";
  Give(Leave{Id(0), 8, LeaveKind::kFinished});
  EXPECT_THAT(Give(SaveRequest{}).commands, IsEmpty()) << "it saves no more";
}

TEST_F(CoordinatorTest, TimeoutsKeepTheirOrder) {
  for (const absl::Duration detect : {absl::Milliseconds(100), absl::Seconds(3), absl::Minutes(10)}) {
    const Timeouts timeouts = Timeouts::FromDetect(detect);
    EXPECT_LT(timeouts.tick, timeouts.detect);
    EXPECT_LE(2 * timeouts.heartbeat_interval, timeouts.detect);
    EXPECT_LT(timeouts.settle, timeouts.echo);
    EXPECT_LT(timeouts.detect, timeouts.join);
  }
}

TEST(AssignmentTest, OnlyWhatWasWrittenIsRead) {
  EXPECT_FALSE(ParseAssignment("").ok());
  EXPECT_FALSE(ParseAssignment("{\"version\":1,\"generation\":1}").ok());
  EXPECT_THAT(ParseAssignment("{\"version\":2,\"generation\":1,\"members\":[]}").status().message(),
              HasSubstr("version 2"));
  Assignment assignment;
  assignment.generation = 3;
  assignment.members.push_back({{"a/0", "a", 0, 2, {4, 5}}, 77, 0, 0});
  const std::string bytes = SerializeAssignment(assignment);
  const auto parsed = ParseAssignment(bytes);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(SerializeAssignment(*parsed), bytes);
  std::string damaged = bytes;
  damaged[damaged.size() / 2] ^= 1;
  EXPECT_NE(AssignmentHash(damaged), AssignmentHash(bytes));
}

}  // namespace
}  // namespace trainctl::rendezvous
