// Agents and their coordinator, as they are meant to work together and when one of them fails.
#include "rendezvous/agent.h"

#include <grpcpp/server.h>

#include <future>
#include <map>
#include <random>
#include <thread>

#include "absl/time/clock.h"
#include "agents_fixture.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/network.h"
#include "base/secret_file.h"
#include "rpc/channel.h"
#include "rpc/job_secret.h"
#include "rpc/node_wire.h"
#include "rpc/token.h"

namespace trainctl::rpc {
namespace {

using rendezvous::AgentLink;
using rendezvous::Notice;
using testing::HasSubstr;

// ---- commands and events on the wire -----------------------------------------------------------

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int Int(int from, int to) { return std::uniform_int_distribution<int>(from, to)(engine_); }
  bool Bool() { return Int(0, 1) == 1; }
  std::string Text() {
    std::string text;
    for (int i = Int(0, 8); i > 0; --i) absl::StrAppend(&text, Bool() ? "word " : "\xC3\xA4\n");
    return text;
  }
  std::vector<rendezvous::Slot> Slots(const std::string& node) {
    std::vector<rendezvous::Slot> slots;
    for (int i = 0, n = Int(1, 9); i < n; ++i) {
      slots.push_back({launcher::MemberName(node, i), node, i, Int(1, 99), {}});
      for (int c = Int(0, 3); c > 0; --c) slots.back().cores.push_back(Int(0, 200));
    }
    return slots;
  }

