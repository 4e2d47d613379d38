// How many messages a rank must have in flight, against ranks that are threads: they start messages, wait for
// each other, and stop where none of them can continue.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "tests/unit/schedule/step_testing.h"

namespace trainctl::schedule {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Threads that each do a list of actions, one after the other, each as soon as its condition holds. All
// conditions and effects run under one lock.
class Threads {
 public:
  struct Action {
    std::function<bool()> may;
    std::function<void()> act;
  };
  using Actions = std::vector<Action>;

  // False: all threads that have not finished wait, and nothing can change that.
  bool Run(const std::vector<Actions>& lists) {
    num_alive_ = lists.size();
    std::vector<std::thread> threads;
    threads.reserve(lists.size());
    for (const Actions& actions : lists) threads.emplace_back([this, &actions] { RunOne(actions); });
    for (std::thread& thread : threads) thread.join();
    return !stuck_;
  }

 private:
  void RunOne(const Actions& actions) {
    std::unique_lock lock(mutex_);
    bool acted = false;
    for (const Action& action : actions) {
      while (!stuck_ && !action.may()) {
        if (std::exchange(acted, false)) LetOthersLook();
        const int seen = num_changes_;
        ++num_waiting_;
        LookWhetherStuck();
        changed_.wait(lock, [&] { return stuck_ || num_changes_ != seen; });
      }
      if (stuck_) return;
      action.act();
      acted = true;
    }
    LetOthersLook();
    --num_alive_;
    LookWhetherStuck();
  }

  // Whoever still waits then is counted again.
  void LetOthersLook() {
    ++num_changes_;
    num_waiting_ = 0;
    changed_.notify_all();
  }

  void LookWhetherStuck() {
    if (num_waiting_ < num_alive_ || num_alive_ == 0) return;
    stuck_ = true;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t num_alive_ = 0;
  size_t num_waiting_ = 0;  // since the last change
  int num_changes_ = 0;
  bool stuck_ = false;
};

// What a rank does, as far as its peers notice. A channel is its sender and its receiver.
using Channel = std::pair<int, int>;
struct Act {
  bool is_message = false;
  bool sends = false;
  Channel channel;                              // of a message
  std::vector<std::pair<Channel, int>> needed;  // of a computation: the k-th message of a channel
};
using Acts = std::vector<std::vector<Act>>;  // by rank

// Plays what ranks do.
class Player {
 public:
  explicit Player(const Acts& acts) : acts_(acts) {}

  // Each rank is a thread that goes through its list, with at most that many messages in flight; 0: any
  // number.
  bool FinishesInListOrder(int max_in_flight) {
    started_.clear();
    std::vector<Threads::Actions> threads;
    for (size_t rank = 0; rank < acts_.size(); ++rank) {
      Threads::Actions& actions = threads.emplace_back();
      for (const Act& act : acts_[rank]) {
        if (!act.is_message) {
          actions.push_back({[this, &act] { return Has(act); }, [] {}});
          continue;
        }
        actions.push_back({[=, this] { return max_in_flight == 0 || InFlight(rank) < max_in_flight; },
                           [this, &act] { ++Started(act); }});
      }
      // The last messages.
      actions.push_back({[this, rank] { return InFlight(rank) == 0; }, [] {}});
    }
    return Threads().Run(threads);
  }

  // A thread per rank computes, and one for each direction of each channel moves one message at a time.
  bool FinishesOnStreams() {
    started_.clear();
    std::vector<Threads::Actions> threads;
    std::vector<int> num_computed(acts_.size());
    for (size_t rank = 0; rank < acts_.size(); ++rank) {
      std::map<std::pair<Channel, bool>, Threads::Actions> streams;
      Threads::Actions computes;
      int num_before = 0;
      for (const Act& act : acts_[rank]) {
        if (!act.is_message) {
          computes.push_back(
              {[this, &act] { return Has(act); }, [&num_computed, rank] { ++num_computed[rank]; }});
          ++num_before;
          continue;
        }
        Threads::Actions& stream = streams[{act.channel, act.sends}];
        stream.push_back({[&num_computed, rank, num_before] { return num_computed[rank] >= num_before; },
                          [this, &act] { ++Started(act); }});
        stream.push_back({[this, &act] { return Started(act) == Completed(act.channel); }, [] {}});
      }
      threads.push_back(std::move(computes));
      for (auto& [name, stream] : streams) threads.push_back(std::move(stream));
    }
    return Threads().Run(threads);
  }

