#include "rendezvous/worker_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainctl::rendezvous {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kIncarnation = 3;

Assignment AWorld(int64_t generation, int64_t incarnation = kIncarnation) {
  Assignment world;
  world.term = 2;
  world.generation = generation;
  world.members.push_back({{"n0/0", "n0", 0, 1, {}}, 1, 0, 0});
  world.members.push_back({{"n1/0", "n1", 0, 4, {}}, incarnation, 1, 0});
  return world;
}

Prepared APrepare(const Assignment& world) {
  const std::string bytes = SerializeAssignment(world);
  return {world.generation, bytes, AssignmentHash(bytes), absl::Milliseconds(50)};
}

class WorkerSessionTest : public ::testing::Test {
 protected:
  WorkerSessionTest() : session_({"n1/0", kIncarnation}, 77) {}
  template <typename Words>
  Words Take() {
    EXPECT_TRUE(session_.HasWords());
    const WorkerWords words = session_.TakeWords();
    EXPECT_TRUE(std::holds_alternative<Words>(words)) << words.index();
    return std::get<Words>(words);
  }
  void Run(int64_t generation = 1) {
    (void)Take<Join>();
    session_.Receive(APrepare(AWorld(generation)));
    (void)Take<Ack>();
    session_.Receive(Went{generation});
    ASSERT_TRUE(session_.running());
  }
  WorkerSession session_;
};

TEST_F(WorkerSessionTest, JoinsAcknowledgesAndGoes) {
  EXPECT_EQ(Take<Join>().pid, 77);
  EXPECT_FALSE(session_.HasWords());
  const Prepared prepare = APrepare(AWorld(5));
  session_.Receive(prepare);
  const Ack ack = Take<Ack>();
  EXPECT_EQ(ack.id.member, "n1/0");
  EXPECT_EQ(ack.id.incarnation, kIncarnation);
  EXPECT_EQ(ack.generation, 5);
  EXPECT_EQ(ack.hash, prepare.assignment_hash);
  EXPECT_FALSE(session_.running());
  session_.Receive(Went{4});
  EXPECT_FALSE(session_.running()) << "that was another generation's";
  session_.Receive(Went{5});
  EXPECT_TRUE(session_.running());
  EXPECT_EQ(session_.world().rank, 1);
  EXPECT_EQ(session_.world().threads, 4);
  EXPECT_EQ(session_.heartbeat_interval(), absl::Milliseconds(50));
}

TEST_F(WorkerSessionTest, NobodyIsToldToGoBeforeAnAssignment) {
  session_.Receive(Went{0});
  EXPECT_FALSE(session_.running());
}

TEST_F(WorkerSessionTest, TheNewestGenerationBeforeTheStartIsTheOneThatCounts) {
  (void)Take<Join>();
  session_.Receive(APrepare(AWorld(2)));
  session_.Receive(APrepare(AWorld(1)));  // late
  EXPECT_EQ(Take<Ack>().generation, 2);
  EXPECT_FALSE(session_.HasWords());
  session_.Receive(APrepare(AWorld(3)));
  EXPECT_EQ(Take<Ack>().generation, 3);
  session_.Receive(Went{2});
  EXPECT_FALSE(session_.running());
}

TEST_F(WorkerSessionTest, IsLostByANewerGenerationOnceItRuns) {
  Run();
  session_.Receive(APrepare(AWorld(1)));  // repeated: acknowledged again
  EXPECT_EQ(Take<Ack>().generation, 1);
  session_.Receive(APrepare(AWorld(2)));
  EXPECT_EQ(session_.lost(), "generation 1 is superseded by 2");
  EXPECT_FALSE(session_.HasWords());
  session_.Lose("the launcher is gone");
  EXPECT_EQ(session_.lost(), "generation 1 is superseded by 2");
}

