// Which process is asked, read and looked at by a debugger, and when.
#include "launcher/stack_round.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace trainctl::launcher {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr StackLimits kLimits{
    .patience = absl::Seconds(1), .writing = absl::Milliseconds(200), .num_debuggers = 2};
constexpr StackLimits kNoDebugger{
    .patience = absl::Seconds(1), .writing = absl::Milliseconds(200), .num_debuggers = 0};

class StackRoundTest : public testing::Test {
 protected:
  void Begin(std::vector<int> workers, StackLimits limits) {
    round_.emplace(now_, std::move(workers), limits);
  }
  const StackRound::Orders& Pass(absl::Duration time) {
    now_ += time;
    return orders_ = round_->Next(now_);
  }

  absl::Duration now_ = absl::Hours(1);
  std::optional<StackRound> round_;
  StackRound::Orders orders_;
};

TEST_F(StackRoundTest, OneThatAnswersHasTimeToWriteAndIsDoneWhereThereIsNoDebugger) {
  Begin({0}, kNoDebugger);
  round_->NoteAnswer(now_, 0);
  Pass(absl::Milliseconds(199));
  EXPECT_FALSE(round_->is_over());
  round_->NoteAnswer(now_, 0);  // it is seen again, which gives it no more time
  Pass(absl::Milliseconds(1));
  EXPECT_TRUE(round_->is_over());
  EXPECT_THAT(orders_.read, IsEmpty());
  EXPECT_THAT(orders_.debug, IsEmpty());
}

TEST_F(StackRoundTest, OneThatDoesNotAnswerIsReadFromOutside) {
  Begin({0, 1}, kNoDebugger);
  round_->NoteAnswer(now_, 0);
  EXPECT_THAT(Pass(absl::Milliseconds(999)).read, IsEmpty());
  EXPECT_THAT(Pass(absl::Milliseconds(1)).read, ElementsAre(1));
  EXPECT_THAT(Pass(absl::Seconds(1)).read, IsEmpty()) << "once";
  EXPECT_FALSE(round_->is_over());
  round_->NoteRead(1);
  Pass(absl::ZeroDuration());
  EXPECT_TRUE(round_->is_over());
}

TEST_F(StackRoundTest, DebuggersLookInTheOrderGivenAndAFewAtATime) {
  Begin({3, 0, 1, 2}, kLimits);
  for (int worker = 0; worker < 4; ++worker) round_->NoteAnswer(now_, worker);
  EXPECT_THAT(Pass(absl::ZeroDuration()).debug, IsEmpty()) << "it would hold the process that answers";
  EXPECT_THAT(Pass(absl::Milliseconds(200)).debug, ElementsAre(3, 0));
  EXPECT_THAT(Pass(absl::Seconds(1)).debug, IsEmpty());
  round_->NoteDebugged(0);
  EXPECT_THAT(Pass(absl::ZeroDuration()).debug, ElementsAre(1));
  round_->NoteDebugged(3);
  round_->NoteDebugged(1);
  EXPECT_THAT(Pass(absl::ZeroDuration()).debug, ElementsAre(2));
  EXPECT_FALSE(round_->is_over());
  round_->NoteDebugged(2);
  EXPECT_TRUE(round_->is_over());
}

TEST_F(StackRoundTest, OfManyTheFirstAreLookedAtByADebugger) {
  StackLimits limits = kLimits;
  limits.max_debugged = 3;
  Begin({4, 0, 1, 2, 3}, limits);
  for (int worker = 0; worker < 5; ++worker) round_->NoteAnswer(now_, worker);
  EXPECT_THAT(Pass(absl::Seconds(1)).debug, ElementsAre(4, 0));
  round_->NoteDebugged(4);
  EXPECT_THAT(Pass(absl::ZeroDuration()).debug, ElementsAre(1));
  round_->NoteDebugged(0);
  round_->NoteDebugged(1);
  EXPECT_THAT(Pass(absl::ZeroDuration()).debug, IsEmpty());
  EXPECT_TRUE(round_->is_over());
}

TEST_F(StackRoundTest, OneThatWasReadIsLookedAtByADebuggerToo) {
  Begin({0}, kLimits);
  EXPECT_THAT(Pass(absl::Seconds(1)).read, ElementsAre(0));
  round_->NoteRead(0);
  EXPECT_THAT(Pass(absl::ZeroDuration()).debug, ElementsAre(0));
}

TEST_F(StackRoundTest, WhoeverEndsIsNotWaitedFor) {
  Begin({0, 1, 2, 3}, kLimits);
  round_->NoteExit(0);  // asked
  round_->NoteAnswer(now_, 1);
  round_->NoteExit(1);  // answering
  EXPECT_THAT(Pass(absl::Seconds(1)).read, ElementsAre(2, 3));
  round_->NoteExit(2);  // read
  round_->NoteRead(2);
  round_->NoteRead(3);
  EXPECT_THAT(Pass(absl::ZeroDuration()).debug, ElementsAre(3));
  round_->NoteExit(3);
  EXPECT_FALSE(round_->is_over()) << "its debugger ends with it, and says what it has seen";
  round_->NoteDebugged(3);
  EXPECT_TRUE(round_->is_over());
  for (const int worker : {0, 3, 9}) round_->NoteExit(worker);
  EXPECT_TRUE(round_->is_over());
}

TEST_F(StackRoundTest, NobodyIsSoonDone) {
  Begin({}, kLimits);
  EXPECT_TRUE(round_->is_over());
}

}  // namespace
}  // namespace trainctl::launcher