  // The least number with which all finish; 0: none.
  int Least() {
    if (!FinishesInListOrder(0)) return 0;
    int least = 1;
    while (!FinishesInListOrder(least)) ++least;
    return least;
  }

 private:
  int& Started(const Act& act) { return started_[act.channel][act.sends ? 0 : 1]; }
  int Completed(const Channel& channel) { return std::min(started_[channel][0], started_[channel][1]); }
  int InFlight(size_t rank) {
    int num = 0;
    for (const auto& [channel, started] : started_) {
      if (channel.first == static_cast<int>(rank)) num += started[0] - std::min(started[0], started[1]);
      if (channel.second == static_cast<int>(rank)) num += started[1] - std::min(started[0], started[1]);
    }
    return num;
  }
  bool Has(const Act& act) {
    for (const auto& [channel, k] : act.needed) {
      if (Completed(channel) <= k) return false;
    }
    return true;
  }

  const Acts& acts_;
  std::map<Channel, std::array<int, 2>> started_;  // by its sender, by its receiver
};

// From the passes of an order alone, without a step: a pass receives what it needs, and all that comes before
// that on its channel, and sends what it makes; an overlapped forward sends together with its backward.
Acts ActsOf(const PipelineSchedule& order) {
  const PipelinePlacement& place = order.placement;
  using Message = std::array<int, 3>;  // is gradient, stage that takes it, micro-batch
  std::map<Channel, std::vector<Message>> sent;
  const auto product = [&](const PipelineAction& action, int rank, Channel& channel, Message& message) {
    const bool is_gradient = action.op != PipelineOp::kForward;
    if (action.op == PipelineOp::kBackwardWeight) return false;
    const int to_stage = action.stage + (is_gradient ? -1 : 1);
    if (to_stage < 0 || to_stage == place.num_stages) return false;
    channel = {rank, place.RankOf(to_stage, action.micro_batch)};
    message = {is_gradient, to_stage, action.micro_batch};
    return channel.first != channel.second;
  };
  Channel channel;
  Message message;
  for (int rank = 0; rank < place.num_ranks; ++rank) {
    for (const PipelineAction& action : order.actions[static_cast<size_t>(rank)]) {
      if (product(action, rank, channel, message)) sent[channel].push_back(message);
    }
  }
  Acts acts(order.actions.size());
  for (int rank = 0; rank < place.num_ranks; ++rank) {
    std::vector<Act>& own = acts[static_cast<size_t>(rank)];
    std::map<Channel, int> num_received;
    std::vector<Act> made;
    for (const PipelineAction& action : order.actions[static_cast<size_t>(rank)]) {
      Act computation;
      const bool is_gradient = action.op != PipelineOp::kForward;
      const int from_stage = action.stage + (is_gradient ? 1 : -1);
      if (action.op != PipelineOp::kBackwardWeight && from_stage >= 0 && from_stage < place.num_stages) {
        const Channel from = {place.RankOf(from_stage, action.micro_batch), rank};
        if (from.first != rank) {
          const std::vector<Message>& all = sent[from];
          const Message wanted = {is_gradient, action.stage, action.micro_batch};
          const int k = static_cast<int>(std::find(all.begin(), all.end(), wanted) - all.begin());
          for (int& next = num_received[from]; next <= k; ++next)
            own.push_back({.is_message = true, .sends = false, .channel = from, .needed = {}});
          computation.needed = {{from, k}};
        }
      }
      own.push_back(computation);
      if (product(action, rank, channel, message))
        made.push_back({.is_message = true, .sends = true, .channel = channel, .needed = {}});
      if (action.joined) continue;
      own.insert(own.end(), made.begin(), made.end());
      made.clear();
    }
  }
  return acts;
}

// From the programs of a step. Collectives of the data axes and of tensor parallelism are within a class.
Acts ActsOf(const Step& step) {
  Acts acts(step.programs.size());
  for (size_t c = 0; c < step.programs.size(); ++c) {
    std::map<int, std::pair<Channel, int>> receives;  // by instruction
    std::map<Channel, int> num_received;
    const std::vector<Instruction>& list = step.programs[c].instructions;
    for (size_t i = 0; i < list.size(); ++i) {
      const int own = static_cast<int>(c);
      if (list[i].op == Op::kSend || list[i].op == Op::kReceive) {
        const bool sends = list[i].op == Op::kSend;
        const Channel channel = sends ? Channel(own, list[i].peer) : Channel(list[i].peer, own);
        if (!sends) receives[static_cast<int>(i)] = {channel, num_received[channel]++};
        acts[c].push_back({.is_message = true, .sends = sends, .channel = channel, .needed = {}});
      } else if (list[i].stream == kComputeStream) {
        Act computation;
        for (const int wait : list[i].waits) {
          if (const auto found = receives.find(wait); found != receives.end())
            computation.needed.push_back(found->second);
        }
        acts[c].push_back(computation);
      }
    }
  }
  return acts;
}

Transport AtMost(int max_in_flight) { return {.order = MessageOrder::kList, .max_in_flight = max_in_flight}; }

struct Expected {
  const char* order;
  int min_messages_in_flight;
};

// On 4 ranks with 8 micro-batches, and the fewest stages per rank.
constexpr std::array<Expected, kNumPipelineKinds> kExpected = {{{"gpipe", 1},
                                                                {"1f1b", 2},
                                                                {"interleaved-1f1b", 3},
                                                                {"looped-bfs", 3},
                                                                {"zb-h1", 2},
                                                                {"zb-h2", 2},
                                                                {"interleaved-zb", 3},
                                                                {"zbv", 3},
                                                                {"v-half", 2},
                                                                {"v-min", 2},
                                                                {"dualpipe", 3},
                                                                {"dualpipev", 3}}};

// One fewer stops, by the checker and by threads that know the passes alone.
TEST(MessagesInFlight, OfTheTwelveOrders) {
  for (const PipelineKind kind : AllKinds()) {
    const Expected& expected = kExpected[static_cast<size_t>(kind)];
    SCOPED_TRACE(expected.order);
    ASSERT_EQ(PipelineKindName(kind), expected.order);
    const PipelineSchedule order = *BuildPipeline(kind, {4, 8, LimitsOf(kind).min_virtual_stages});
    const Step step = *ExpandOrder(order);
    const absl::StatusOr<Proof> proof = Check(step);
    ASSERT_TRUE(proof.ok()) << proof.status();
    const int least = proof->min_messages_in_flight;
    EXPECT_EQ(least, expected.min_messages_in_flight);
    const Acts acts = ActsOf(order);
    Player player(acts);
    EXPECT_TRUE(player.FinishesInListOrder(least));
    EXPECT_TRUE(Check(step, AtMost(least)).ok());
    if (least > 1) {
      EXPECT_FALSE(player.FinishesInListOrder(least - 1));
      EXPECT_FALSE(Check(step, AtMost(least - 1)).ok());
    }
    EXPECT_TRUE(player.FinishesOnStreams());
    for (const Program& program : step.programs) EXPECT_LE(NumMessageStreams(program), 4);
  }
}

TEST(MessagesInFlight, OfOneProgramThereAreNone) {
  const BuiltCase built = Build({.mesh = {.dp_replicate = 2}, .num_micro_batches = 2});
  EXPECT_EQ(Check(built.step, built.ledger)->min_messages_in_flight, 1);
  EXPECT_EQ(NumMessageStreams(built.step.programs[0]), 0);
  EXPECT_EQ(NumExchangeStreams(built.step), 2);  // gathers, and sums of gradients
  const BuiltCase tensor = Build({.mesh = {.pp = 2, .tp = 2}, .layers = 2, .pipeline = PipelineKind::k1F1B});
  EXPECT_EQ(NumExchangeStreams(tensor.step), 5);  // and the computing stream, and messages both ways
}

// Orders of any shape, and steps of models with every ZeRO stage, tensor parallelism and several blocks per
// stage.
TEST(MessagesInFlight, OfRandomShapesAndLayouts) {
  std::mt19937 random(5);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  std::map<int, int> counts;
  for (int drawn = 0; drawn < 120;) {
    const auto kind = static_cast<PipelineKind>(below(kNumPipelineKinds));
    const PipelineShape shape = {2 + below(4), 1 + below(12), LimitsOf(kind).min_virtual_stages + below(2)};
    if (!CheckPipelineShape(kind, shape).ok()) continue;
    ++drawn;
    const PipelineSchedule order = *BuildPipeline(kind, shape);
    Case test{.stage = below(4),
              .tied = below(2) == 0,
              .num_micro_batches = static_cast<int>(shape.num_micro_batches),
              .recompute = below(2) == 0 ? layout::Recompute::kNone : layout::Recompute::kFull,
              .layers = static_cast<int>(shape.ranks * shape.virtual_stages) + below(9),
              .pipeline = kind,
              .virtual_stages = static_cast<int>(shape.virtual_stages)};
    test.mesh.pp = shape.ranks;
    (test.stage == 0 ? test.mesh.dp_replicate : test.mesh.dp_shard) = 2;
    test.mesh.tp = 1 << below(3);
    const BuiltCase built = Build(test);
    const Step passes = *ExpandOrder(order);
    for (const auto& [acts, proof] : {std::pair(ActsOf(order), Check(passes)),
                                      std::pair(ActsOf(built.step), Check(built.step, built.ledger))}) {
      ASSERT_TRUE(proof.ok()) << test.Name() << ": " << proof.status();
      Player player(acts);
      EXPECT_EQ(proof->min_messages_in_flight, player.Least()) << test.Name();
      EXPECT_TRUE(player.FinishesOnStreams()) << test.Name();
      ++counts[proof->min_messages_in_flight];
    }
  }
  for (const auto& [least, count] : counts) std::printf("%d steps need %d in flight\n", count, least);
  EXPECT_GE(counts.size(), 3u);
}

// What docs/design/schedules.md says of shapes.
TEST(MessagesInFlight, DependOnTheShape) {
  EXPECT_EQ(Check(Expanded(PipelineKind::kLoopedBreadthFirst, {4, 16, 2}))->min_messages_in_flight, 5);
}

// A back end that completes each message before it starts the next: its ranks stop, and the checker says so
// before they start.
TEST(MessagesInFlight, AStrictBackEndIsRefused) {
  int num_refused = 0;
  for (const PipelineKind kind : AllKinds()) {
    SCOPED_TRACE(PipelineKindName(kind));
    const PipelineSchedule order = *BuildPipeline(kind, {4, 8, LimitsOf(kind).min_virtual_stages});
    const Acts acts = ActsOf(order);
    const bool finishes = Player(acts).FinishesInListOrder(1);
    const absl::Status status = Check(*ExpandOrder(order), AtMost(1)).status();
    EXPECT_EQ(status.ok(), finishes);
    num_refused += status.ok() ? 0 : 1;
    if (status.ok()) continue;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("waits forever with 1 message in flight per rank (the step needs "),
                      HasSubstr("the first again")));
  }
  EXPECT_EQ(num_refused, 11);
}