 private:
  std::mt19937 engine_;
};

rendezvous::NodeCommand SomeCommand(Random& in, int kind) {
  rendezvous::NodeCommand command;
  command.attempt = in.Int(0, 1 << 30);
  switch (kind) {
    case 0:
      command.what = rendezvous::StartWorkers{in.Int(0, 1000), in.Slots("n0")};
      break;
    case 1:
      command.what = rendezvous::EndWorkers{absl::Milliseconds(in.Int(0, 100000)), in.Int(-1, 8)};
      break;
    case 2:
      command.what = rendezvous::NoteLeft{in.Int(0, 8)};
      break;
    case 3:
      command.what = rendezvous::ShowStacks{in.Int(-1, 8)};
      break;
    default:
      command.what = rendezvous::FindActivity{in.Int(0, 8)};
  }
  return command;
}

constexpr int kNumWorkers = 9;

rendezvous::NodeEvent SomeEvent(Random& in, int kind) {
  rendezvous::NodeEvent event;
  event.attempt = in.Int(0, 1 << 30);
  const int worker = in.Int(0, kNumWorkers - 1);
  switch (kind) {
    case 0: {
      rendezvous::WorkerEnded ended;
      ended.worker = worker;
      ended.exited = {launcher::MemberName("n0", worker), in.Bool(), in.Bool(), in.Text(),
                      {in.Int(-1, 100), in.Text()},       in.Bool(), in.Bool()};
      if (in.Bool()) ended.exit_code = in.Int(0, 255);
      event.what = ended;
      break;
    }
    case 1: {
      rendezvous::BoardsSeen seen;
      for (int i = in.Int(0, 4); i > 0; --i) {
        rendezvous::Standing& standing = seen.boards[in.Int(0, kNumWorkers - 1)];
        standing = {in.Int(-1, 99), in.Text(), static_cast<uint64_t>(in.Int(0, 99)), in.Bool(), {}};
        for (int g = in.Int(0, 3); g > 0; --g) {
          standing.groups.push_back({in.Int(0, 9), static_cast<uint64_t>(in.Int(0, 9)),
                                     static_cast<uint64_t>(in.Int(0, 9)), in.Int(-1, 99)});
        }
      }
      event.what = seen;
      break;
    }
    case 2:
      event.what = rendezvous::ActivitySeen{worker, static_cast<rendezvous::Activity>(in.Int(0, 2))};
      break;
    case 3:
      event.what = rendezvous::StacksShown{};
      break;
    default:
      event.what = rendezvous::NodeEnded{in.Text(), in.Bool()};
  }
  return event;
}

TEST(NodeWireTest, CommandsAndEventsOfAllKindsSurviveTheTrip) {
  Random in(1);
  for (int i = 0; i < 500; ++i) {
    const v1::NodeOrder order = ToWire(SomeCommand(in, i % 5));
    const auto command = FromWire(order, "n0");
    ASSERT_TRUE(command.ok()) << command.status() << order.DebugString();
    EXPECT_EQ(ToWire(*command).SerializeAsString(), order.SerializeAsString()) << order.DebugString();
    EXPECT_EQ(command->what.index(), static_cast<size_t>(i % 5));

    const v1::NodeReport report = ToWire(SomeEvent(in, i % 5));
    const auto event = FromWire(report, "n0", kNumWorkers);
    ASSERT_TRUE(event.ok()) << event.status() << report.DebugString();
    EXPECT_EQ(ToWire(*event).SerializeAsString(), report.SerializeAsString()) << report.DebugString();
  }
}

TEST(NodeWireTest, WhatIsForThePersonNamesTheNode) {
  const auto started =
      FromWire(ToWire({3, rendezvous::WorkersNotStarted{absl::NotFoundError("no program")}}), "n0", 1);
  EXPECT_THAT(std::string(std::get<rendezvous::WorkersNotStarted>(started->what).why.message()),
              HasSubstr("n0: no program"));
  const auto message = FromWire(ToWire({3, rendezvous::NodeMessage{"disk full"}}), "n0", 1);
  EXPECT_EQ(std::get<rendezvous::NodeMessage>(message->what).text, "n0: disk full");
}

TEST(NodeWireTest, WhatAnAgentSaysIsPrintableHoweverItWasSent) {
  v1::NodeReport report;
  report.set_message("\x1b[2Jgone");
  EXPECT_EQ(std::get<rendezvous::NodeMessage>(FromWire(report, "n0", 1)->what).text.find('\x1b'),
            std::string::npos);
  report.mutable_ended()->set_description("\x1b[2J");
  EXPECT_EQ(
      std::get<rendezvous::WorkerEnded>(FromWire(report, "n0", 1)->what).exited.description.find('\x1b'),
      std::string::npos);
  report.mutable_node_ended()->set_log_tail("\x1b[2J");
  EXPECT_EQ(std::get<rendezvous::NodeEnded>(FromWire(report, "n0", 1)->what).log_tail.find('\x1b'),
            std::string::npos);
}

TEST(NodeWireTest, OrdersThatNoAgentCouldCarryOutAreRefused) {
  Random in(2);
  const v1::NodeOrder good = ToWire(SomeCommand(in, 0));
  ASSERT_TRUE(FromWire(good, "n0").ok());
  EXPECT_FALSE(FromWire(good, "n1").ok()) << "slots of another node";
  EXPECT_FALSE(FromWire(v1::NodeOrder(), "n0").ok());
  const auto is_refused = [&](auto change) {
    v1::NodeOrder order = good;
    change(*order.mutable_start());
    return !FromWire(order, "n0").ok();
  };
  EXPECT_TRUE(is_refused([](v1::NodeOrder::Start& start) { start.clear_slots(); }));
  EXPECT_TRUE(is_refused([](v1::NodeOrder::Start& start) { start.set_first_rank(-1); }));
  EXPECT_TRUE(is_refused([](v1::NodeOrder::Start& start) { start.set_first_rank(INT32_MAX); }));
  EXPECT_TRUE(is_refused([](v1::NodeOrder::Start& start) { start.mutable_slots(0)->add_cores(-1); }));
  EXPECT_TRUE(is_refused([](v1::NodeOrder::Start& start) { start.mutable_slots(0)->add_cores(1 << 30); }));
  EXPECT_TRUE(is_refused([](v1::NodeOrder::Start& start) { start.mutable_slots(0)->set_worker_id(7); }));
  EXPECT_TRUE(is_refused([](v1::NodeOrder::Start& start) { start.mutable_slots(0)->set_threads(0); }));
}

// What the agent's state machine makes of orders that name what is not there.
TEST(AgentOrdersTest, AnOrderForAWorkerThatIsNotThereChangesNothing) {
  Random in(3);
  rendezvous::Agent agent(rendezvous::AgentOptions{});
  const rendezvous::StartWorkers start{0, in.Slots("n0")};
  EXPECT_EQ(agent.Decide({}, rendezvous::NodeCommand{1, start}).size(), 1u);
  for (const int worker : {-7, -1, static_cast<int>(start.slots.size()), INT32_MAX, INT32_MIN}) {
    EXPECT_TRUE(agent.Decide({}, rendezvous::NodeCommand{1, rendezvous::NoteLeft{worker}}).empty());
    if (worker != -1) {  // one of another node
      EXPECT_TRUE(agent.Decide({}, rendezvous::NodeCommand{1, rendezvous::ShowStacks{worker}}).empty());
    }
    EXPECT_TRUE(agent.Decide({}, rendezvous::NodeCommand{1, rendezvous::FindActivity{worker}}).empty());
  }
  // To end is obeyed all the same; only the log's end is not found.
  agent.Decide({}, rendezvous::NodeCommand{1, rendezvous::EndWorkers{absl::ZeroDuration(), 1000}});
  const auto actions = agent.Decide({}, rendezvous::ProcessesGone{});
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(std::get<rendezvous::FinishAttempt>(actions[0]).tail_of, -1);
}

TEST(AgentOrdersTest, AnAttemptThatBeginsTooEarlyIsToldToHaveEnded) {
  Random in(4);
  rendezvous::Agent agent(rendezvous::AgentOptions{});
  agent.Decide({}, rendezvous::NodeCommand{1, rendezvous::StartWorkers{0, in.Slots("n0")}});
  const auto actions =
      agent.Decide({}, rendezvous::NodeCommand{2, rendezvous::StartWorkers{0, in.Slots("n0")}});
  ASSERT_EQ(actions.size(), 2u);
  const rendezvous::NodeEvent not_started = std::get<rendezvous::Tell>(actions[0]).event;
  EXPECT_EQ(not_started.attempt, 2);
  EXPECT_THAT(std::string(std::get<rendezvous::WorkersNotStarted>(not_started.what).why.message()),
              HasSubstr("attempt 2 begins before 1 has ended"));
  const rendezvous::NodeEvent ended = std::get<rendezvous::Tell>(actions[1]).event;
  EXPECT_EQ(ended.attempt, 2);
  EXPECT_TRUE(std::holds_alternative<rendezvous::NodeEnded>(ended.what));
  EXPECT_EQ(agent.attempt(), 1) << "which goes on";
}

// ---- a job ------------------------------------------------------------------------------------------

TEST_F(AgentsTest, AWorldOfTwoNodesJoinsAndGoes) {
  options_.last_generation = 4;
  StartService();
  rendezvous::Expect expect;
  for (const std::string name : {"n0", "n1"}) {
    TestNode& node = AddNode(name);
    const auto setup = node.Await<rendezvous::NodeSetup>();
    EXPECT_EQ(setup.run_dir, "/run");
    EXPECT_EQ(setup.num_workers, 2);
    EXPECT_EQ(node.link().coordinator_host(), "127.0.0.1");
    node.link().TellReady({node.Slots(),
                           {.programs = "abc",
                            .memory_available_bytes = 7,
                            .num_devices = 8,
                            .trainctl = "def",
                            .libraries = "012",
                            .run_files = "345",
                            .run_free_bytes = 9,
                            .temp_free_bytes = 10}});
    const auto offer = AwaitNews<rendezvous::NodeOffer>(name);
    EXPECT_EQ(offer.facts.programs, "abc");
    EXPECT_EQ(offer.facts.memory_available_bytes, 7);
    EXPECT_EQ(offer.facts.num_devices, 8);
    EXPECT_EQ(offer.facts.trainctl, "def");
    EXPECT_EQ(offer.facts.libraries, "012");
    EXPECT_EQ(offer.facts.run_files, "345");
    EXPECT_EQ(offer.facts.run_free_bytes, 9);
    EXPECT_EQ(offer.facts.temp_free_bytes, 10);
    EXPECT_LE(offer.facts.clock_ahead, absl::Milliseconds(1)) << "of the same clock, read before";
    EXPECT_GT(offer.facts.clock_ahead, -absl::Minutes(1));
    const std::vector<rendezvous::Slot>& slots = offer.slots;
    ASSERT_EQ(slots.size(), 2u);
    EXPECT_EQ(slots[1].member, name + "/1");
    expect.slots.insert(expect.slots.end(), slots.begin(), slots.end());
  }
  service_->Submit(expect);
  for (const auto& node : nodes_) {
    for (int i = 0; i < 2; ++i) node->AddWorker(i);
  }
  const int64_t generation = AwaitNotice(Notice::Kind::kPrepared).generation;
  EXPECT_EQ(generation, 5);
  service_->Submit(rendezvous::Recorded{generation});
  for (size_t n = 0; n < 2; ++n) {
    for (size_t i = 0; i < 2; ++i) {
      const auto world = nodes_[n]->worker(i).Join();
      ASSERT_TRUE(world.ok()) << world.status();
      EXPECT_EQ(world->rank, static_cast<int>(2 * n + i));
      EXPECT_EQ(world->local_rank, static_cast<int>(i));
      EXPECT_EQ(world->world_size, 4);
      EXPECT_EQ(world->generation, 5);
    }
  }
}

TEST_F(AgentsTest, TheStoreWorksThroughAgents) {
  StartJob({"n0", "n1"});
  auto waiting = std::async(std::launch::async, [this] { return store(1, 1).Get("late", absl::Minutes(2)); });
  EXPECT_TRUE(store(0, 0).Set("a", Bytes("one")).ok());
  EXPECT_EQ(*store(1, 0).Get("a", absl::Minutes(2)), Bytes("one"));
  EXPECT_EQ(*store(1, 1).CompareSet("a", Bytes("one"), Bytes("two")), Bytes("two"));
  for (size_t n = 0; n < 2; ++n) {
    for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(store(n, i).Add("count", 1).ok());
  }
  EXPECT_EQ(*store(0, 1).Add("count", 0), 4);
  EXPECT_EQ(store(0, 0).Get("missing", absl::Milliseconds(30)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(store(0, 0).Set("late", Bytes("now")).ok());
  EXPECT_EQ(*waiting.get(), Bytes("now"));
}

TEST_F(AgentsTest, AFailureEndsTheWaitsOfOtherNodes) {
  StartJob({"n0", "n1"});
  auto waiting =
      std::async(std::launch::async, [this] { return store(0, 0).Wait({"never"}, absl::Minutes(5)); });
  nodes_[1]->worker(1).control().Fail({-1, 17, "dp_shard", "loss is not a number", false});
  const absl::Status status = waiting.get();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 3 failed: loss is not a number"));
  EXPECT_EQ(AwaitNotice(Notice::Kind::kFailed).failure.rank, 3);
  while (nodes_[0]->worker(1).control().Poll().kind != DirectiveKind::kAbort) std::this_thread::yield();
}

TEST_F(AgentsTest, AWaitEndsWithTheWorkerThatWaits) {
  StartJob({"n0"});
  const auto stub = v1::Trainctl::NewStub(MakeChannel(nodes_[0]->socket()));
  grpc::ClientContext context;
  context.AddMetadata(kTokenKey, ReadPass(nodes_[0]->token(0))->token);
  v1::StoreRequest request;
  *request.mutable_header() = MakeHeader({options_.job, options_.term}, 1, 1);
  request.set_operation(v1::StoreRequest::WAIT);
  request.add_keys("never");
  auto waiting = std::async(std::launch::async, [&] {
    v1::StoreReply reply;
    return stub->Store(&context, request, &reply);
  });
  ASSERT_TRUE(store(0, 0).Set("other", {}).ok());
  context.TryCancel();
  EXPECT_EQ(waiting.get().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(store(0, 0).Set("never", {}).ok()) << "nobody is answered twice";
}

TEST_F(AgentsTest, DirectivesReachTheWorkersOfAllNodes) {
  StartJob({"n0", "n1"});
  nodes_[1]->link().AskToStop("SIGTERM");
  EXPECT_EQ(AwaitNotice(Notice::Kind::kStopRequested).reason, "n1: SIGTERM");
  for (const auto& node : nodes_) {
    for (size_t i = 0; i < 2; ++i) {
      while (node->worker(i).control().Poll().kind != DirectiveKind::kStopAfterSave) {
        std::this_thread::yield();
      }
    }
  }
}

TEST_F(AgentsTest, ProgressArrives) {
  StartJob({"n0", "n1"});
  nodes_[1]->worker(0).control().Report({12, "forward"});
  Notice notice;
  do {
    notice = AwaitNotice(Notice::Kind::kProgress);
  } while (notice.member != "n1/0" || notice.progress.step != 12);
  EXPECT_EQ(notice.rank, 2);
  EXPECT_EQ(notice.progress.phase, "forward");
}

TEST_F(AgentsTest, ProgressThatNobodyHasLookedAtIsReplaced) {
  StartJob({"n0"});
  (void)service_->TakeNotices();
  for (int step = 1; step <= 50; ++step) {
    for (size_t i = 0; i < 2; ++i) nodes_[0]->worker(i).control().Report({step, "forward"});
  }
  for (size_t i = 0; i < 2; ++i) ASSERT_TRUE(nodes_[0]->worker(i).Leave(LeaveReason::kFinished).ok());
  std::map<std::string, int> num_progress;
  for (const Notice& notice : service_->TakeNotices()) {
    if (notice.kind != Notice::Kind::kProgress) continue;
    ++num_progress[notice.member];
    EXPECT_EQ(notice.progress.step, 50);
  }
  EXPECT_EQ(num_progress, (std::map<std::string, int>{{"n0/0", 1}, {"n0/1", 1}}));
}

TEST_F(AgentsTest, ALeaveIsHeardBeforeItReturns) {
  StartJob({"n0", "n1"});
  (void)service_->TakeNotices();
  for (size_t n = 0; n < 2; ++n) {
    for (size_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(nodes_[n]->worker(i).Leave(LeaveReason::kFinished).ok());
      bool is_heard = false;
      for (const Notice& notice : service_->TakeNotices()) {
        is_heard =
            is_heard || (notice.kind == Notice::Kind::kLeft &&
                         notice.member == launcher::MemberName(nodes_[n]->name(), static_cast<int>(i)));
      }
      EXPECT_TRUE(is_heard) << n << "/" << i;
    }
  }
}

TEST_F(AgentsTest, ReportsOrdersAndLinesPassInOrder) {
  StartService();
  TestNode& node = AddNode("n0");
  node.Await<rendezvous::NodeSetup>();
  Random in(3);
  for (int i = 0; i < 50; ++i) {
    const rendezvous::NodeCommand command = SomeCommand(in, i % 5);
    service_->SendToNode("n0", command);
    EXPECT_EQ(ToWire(node.Await<rendezvous::NodeCommand>()).SerializeAsString(),
              ToWire(command).SerializeAsString());
    rendezvous::NodeEvent event = SomeEvent(in, 2);
    std::get<rendezvous::ActivitySeen>(event.what).worker = i % 2;
    node.link().Tell(event);
    EXPECT_EQ(ToWire(AwaitNews<rendezvous::NodeEvent>("n0")).SerializeAsString(),
              ToWire(event).SerializeAsString());
    node.link().ShowLine(i, absl::StrCat("line ", i, " \x1b[2J"));
    const auto line = AwaitNews<News::Line>("n0");
    EXPECT_EQ(line.rank, i);
    EXPECT_THAT(line.text, HasSubstr(absl::StrCat("line ", i, " ")));
    EXPECT_EQ(line.text.find('\x1b'), std::string::npos);
  }
}

TEST_F(AgentsTest, LinesThatAnAgentDroppedAreCounted) {
  StartService();
  RawAgent agent(Invite("n0"));
  agent.Join();
  v1::AgentMessage message;
  message.mutable_lines()->add_lines()->set_text("after");
  message.mutable_lines()->set_num_dropped(7);
  agent.Say(message);
  EXPECT_EQ(AwaitNews<News::Line>("n0").text, "after");
  EXPECT_EQ(AwaitNews<News::Dropped>("n0").num_lines, 7);
}

TEST_F(AgentsTest, LinesThatNobodyTakesAreBoundedAndCounted) {
  StartService();
  RawAgent agent(Invite("n0"));
  agent.Join();
  constexpr int kLines = 6'000;
  const std::string text(1000, 'x');
  for (int i = 0; i < kLines / 100; ++i) {
    v1::AgentMessage message;
    for (int n = 0; n < 100; ++n) message.mutable_lines()->add_lines()->set_text(text);
    agent.Say(message);
  }
  v1::AgentMessage stop;
  stop.mutable_stop()->set_reason("told after the lines");
  agent.Say(stop);
  while (service_->TakeNotices().empty()) std::this_thread::yield();
  int64_t num_shown = 0;
  int64_t num_dropped = 0;
  for (const News& news : service_->TakeNodeNews()) {
    num_shown += std::holds_alternative<News::Line>(news.what) ? 1 : 0;
    if (const auto* dropped = std::get_if<News::Dropped>(&news.what)) num_dropped += dropped->num_lines;
  }
  EXPECT_EQ(num_shown + num_dropped, kLines);
  EXPECT_GT(num_dropped, 0);
}

TEST_F(AgentsTest, BoardsThatNobodyHasLookedAtAreReplaced) {
  StartService();
  TestNode& node = AddNode("n0");
  node.Await<rendezvous::NodeSetup>();
  for (int step = 1; step <= 100; ++step) {
    rendezvous::BoardsSeen seen;
    seen.boards[0].step = step;
    node.link().Tell({1, seen});
  }
  node.link().AskToStop("told after the boards");
  while (service_->TakeNotices().empty()) std::this_thread::yield();
  const std::vector<News> news = service_->TakeNodeNews();
  ASSERT_EQ(news.size(), 1u);
  const auto& seen = std::get<rendezvous::BoardsSeen>(std::get<rendezvous::NodeEvent>(news[0].what).what);
  EXPECT_EQ(seen.boards.at(0).step, 100);
}

TEST_F(AgentsTest, ASecondAgentOfANodeIsRefusedAndTheFirstStays) {
  StartService();
  TestNode& first = AddNode("n0");
  first.Await<rendezvous::NodeSetup>();
  TestNode& second = AddNode("n0");
  EXPECT_THAT(second.Await<AgentLink::Lost>().why, HasSubstr("n0 has an agent in this job already"));
  nodes_.pop_back();
  first.link().TellReady({first.Slots()});
  AwaitNews<rendezvous::NodeOffer>("n0");
}

TEST_F(AgentsTest, AgentsAreDismissedAtTheEndAndThoseThatComeAfterIt) {
  StartService();
  TestNode& node = AddNode("n0");
  node.Await<rendezvous::NodeSetup>();
  EXPECT_FALSE(service_->AllNodesLeft());
  service_->DismissNodes(/*is_finished=*/true);
  EXPECT_TRUE(node.Await<AgentLink::Dismissed>().is_finished);
  EXPECT_TRUE(AddNode("n1").Await<AgentLink::Dismissed>().is_finished);
  nodes_.clear();
  const auto deadline = Soon();
  while (!service_->AllNodesLeft()) ASSERT_LT(std::chrono::system_clock::now(), deadline);
}

Credential Newcomer(const std::unique_ptr<JobAuthority>& authority) {
  return *authority->Issue({Role::kBootstrap, "agent"});
}

// An agent of a job whose secret was there before its launcher.
TEST_F(AgentsTest, AnAgentThatNobodyInvitedComesWithTheKeyOfItsNode) {
  const JobSecret secret = *MakeJobSecret("llm", RealClock());
  options_.network->secret_path = folder_ + "/secret";
  ASSERT_TRUE(WriteSecretFile(options_.network->secret_path, FormatJobSecret(secret)).ok());
  StartService();
  const Invitation invited = *ReadInvitation(Invite("n0"));
  AgentClientOptions options{.socket_path = folder_ + "/agent", .token_path = folder_ + "/agent-token"};
  options.invitation = {.node = "n0",
                        .endpoints = {"localhost:" + absl::StrCat(ParseEndpoint(invited.endpoints[0])->port)},
                        .bootstrap = Newcomer(*JobAuthority::Open("llm", secret, RealClock())),
                        .node_key = NodeKey(secret, "n1")};
  EXPECT_EQ(ConnectAgent(options).status().code(), absl::StatusCode::kPermissionDenied);
  options.invitation.node_key = NodeKey(secret, "n0");
  auto link = ConnectAgent(options);
  ASSERT_TRUE(link.ok()) << link.status();
  (*link)->TellReady({.slots = {{launcher::MemberName("n0", 0), "n0", 0, 1, {0}},
                                {launcher::MemberName("n0", 1), "n0", 1, 1, {1}}}});
  AwaitNews<rendezvous::NodeOffer>("n0");
  link->reset();
  AwaitNews<News::Gone>("n0");
  EXPECT_TRUE(ConnectAgent(options).ok()) << "it is started again";
}

TEST(AgentClientTest, AnAgentThatIsNotWantedAnyMoreDoesNotWaitForItsLauncher) {
  AgentClientOptions options{.socket_path = "/tmp/s", .token_path = "/tmp/t", .timeout = absl::Hours(1)};
  options.invitation = {.node = "n0",
                        .endpoints = {"no-such-launcher.invalid:1"},
                        .bootstrap = Newcomer(*JobAuthority::Create("job", RealClock())),
                        .node_key = "k"};
  int num_asked = 0;
  options.is_cancelled = [&] { return ++num_asked == 2; };
  EXPECT_EQ(ConnectAgent(options).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(num_asked, 2);
}

TEST_F(AgentsTest, ANodeThatCannotTakePartSaysWhyBeforeItEnds) {
  StartService();
  for (int i = 0; i < 20; ++i) {
    TestNode& node = AddNode("n0");
    node.Await<rendezvous::NodeSetup>();
    node.link().TellNotReady("its disk is full");
    nodes_.clear();  // at once
    EXPECT_EQ(AwaitNews<News::Gone>("n0").why, "its disk is full");
  }
}

TEST_F(AgentsTest, AnAgentThatEndsIsMissedAndItsWorkersLearnIt) {
  StartJob({"n0", "n1"});
  auto waiting =
      std::async(std::launch::async, [this] { return store(0, 0).Wait({"never"}, absl::Minutes(5)); });
  nodes_[0]->KillAgent();
  EXPECT_EQ(AwaitNews<News::Gone>("n0").why, "its agent has ended");
  EXPECT_FALSE(waiting.get().ok());
  EXPECT_TRUE(store(1, 0).Set("key", {}).ok());
}

TEST_F(AgentsTest, ALostCoordinatorIsTold) {
  StartJob({"n0"});
  service_.reset();
  EXPECT_FALSE(nodes_[0]->Await<AgentLink::Lost>().why.empty());
  EXPECT_FALSE(nodes_[0]->worker(0).Leave(LeaveReason::kFinished).ok());
  EXPECT_FALSE(store(0, 1).Set("key", {}).ok());
  nodes_[0]->link().Beat();
  nodes_[0]->link().ShowLine(0, "nobody reads this");
}

TEST_F(AgentsTest, OneThatReadsNothingHoldsNobodyUp) {
  StartJob({"n1"});
  RawAgent deaf(Invite("n0"));
  deaf.Open();
  deaf.SayHello();
  // More than what sockets hold.
  rendezvous::StartWorkers start;
  for (int i = 0; i < 5'000; ++i)
    start.slots.push_back({launcher::MemberName("n0", i), "n0", i, 1, {1, 2, 3}});
  v1::AgentMessage beat;
  beat.mutable_beat();
  for (int i = 0; i < 100; ++i) {
    service_->SendToNode("n0", {i, start});
    deaf.Say(beat);
    ASSERT_TRUE(store(0, 0).Set("key", {}).ok());
  }
  service_->SendToNode("n1", {1, rendezvous::NoteLeft{1}});
  EXPECT_EQ(std::get<rendezvous::NoteLeft>(nodes_[0]->Await<rendezvous::NodeCommand>().what).worker, 1);
}

// ---- a coordinator that says what it should not ---------------------------------------------------------

class FakeCoordinator : public v1::Agents::Service {
 public:
  FakeCoordinator() : authority_(*JobAuthority::Create("job-1", clock_)) {
    QuietGrpc();
    grpc::ServerBuilder builder;
    SetServerLimits(builder, kMaxMessageBytes);
    int port = 0;
    builder.AddListeningPort(
        "127.0.0.1:0", *MakeServerCredentials(*authority_->Issue({Role::kCoordinator, "launch"})), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    invitation_ = FormatInvitation({.job = "job-1",
                                    .node = "n0",
                                    .endpoints = {absl::StrCat("127.0.0.1:", port)},
                                    .bootstrap = Newcomer(authority_),
                                    .token = *authority_->MakeToken("n0")});
  }
  ~FakeCoordinator() override {
    Let();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  const std::string& invitation() const { return invitation_; }

  grpc::Status Enroll(grpc::ServerContext*, const v1::EnrollRequest* request,
                      v1::EnrollReply* reply) override {
    *reply->mutable_header() = MakeHeader({"job-1", 3}, 0, 1);
    reply->set_certificate(
        *authority_->Enroll(request->node(), request->token(), request->certificate_request()));
    return grpc::Status::OK;
  }
  // Says `orders`, then reads once it is let.
  grpc::Status Node(grpc::ServerContext*,
                    grpc::ServerReaderWriter<v1::AgentOrder, v1::AgentMessage>* stream) override {
    for (v1::AgentOrder& order : orders) {
      if (!order.has_header()) *order.mutable_header() = MakeHeader({"job-1", 3}, 0, 1);
      stream->Write(order);
    }
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return may_read_; });
    }
    v1::AgentMessage message;
    while (stream->Read(&message)) {
      std::lock_guard lock(mutex_);
      heard_.push_back(message);
      changed_.notify_all();
    }
    return grpc::Status::OK;
  }
  void Let() {
    std::lock_guard lock(mutex_);
    may_read_ = true;
    changed_.notify_all();
  }
  template <typename Predicate>
  void AwaitHeard(Predicate is_it) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      for (const v1::AgentMessage& message : heard_) {
        if (is_it(message)) return true;
      }
      return false;
    });
  }
  void AwaitMore(size_t num_messages) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return heard_.size() > num_messages; });
  }
  std::vector<v1::AgentMessage> heard() {
    std::lock_guard lock(mutex_);
    return heard_;
  }

  std::vector<v1::AgentOrder> orders;

 private:
  const RealClock clock_;
  std::unique_ptr<JobAuthority> authority_;
  std::string invitation_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool may_read_ = false;
  std::vector<v1::AgentMessage> heard_;
  std::unique_ptr<grpc::Server> server_;
};

