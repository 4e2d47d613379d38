// What a message costs the coordinator does not follow the size of the job: 100,000 members go through every
// kind of message, and each kind is compared with what it costs in a job of 2,000.
//
// A cost is CPU time, in windows of 256 messages of which the cheapest counts, so that neither a busy machine
// nor a broadcast in one of them matters. A scan of the members, or of the candidates, makes it 49 times as
// high, the logarithm and the caches a few times: the limit lies between, far from both.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/coordinator.h"
#include "tests/unit/num_cases.h"

namespace trainctl::rendezvous {
namespace {

constexpr int kWindow = 256;  // messages
constexpr int kNumWindows = 8;
constexpr int kSmall = kWindow * kNumWindows;
constexpr int kLarge = NumCases(100000);
constexpr double kLimit = 14;  // times the cost in the small job

// By kind of message, in clock ticks per window.
using Costs = std::map<std::string, double>;

class Crowd {
 public:
  // Compares with `reference`, unless that is empty, and gives up at the first cost over the limit: with a
  // scan per message the rest would take minutes.
  Crowd(int num_members, Costs reference) : num_members_(num_members), reference_(std::move(reference)) {}

  Costs Live() {
    EndWell();
    FailByEcho();
    FailByExit();
    StandStill();
    return costs_;
  }

 private:
  std::string Name(int i) const { return absl::StrCat("node", i / 8, "/", i % 8); }
  MemberId Id(int i) const { return {Name(i), 1}; }
  int64_t generation() const { return coordinator_.generation(); }

  // All of `what`, one after the other; `event_of` is not measured.
  void Give(const std::string& what, int count, const std::function<Event(int)>& event_of) {
    double cheapest = std::numeric_limits<double>::infinity();
    const int last_windows = count - kWindow * kNumWindows;
    for (int begin = 0; begin < count && !given_up_; begin += kWindow) {
      std::vector<Event> events;
      for (int i = begin; i < std::min(begin + kWindow, count); ++i) events.push_back(event_of(i));
      const std::clock_t before = std::clock();
      for (const Event& event : events) Decide(event);
      const double cost = static_cast<double>(std::clock() - before);
      if (events.size() == kWindow) cheapest = std::min(cheapest, cost);
      if (begin + kWindow == kWindow * kNumWindows) {
        Compare(what, cheapest);
        cheapest = std::numeric_limits<double>::infinity();
      }
      if (begin < last_windows && begin + kWindow >= last_windows) {
        cheapest = std::numeric_limits<double>::infinity();  // of the last ones
      }
    }
    if (count > 2 * kWindow * kNumWindows) Compare(what, cheapest);
  }

  void Compare(const std::string& what, double cost) {
    costs_[what] = std::max(costs_[what], cost);
    const auto reference = reference_.find(what);
    if (reference == reference_.end() || given_up_) return;
    // A window of few clock ticks is measured as one of a good many.
    const double limit = kLimit * std::max(reference->second, 20.0);
    EXPECT_LT(cost, limit) << what << ": in a job of " << kSmall << " members " << reference->second;
    given_up_ = cost >= limit;
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
    EXPECT_TRUE(coordinator_.running() || given_up_);
  }

  void EndWell() {
    Start();
    Give("heartbeat", num_members_, [&](int i) { return Heartbeat{Id(i), generation(), {1, "step"}}; });
    for (int window = 0; window < kNumWindows; ++window) {
      // Time passes between the windows, far less than the silence of a member may last.
      now_ += coordinator_.timeouts().tick;
      Give("tick", kSmall, [&](int) { return Tick{}; });
    }
    Give("leave", num_members_, [&](int i) { return Leave{Id(i), generation(), LeaveKind::kFinished}; });
    EXPECT_TRUE(ends_.empty());
    Give("exit", num_members_, [&](int i) { return Exited{Name(i), true, false, "exited with code 0"}; });
    if (given_up_) return;
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
    if (given_up_) return;
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
    if (given_up_) return;
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
    if (given_up_) return;
    ASSERT_EQ(ends_.size(), 1u);
    EXPECT_EQ(ends_[0].failure.rank, 0);
  }

  const int num_members_;
  const Costs reference_;
  Costs costs_;
  bool given_up_ = false;
  absl::Duration now_ = absl::Seconds(1);
  absl::Duration step_;  // from one event to the next
  Coordinator coordinator_{Timeouts::FromDetect(absl::Hours(1)), 1, 0};
  std::vector<Notice> ends_;
};

TEST(CoordinatorScaleTest, AMessageCostsNoMoreInAJobOf100000Members) {
  const Costs small = Crowd(kSmall, {}).Live();
  const Costs large = Crowd(kLarge, small).Live();
  for (const auto& [what, cost] : large) {
    RecordProperty(what, absl::StrCat(cost, " after ", small.at(what)));
  }
}

}  // namespace
}  // namespace trainctl::rendezvous