TEST(MessagesInFlight, AnErrorNamesTheCycle) {
  const Step step = Expanded(PipelineKind::k1F1B, {2, 2, 1});
  EXPECT_EQ(
      std::string(Check(step, AtMost(1)).status().message()),
      "step '1f1b': class 0, instruction 3 (send block 1 micro-batch 1 to 1): waits forever with 1 message "
      "in flight per rank (the step needs 2): it is in flight until its peer starts class 1: receive block "
      "1 micro-batch 1 from 0 (stage 0 to 1); that cannot start before the end of class 1: send block 1 "
      "micro-batch 0 to 0 (stage 1 to 0); that is in flight until its peer starts class 0: receive block 1 "
      "micro-batch 0 from 1 (stage 1 to 0); that cannot start before the end of the first again");
}

// Moves an instruction to a later place in the list; waits follow it.
void MoveTo(Program& program, size_t from, size_t to) {
  const auto list = program.instructions.begin();
  std::rotate(list + static_cast<std::ptrdiff_t>(from), list + static_cast<std::ptrdiff_t>(from) + 1,
              list + static_cast<std::ptrdiff_t>(to) + 1);
  for (Instruction& instruction : program.instructions) {
    for (int& wait : instruction.waits) {
      const auto at = static_cast<size_t>(wait);
      if (at == from) {
        wait = static_cast<int>(to);
      } else if (at > from && at <= to) {
        --wait;
      }
    }
  }
}

