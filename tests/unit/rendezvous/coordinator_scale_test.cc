// What a message costs the coordinator does not follow the size of the job: 100,000 members go through every
// kind of message, and each kind is compared with what it costs in a job of 2,000.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/coordinator.h"
#include "tests/unit/rendezvous/message_costs.h"

namespace trainctl::rendezvous {
namespace {

using Costs = MessageCosts::Costs;

constexpr int kSmall = MessageCosts::kSmall;

class Crowd {
 public:
  Crowd(int num_members, Costs reference) : num_members_(num_members), costs_(std::move(reference)) {}

  Costs Live() {
    EndWell();
    FailByEcho();
    FailByExit();
    StandStill();
    return costs_.costs();
  }

 private:
  std::string Name(int i) const { return absl::StrCat("node", i / 8, "/", i % 8); }
  MemberId Id(int i) const { return {Name(i), 1}; }
  int64_t generation() const { return coordinator_.generation(); }

  void Give(const std::string& what, int count, const std::function<Event(int)>& event_of) {
    costs_.Give<Event>(what, count, event_of, [this](const Event& event) { Decide(event); });
  }

  void Decide(const Event& event) {
    now_ += step_;
    for (Notice& notice : coordinator_.Decide(now_, event).notices) {
      if (notice.kind == Notice::Kind::kFailed || notice.kind == Notice::Kind::kFinished) {
        ends_.push_back(std::move(notice));
      }
    }
  }

  void Start() {
    Expect expect;
    for (int i = 0; i < num_members_; ++i) {
      expect.slots.push_back({Name(i), absl::StrCat("node", i / 8), i % 8, 1, {}});
    }
    Decide(expect);
    ends_.clear();
    Give("join", num_members_, [&](int i) { return Join{Id(i), i}; });
    Give("ack", num_members_, [&](int i) {
      return Ack{Id(i), generation(), coordinator_.assignment_hash()};
    });
    Decide(Recorded{generation()});
    EXPECT_TRUE(coordinator_.running() || costs_.given_up());
  }

  void EndWell() {
    Start();
    Give("heartbeat", num_members_, [&](int i) { return Heartbeat{Id(i), generation(), {1, "step"}}; });
    for (int window = 0; window < MessageCosts::kNumWindows; ++window) {
      // Time passes between the windows, far less than the silence of a member may last.
      now_ += coordinator_.timeouts().tick;
      Give("tick", kSmall, [&](int) { return Tick{}; });
    }
    Give("leave", num_members_, [&](int i) { return Leave{Id(i), generation(), LeaveKind::kFinished}; });
    EXPECT_TRUE(ends_.empty());
    Give("exit", num_members_, [&](int i) { return Exited{Name(i), true, false, "exited with code 0"}; });
    if (costs_.given_up()) return;
    ASSERT_EQ(ends_.size(), 1u);
    EXPECT_EQ(ends_[0].kind, Notice::Kind::kFinished);
  }

  // The last rank dies, everybody else tells of a lost peer and ends.
  void FailByEcho() {
    Start();
    const int dead = num_members_ - 1;
    Give("echo", dead, [&](int i) {
      return ReportFailure{Id(i), generation(), {i, 1, "dp", "connection closed", true}};
    });
    Give("announced exit", dead, [&](int i) {
      return Exited{Name(i), false, false, "exited with code 4", {-1, ""}, /*echo=*/true};
    });
    EXPECT_TRUE(ends_.empty());
    Decide(Exited{Name(dead), false, true, "killed by SIGKILL (9)", {-1, ""}, false, /*killed=*/true});
    if (costs_.given_up()) return;
    ASSERT_EQ(ends_.size(), 1u);
    EXPECT_EQ(ends_[0].failure.rank, dead);
  }

  // The exits come first and look like causes, until the words tell that they are echoes.
  void FailByExit() {
    Start();
    const int dead = num_members_ - 1;
    Give("exit before words", num_members_, [&](int i) {
      return Exited{Name(i), false, false, "exited with code 4"};
    });
    Give("words after exit", dead, [&](int i) {
      return ReportFailure{Id(i), generation(), {i, 1, "dp", "connection closed", true}};
    });
    EXPECT_TRUE(ends_.empty());
    now_ += coordinator_.timeouts().settle;
    Decide(Tick{});
    if (costs_.given_up()) return;
    ASSERT_EQ(ends_.size(), 1u);
    EXPECT_EQ(ends_[0].failure.rank, dead) << "the only one that told of no other's failure";
  }

  void StandStill() {
    Start();
    step_ = coordinator_.timeouts().detect;
    Give("tick after a standstill", kSmall, [&](int) { return Tick{}; });
    step_ = absl::ZeroDuration();
    for (absl::Duration silent; silent <= coordinator_.timeouts().detect;
         silent += coordinator_.timeouts().detect / 4) {
      EXPECT_TRUE(ends_.empty()) << "a standstill is nobody's silence";
      now_ += coordinator_.timeouts().detect / 4;
      Decide(Tick{});
    }
    if (costs_.given_up()) return;
    ASSERT_EQ(ends_.size(), 1u);
    EXPECT_EQ(ends_[0].failure.rank, 0);
  }

  const int num_members_;
  MessageCosts costs_;
  absl::Duration now_ = absl::Seconds(1);
  absl::Duration step_;  // from one event to the next
  Coordinator coordinator_{Timeouts::FromDetect(absl::Hours(1)), 1, 0};
  std::vector<Notice> ends_;
};

TEST(CoordinatorScaleTest, AMessageCostsNoMoreInAJobOf100000Members) {
  const Costs small = Crowd(kSmall, {}).Live();
  const Costs large = Crowd(MessageCosts::kLarge, small).Live();
  MessageCosts::Record(small, large);
}

}  // namespace
}  // namespace trainctl::rendezvous