TEST(AgentClientTest, ALeaveThatTheCoordinatorHasNotHeardFails) {
  FakeCoordinator coordinator;  // acknowledges nothing
  coordinator.Let();
  TestNode node("n0", coordinator.invitation());
  WorkerClient& worker = node.AddWorker(0);
  auto leaving = std::async(std::launch::async, [&] { return worker.Leave(LeaveReason::kFinished); });
  coordinator.AwaitHeard([](const v1::AgentMessage& message) { return message.worker().has_leave(); });
  node.KillAgent();
  const absl::Status status = leaving.get();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

TEST(AgentClientTest, ShownAndDroppedLinesAreAll) {
  FakeCoordinator coordinator;
  TestNode node("n0", coordinator.invitation());
  constexpr int kLines = 6'000;
  const std::string text(1000, 'x');
  for (int i = 0; i < kLines; ++i) node.link().ShowLine(0, text);
  coordinator.Let();
  int64_t num_shown = 0;
  int64_t num_dropped = 0;
  while (num_shown + num_dropped < kLines) {
    const size_t before = coordinator.heard().size();
    node.link().Beat();
    coordinator.AwaitMore(before);
    num_shown = num_dropped = 0;
    for (const v1::AgentMessage& message : coordinator.heard()) {
      num_shown += message.lines().lines_size();
      num_dropped += message.lines().num_dropped();
    }
  }
  EXPECT_EQ(num_shown + num_dropped, kLines);
  EXPECT_GT(num_dropped, 0);
}

TEST(AgentClientTest, OrdersInAnyOrderAreTakenOrRefused) {
  FakeCoordinator coordinator;
  v1::AgentOrder order;
  order.set_acked(UINT64_MAX);
  coordinator.orders.push_back(order);  // nothing more
  order.mutable_member()->set_member("n0/9");
  coordinator.orders.push_back(order);  // nobody's
  order.mutable_order()->mutable_end()->set_tail_of(-7);
  coordinator.orders.push_back(order);  // before the setup
  order.mutable_order()->mutable_start()->add_slots()->set_member("n1/0");
  coordinator.orders.push_back(order);
  order.mutable_farewell();
  coordinator.orders.push_back(order);
  order.mutable_setup()->set_num_workers(-3);
  coordinator.orders.push_back(order);
  coordinator.Let();
  TestNode node("n0", coordinator.invitation());
  EXPECT_EQ(std::get<rendezvous::EndWorkers>(node.Await<rendezvous::NodeCommand>().what).tail_of, -7);
  EXPECT_THAT(node.Await<AgentLink::Lost>().why, HasSubstr("a slot of n0 is not one of its workers"));
  node.Await<AgentLink::Dismissed>();
  node.Await<rendezvous::NodeSetup>();
}

TEST(AgentClientTest, ASocketThatCannotBeMadeIsAnError) {
  FakeCoordinator coordinator;
  const auto link = ConnectAgent({*ReadInvitation(coordinator.invitation()), "/tmp/" + std::string(120, 'x'),
                                  "/tmp/trainctl-no-such/token"});
  EXPECT_FALSE(link.ok());
}

TEST(AgentClientTest, AnInvitationThatIsNoneIsRefused) {
  for (const std::string text : {"", "{}", "[]", R"({"schema": "trainctl.invitation.v3"})",
                                 R"({"schema": "trainctl.invitation.v2", "job": 1})",
                                 R"({"schema": "trainctl.invitation.v2", "job": "j", "node": "n", "ca": "",
                                     "certificate": "", "key": "", "token": "", "endpoints": [1]})"}) {
    EXPECT_FALSE(ReadInvitation(text).ok()) << text;
  }
}

}  // namespace
}  // namespace trainctl::rpc