// What becomes of steps with two messages of one rank in the other order.
class Mutants {
 public:
  void Add(const Step& mutant, int before, const std::string& what) {
    const absl::StatusOr<Proof> proof = Check(mutant);
    const bool stops = !proof.ok() && absl::StrContains(proof.status().message(), "waits forever with");
    if (!proof.ok() && !stops) {
      ++num_invalid_;
      return;
    }
    const Acts acts = ActsOf(mutant);
    Player player(acts);
    // Of those that finish a sample, for many threads take long.
    if (!proof.ok() || ++num_finish_ % 8 == 0) {
      ASSERT_EQ(player.FinishesOnStreams(), proof.ok()) << what << ": " << proof.status();
    }
    if (!proof.ok()) {
      ++num_never_;
      EXPECT_EQ(player.FinishesInListOrder(0), Check(mutant, AtMost(0)).ok()) << what;
      return;
    }
    const int least = proof->min_messages_in_flight;
    ASSERT_GE(least, 1) << what;
    ++(least > before ? num_more_ : least < before ? num_fewer_ : num_same_);
    if (least == before) return;
    EXPECT_EQ(player.Least(), least) << what;
  }

  void ExpectAll() const {
    std::printf("%d invalid, %d never finish, %d need the same, %d more, %d fewer\n", num_invalid_,
                num_never_, num_same_, num_more_, num_fewer_);
    EXPECT_GT(num_never_, 0);
    EXPECT_GT(num_more_, 0);
  }

