// What an event costs the supervisor does not follow the size of the job: 100,000 nodes of one worker tell
// all that a node tells in an attempt, and each kind of event is compared with what it costs in a job of
// 2,000. A tick, with the watchdog's look at all boards, may cost O(n log n).
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/supervisor.h"
#include "rendezvous/watchdog.h"
#include "tests/unit/rendezvous/message_costs.h"

namespace trainctl::rendezvous {
namespace {

using Costs = MessageCosts::Costs;

constexpr int64_t kGeneration = 1;

class Nodes {
 public:
  Nodes(int num_nodes, Costs reference) : num_nodes_(num_nodes), costs_(std::move(reference)) {
    SupervisorOptions options;
    for (int i = 0; i < num_nodes_; ++i) options.nodes.push_back(Name(i));
    supervisor_.emplace(options);
  }

  Costs Live() {
    Decide(Begin{});
    Give("ready", [&](int i) { return NodeReady{Name(i), {SlotOf(i)}}; });
    EXPECT_TRUE(costs_.given_up() || num_started_ == num_nodes_);
    Decide(Of(Notice::Kind::kPrepared, 0));
    Decide(GenerationRecorded{kGeneration});
    Give("boards", [&](int i) {
      return Report(i, BoardsSeen{{{0, Standing{1, "step", 1, false, {{0, 1}}}}}});
    });
    Give("boards again", [&](int i) {
      return Report(i, BoardsSeen{{{0, Standing{2, "step", 2, false, {{0, 2}}}}}});
    });
    Give("progress", [&](int i) { return Of(Notice::Kind::kProgress, i); });
    Give("message", [&](int i) { return Report(i, NodeMessage{"the disk is full"}); });
    Give("activity", [&](int i) { return Report(i, ActivitySeen{0, Activity::kIdle}); });
    Give("left", [&](int i) { return Of(Notice::Kind::kLeft, i); });
    Give("exit", [&](int i) { return Report(i, WorkerEnded{0, Exited{Member(i), true}, 0}); });
    Decide(Of(Notice::Kind::kFailed, 0));
    EXPECT_TRUE(costs_.given_up() || num_ended_ == num_nodes_);
    Give("ready while they end", [&](int i) { return NodeReady{Name(i), {SlotOf(i)}}; });
    Give("ended", [&](int i) { return Report(i, NodeEnded{}); });
    EXPECT_TRUE(costs_.given_up() || settles_);
    Give("lost", [&](int i) { return NodeLost{Name(i), "silent"}; });
    return costs_.costs();
  }

 private:
  static std::string Name(int i) { return absl::StrCat("node", i); }
  static std::string Member(int i) { return absl::StrCat(Name(i), "/0"); }
  static Slot SlotOf(int i) { return {Member(i), Name(i), 0, 1, {}}; }
  static NodeReport Report(int i, decltype(NodeEvent::what) what) { return {Name(i), {1, std::move(what)}}; }
  static Notice Of(Notice::Kind kind, int i) {
    Notice notice;
    notice.kind = kind;
    notice.attempt = 1;
    notice.generation = kGeneration;
    notice.member = Member(i);
    notice.rank = i;
    notice.failure.rank = i;
    return notice;
  }

  void Give(const std::string& what, const std::function<SupervisorEvent(int)>& event_of) {
    costs_.Give<SupervisorEvent>(what, num_nodes_, event_of,
                                 [this](const SupervisorEvent& event) { Decide(event); });
  }

  void Decide(const SupervisorEvent& event) {
    for (const SupervisorAction& action : supervisor_->Decide(absl::Seconds(1), event)) {
      settles_ = settles_ || std::holds_alternative<Settle>(action);
      const auto* told = std::get_if<ToNode>(&action);
      if (told == nullptr) continue;
      num_started_ += std::holds_alternative<StartWorkers>(told->command.what) ? 1 : 0;
      num_ended_ += std::holds_alternative<EndWorkers>(told->command.what) ? 1 : 0;
    }
  }

  const int num_nodes_;
  MessageCosts costs_;
  std::optional<Supervisor> supervisor_;
  int num_started_ = 0;
  int num_ended_ = 0;  // have been told to
  bool settles_ = false;
};

TEST(SupervisorScaleTest, AnEventCostsNoMoreInAJobOf100000Nodes) {
  const Costs small = Nodes(MessageCosts::kSmall, {}).Live();
  const Costs large = Nodes(MessageCosts::kLarge, small).Live();
  MessageCosts::Record(small, large);
}

// Of a look at a board of `num_ranks`, in clock ticks: the cheapest of some.
double CostOfALook(const std::map<int, Standing>& boards) {
  Watchdog watchdog({});
  double cheapest = std::numeric_limits<double>::infinity();
  for (int look = 0; look < 5; ++look) {
    const std::clock_t before = std::clock();
    (void)watchdog.Look(absl::Seconds(look), boards, [](int) { return Activity::kIdle; });
    cheapest = std::min(cheapest, static_cast<double>(std::clock() - before));
  }
  return std::max(cheapest, 100.0);
}

// Each in the world's group and in one of eight.
std::map<int, Standing> Boards(int num_ranks, const std::function<Standing::Group(int rank)>& of_world) {
  std::map<int, Standing> boards;
  for (int rank = 0; rank < num_ranks; ++rank) {
    boards[rank] = {1, "step", 1, true, {of_world(rank), {.index = 1 + rank / 8, .entered = 1, .left = 1}}};
  }
  return boards;
}

TEST(SupervisorScaleTest, ALookAt16000RanksCosts16TimesOneAt1000) {
  const auto in_a_ring = [](int num_ranks) {  // nobody can be blamed
    return Boards(num_ranks, [=](int rank) {
      return Standing::Group{.index = 0, .entered = 2, .left = 1, .waits_for = (rank + 1) % num_ranks};
    });
  };
  const auto for_the_last = [](int num_ranks) {
    return Boards(num_ranks, [=](int rank) {
      return Standing::Group{.index = 0, .entered = rank + 1 < num_ranks ? 2u : 1u, .left = 1};
    });
  };
  for (const std::function<std::map<int, Standing>(int)>& boards_of :
       {std::function(in_a_ring), std::function<std::map<int, Standing>(int)>(for_the_last)}) {
    const double reference = CostOfALook(boards_of(1000));
    for (int times = 2; times <= 16; times *= 2) {
      const double cost = CostOfALook(boards_of(1000 * times));
      ASSERT_LT(cost, 6 * times * reference) << times << ",000 ranks; 1,000 cost " << reference;
    }
  }
}

}  // namespace
}  // namespace trainctl::rendezvous