TEST_F(WorkerSessionTest, ADamagedOrForeignAssignmentIsNotTaken) {
  Prepared damaged = APrepare(AWorld(1));
  damaged.assignment[3] ^= 1;
  session_.Receive(damaged);
  EXPECT_THAT(session_.lost(), HasSubstr("damaged"));
  WorkerSession other({"n1/0", kIncarnation}, 77);
  other.Receive(APrepare(AWorld(1, kIncarnation + 1)));
  EXPECT_FALSE(other.lost().empty()) << "of a newer process of the same member";
}

TEST_F(WorkerSessionTest, JoinsAgainWhenItIsToldToAndOnlyBeforeItRuns) {
  (void)Take<Join>();
  session_.Receive(Rejected{"has not joined", true});
  EXPECT_EQ(Take<Join>().id.incarnation, kIncarnation);
  session_.Receive(Rejected{"superseded", false});
  EXPECT_THAT(session_.lost(), HasSubstr("does not want this process: superseded"));
  WorkerSession runs({"n1/0", kIncarnation}, 77);
  runs.Receive(APrepare(AWorld(1)));
  runs.Receive(Went{1});
  runs.Receive(Rejected{"has not joined", true});
  EXPECT_FALSE(runs.lost().empty());
}

TEST_F(WorkerSessionTest, OnlyTheNewestProgressIsToldAndAtOnceWhileItRuns) {
  session_.Report({1, "early"});
  (void)Take<Join>();
  EXPECT_FALSE(session_.HasWords()) << "it waits for the next heartbeat";
  session_.Receive(APrepare(AWorld(1)));
  (void)Take<Ack>();
  session_.Receive(Went{1});
  session_.Report({2, "forward"});
  session_.Report({3, "backward", 64});
  const Heartbeat beat = Take<Heartbeat>();
  EXPECT_EQ(beat.progress.step, 3);
  EXPECT_EQ(beat.progress.peak_bytes, 64);
  EXPECT_FALSE(session_.HasWords());
  EXPECT_EQ(std::get<Heartbeat>(session_.TakeWords()).progress.step, 3) << "a heartbeat says it again";
}

TEST_F(WorkerSessionTest, TheLastWordComesAfterTheLastStepAndNothingAfterIt) {
  Run();
  session_.Report({9, "reduce"});
  EXPECT_TRUE(session_.Say(Failure{1, 9, "dp", "boom", false}));
  EXPECT_FALSE(session_.Say(LeaveKind::kFinished));
  EXPECT_FALSE(session_.Say(Failure{1, 10, "", "again", false}));
  session_.Report({10, "forward"});
  EXPECT_EQ(Take<Heartbeat>().progress.step, 9);
  EXPECT_EQ(Take<ReportFailure>().failure.message, "boom");
  EXPECT_FALSE(session_.HasWords());
  EXPECT_TRUE(session_.closing());
}

TEST_F(WorkerSessionTest, SavesAreCountedAndAStopIsNotTakenBack) {
  Run();
  session_.Receive(Directed{DirectiveKind::kSave, "", session_.generation()});
  session_.Receive(Directed{DirectiveKind::kSave, "", session_.generation()});
  EXPECT_EQ(session_.directive().saves_asked, 2);
  EXPECT_EQ(session_.directive().kind, DirectiveKind::kNone);
  session_.Receive(Directed{DirectiveKind::kAbort, "a peer failed", session_.generation()});
  session_.Receive(Directed{DirectiveKind::kStopAfterSave, "later", session_.generation()});
  EXPECT_EQ(session_.directive().kind, DirectiveKind::kAbort);
  EXPECT_EQ(session_.directive().reason, "a peer failed");
}

TEST_F(WorkerSessionTest, ADirectiveOfAnOlderGenerationIsOfNoAccount) {
  Run();
  session_.Receive(
      Directed{DirectiveKind::kStopAfterSave, "meant for those before", session_.generation() - 1});
  EXPECT_EQ(session_.directive().kind, DirectiveKind::kNone);
}

}  // namespace
}  // namespace trainctl::rendezvous