 private:
  int num_invalid_ = 0, num_finish_ = 0, num_never_ = 0, num_same_ = 0, num_more_ = 0, num_fewer_ = 0;
};

// A message of one rank moves behind later ones.
TEST(MessagesInFlight, OfStepsWithMessagesInAnotherOrder) {
  Mutants mutants;
  for (const PipelineKind kind : AllKinds()) {
    const Step step = Expanded(kind, {4, 8, LimitsOf(kind).min_virtual_stages});
    const int before = Check(step)->min_messages_in_flight;
    for (size_t c = 0; c < step.programs.size(); ++c) {
      std::vector<size_t> messages;
      for (size_t i = 0; i < step.programs[c].instructions.size(); ++i) {
        const Op op = step.programs[c].instructions[i].op;
        if (op == Op::kSend || op == Op::kReceive) messages.push_back(i);
      }
      for (size_t k = c % 2; k + 3 < messages.size(); k += 2) {
        const size_t distance = 1 + k % 3;
        Step mutant = step;
        MoveTo(mutant.programs[c], messages[k], messages[k + distance]);
        mutants.Add(mutant, before,
                    absl::StrCat(PipelineKindName(kind), " class ", c, ": ", messages[k], " moves to ",
                                 messages[k + distance]));
      }
    }
  }
  mutants.ExpectAll();
}

// Two passes of one rank, and with them their messages, change places.
TEST(MessagesInFlight, OfOrdersWithTwoPassesExchanged) {
  Mutants mutants;
  for (const PipelineKind kind : AllKinds()) {
    const PipelineSchedule order = *BuildPipeline(kind, {4, 8, LimitsOf(kind).min_virtual_stages});
    const int before = Check(*ExpandOrder(order))->min_messages_in_flight;
    for (size_t rank = 0; rank < order.actions.size(); ++rank) {
      for (size_t k = rank % 3; k + 2 < order.actions[rank].size(); k += 3) {
        PipelineSchedule mutant = order;
        std::swap(mutant.actions[rank][k], mutant.actions[rank][k + 1 + k % 2]);
        const absl::StatusOr<Step> step = ExpandOrder(mutant);
        if (!step.ok()) continue;
        mutants.Add(*step, before,
                    absl::StrCat(PipelineKindName(kind), " rank ", rank, ": action ", k, " exchanged"));
      }
    }
  }
  mutants.ExpectAll();
}

// The largest model of the presets on 16,384 devices: a pipeline of 16 ranks; the other axes are not looked
// at.
TEST(MessagesInFlight, AreFoundInMilliseconds) {
  for (const auto& [kind, virtual_stages] :
       {std::pair(PipelineKind::k1F1B, 1), std::pair(PipelineKind::kInterleaved1F1B, 8)}) {
    const Step step = Expanded(kind, {16, 128, virtual_stages});
    int64_t num_instructions = 0;
    double seconds[2];
    for (int round = 0; round < 2; ++round) {
      const auto start = std::chrono::steady_clock::now();
      const absl::StatusOr<Proof> proof = Check(step);
      ASSERT_TRUE(proof.ok()) << proof.status();
      num_instructions = proof->num_instructions;
      seconds[round] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    std::printf("%s: %lld instructions of 16 classes proven in %.1f ms\n",
                std::string(PipelineKindName(kind)).c_str(), static_cast<long long>(num_instructions),
                1e3 * std::min(seconds[0], seconds[1]));
  }
}

}  // namespace
}  // namespace trainctl::schedule
