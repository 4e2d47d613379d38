// Agents that are silent, go away and come back.
#include "rpc/agent_hub.h"

#include <array>
#include <atomic>
#include <future>
#include <random>
#include <thread>

#include "absl/time/clock.h"
#include "agents_fixture.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/network.h"
#include "breakable_road.h"

namespace trainctl::rpc {
namespace {

using testing::HasSubstr;

// Moves only when a test says so; the date is the real one, which certificates need.
class SettableClock : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
  absl::Duration Monotonic() const override { return elapsed_.Monotonic(); }
  void Advance(absl::Duration by) { elapsed_.Advance(by); }

 private:
  FakeClock elapsed_;
};

class HubTest : public testing::Test, protected AgentHub::Handler {
 protected:
  HubTest() {
    QuietGrpc();
    options_.nodes = {"n0", "n1"};
    options_.addresses = {"127.0.0.1"};
    options_.setup.num_workers = 2;
    hub_ = std::make_unique<AgentHub>(Launch{"job-1", 3}, options_, rendezvous::Timeouts::FromDetect(kDetect),
                                      clock_, &refusals_, static_cast<AgentHub::Handler*>(this));
    const absl::Status status = hub_->Start();
    EXPECT_TRUE(status.ok()) << status;
  }
  ~HubTest() override { hub_->Shutdown(absl::Seconds(1)); }

  void OnWorkerMessage(MemberSink* sink, const v1::WorkerMessage& message) override {}
  void OnNodeClosed(MemberSink* sink) override {}
  void OnNews(rendezvous::NodeNews news) override {
    std::lock_guard lock(mutex_);
    news_.push_back(std::move(news));
    changed_.notify_all();
  }
  void OnStop(const std::string& reason) override {}
  void OnStore(StoreService::CallId, const v1::StoreRequest&, StoreService::Answer) override {}
  void OnStoreCancel(StoreService::CallId) override {}
  // What the ticker does, for so long.
  void Pass(absl::Duration time) {
    for (absl::Duration passed; passed < time; passed += kDetect / 10) {
      clock_.Advance(kDetect / 10);
      hub_->LoseSilent();
    }
  }
  // Its connection breaks, and the hub has noticed.
  void Break(RawAgent& agent) {
    (void)agent.Finish();
    while (!hub_->IsAway(agent.invitation().node)) std::this_thread::yield();
  }
  void AwaitNumNews(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return news_.size() >= count; });
  }
  size_t NumNews() {
    std::lock_guard lock(mutex_);
    return news_.size();
  }
  // Says something and waits until it is heard.
  void Speak(RawAgent& agent) {
    const size_t before = NumNews();
    v1::NodeReport report;
    report.set_message("still here");
    agent.Say(report);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return news_.size() > before; });
  }

  static constexpr absl::Duration kDetect = absl::Seconds(10);
  rendezvous::NetworkOptions options_;
  SettableClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<rendezvous::NodeNews> news_;
  RefusalLog refusals_{clock_};
  std::unique_ptr<AgentHub> hub_;
};

TEST_F(HubTest, SilenceIsNoticedAndToldToBoth) {
  RawAgent quiet(*hub_->Invite("n0"));
  RawAgent alive(*hub_->Invite("n1"));
  quiet.Join();
  alive.Join();
  Speak(quiet);
  Pass(kDetect * 0.8);
  Speak(alive);
  EXPECT_EQ(NumNews(), 2u) << "nobody is lost yet";
  Pass(kDetect * 0.4);
  ASSERT_EQ(NumNews(), 3u);
  EXPECT_EQ(news_[2].node, "n0");
  const std::string why = std::get<rendezvous::NodeNews::Gone>(news_[2].what).why;
  EXPECT_EQ(why, "no word from its agent for 11s (launch.detect_timeout is 10s)");
  const grpc::Status status = quiet.Wait();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(status.error_message(), why);
  Pass(kDetect * 0.4);
  EXPECT_EQ(NumNews(), 3u) << "told once, and of nobody else";
  // It may come again.
  RawAgent again(*hub_->Invite("n0"));
  again.Join();
}

TEST_F(HubTest, ACoordinatorThatStoodStillBlamesNobody) {
  RawAgent agent(*hub_->Invite("n0"));
  agent.Join();
  Pass(kDetect / 2);
  clock_.Advance(100 * kDetect);
  hub_->LoseSilent();
  Pass(kDetect * 0.9);
  EXPECT_EQ(NumNews(), 0u);
  Pass(kDetect * 0.3);
  EXPECT_EQ(NumNews(), 1u) << "its silence counts from then on";
}

TEST_F(HubTest, OnlyAgentsOfTheJobsNodesMayCome) {
  RawAgent other(*hub_->Invite("n2"));  // has a certificate of the job, as an administrator would
  other.Open();
  EXPECT_EQ(other.Wait().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(HubTest, AHubThatIsFullOfAgentsShutsDown) {
  RawAgent a(*hub_->Invite("n0")), b(*hub_->Invite("n1"));
  a.Join();
  b.Join();
  hub_->Shutdown(absl::Milliseconds(10));
  EXPECT_FALSE(a.Wait().ok());
  EXPECT_FALSE(b.Wait().ok());
}

TEST_F(HubTest, AnAgentThatComesBackGoesOnWhereItWas) {
  RawAgent agent(*hub_->Invite("n0"));
  agent.Join();
  Speak(agent);
  Break(agent);
  hub_->Send("n0", {7, rendezvous::NoteLeft{1}});
  agent.Open();
  agent.SayHello(/*acked=*/1);
  v1::AgentMessage message;
  message.mutable_report()->set_message("still here");
  agent.SayAs(1, message);  // was its acknowledgement lost?
  Speak(agent);
  EXPECT_EQ(NumNews(), 2u) << "each is told once";
  v1::AgentOrder order;
  while (!order.has_order()) {
    ASSERT_TRUE(agent.stream()->Read(&order));
    EXPECT_FALSE(order.has_setup()) << "it has that";
  }
  EXPECT_EQ(order.order().attempt(), 7);
  EXPECT_EQ(order.seq(), 2u);
}

TEST_F(HubTest, OrdersThatWereNotAcknowledgedComeAgain) {
  RawAgent agent(*hub_->Invite("n0"));
  agent.Join();
  for (int i = 1; i <= 3; ++i) hub_->Send("n0", {i, rendezvous::NoteLeft{1}});
  v1::AgentOrder order;
  while (order.seq() != 4) ASSERT_TRUE(agent.stream()->Read(&order));
  Break(agent);
  agent.Open();
  agent.SayHello(/*acked=*/2);
  for (uint64_t seq = 3; seq <= 4; ++seq) {
    do {
      ASSERT_TRUE(agent.stream()->Read(&order));
    } while (order.seq() == 0);
    EXPECT_EQ(order.seq(), seq);
    EXPECT_EQ(order.order().attempt(), static_cast<int64_t>(seq) - 1);
  }
}

TEST_F(HubTest, WhoIsAwayForTooLongIsLostAndNotTakenBack) {
  RawAgent agent(*hub_->Invite("n0"));
  agent.Join();
  Break(agent);
  Pass(kDetect * 0.4);
  EXPECT_EQ(NumNews(), 0u) << "it may come back";
  Pass(kDetect * 0.3);
  ASSERT_EQ(NumNews(), 1u);
  EXPECT_EQ(std::get<rendezvous::NodeNews::Gone>(news_[0].what).why,
            "the connection to its agent broke, and it did not come back");
  agent.Open();
  agent.SayHello(1);
  const grpc::Status status = agent.Wait();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("it was away for too long"));
}

TEST_F(HubTest, WhoLeavesIsNotWaitedFor) {
  RawAgent agent(*hub_->Invite("n0"));
  agent.Join();
  v1::AgentMessage leaving;
  leaving.mutable_leaving();
  agent.Say(leaving);
  Speak(agent);  // it is heard
  (void)agent.Finish();
  AwaitNumNews(2);
  EXPECT_EQ(std::get<rendezvous::NodeNews::Gone>(news_[1].what).why, "its agent has ended");
}

TEST_F(HubTest, AnAgentWhoseCommandHasEndedMayStayButIsNotWaitedFor) {
  RawAgent agent(*hub_->Invite("n0"));
  agent.Join();
  hub_->NoteCommandEnded("n0", "ssh has ended");
  Speak(agent);
  EXPECT_EQ(NumNews(), 1u);
  (void)agent.Finish();
  AwaitNumNews(2);
  EXPECT_EQ(std::get<rendezvous::NodeNews::Gone>(news_[1].what).why, "ssh has ended");

  RawAgent away(*hub_->Invite("n0"));
  away.Join();
  Break(away);
  hub_->NoteCommandEnded("n0", "ssh has ended again");
  EXPECT_EQ(std::get<rendezvous::NodeNews::Gone>(news_[2].what).why, "ssh has ended again");

  hub_->NoteCommandEnded("n1", "no such host");
  EXPECT_EQ(NumNews(), 4u) << "it never came";
}

TEST_F(HubTest, AMessageThatWasLeftOutEndsTheAgent) {
  RawAgent agent(*hub_->Invite("n0"));
  agent.Join();
  v1::AgentMessage message;
  message.mutable_report()->set_message("the second");
  agent.SayAs(2, message);
  EXPECT_EQ(agent.Wait().error_message(), "its agent left out a message");
  AwaitNumNews(1);
  EXPECT_TRUE(std::holds_alternative<rendezvous::NodeNews::Gone>(news_[0].what)) << "the message is not told";
}

// Each message by itself, whatever the hello said.
TEST_F(HubTest, WhatIsOfAnotherLaunchOrAgentEndsTheAgent) {
  for (const auto& [field, words] : {std::pair{1, "term 3"}, {2, "term 2"}, {3, "another agent's"}}) {
    RawAgent agent(*hub_->Invite("n0"));
    agent.Join();
    v1::AgentMessage message;
    *message.mutable_header() = agent.header();
    if (field == 1) message.mutable_header()->set_job("job-2");
    if (field == 2) message.mutable_header()->set_term(2);
    if (field == 3) message.mutable_header()->set_incarnation(agent.header().incarnation() + 1);
    message.mutable_report()->set_message("of the past");
    const size_t before = NumNews();
    agent.Say(message);
    const grpc::Status status = agent.Wait();
    ASSERT_THAT(status.error_message(), HasSubstr(words));
    AwaitNumNews(before + 1);
    EXPECT_TRUE(std::holds_alternative<rendezvous::NodeNews::Gone>(news_.back().what)) << "it is not told";
  }
}

TEST_F(HubTest, AWorkersWordsOfAnotherTermEndItsAgent) {
  RawAgent agent(*hub_->Invite("n0"));
  agent.Join();
  v1::AgentMessage message;
  message.mutable_worker()->set_member("n0/0");
  *message.mutable_worker()->mutable_header() = MakeHeader({"job-1", 2}, 1, 1);
  message.mutable_worker()->mutable_join()->set_pid(1);
  agent.Say(message);
  EXPECT_THAT(agent.Wait().error_message(), HasSubstr("term 2"));
}

TEST_F(HubTest, AnAgentThatIsAwayGivesWayToAnother) {
  RawAgent first(*hub_->Invite("n0"));
  first.Join();
  Break(first);
  RawAgent second(*hub_->Invite("n0"));
  second.Join();
  ASSERT_EQ(NumNews(), 1u);
  EXPECT_EQ(std::get<rendezvous::NodeNews::Gone>(news_[0].what).why, "another agent of the node has come");
}

// ---- connections that break --------------------------------------------------------------------------

class RoadTest : public AgentsTest {
 protected:
  ~RoadTest() override {
    is_over_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

  std::string Invite(const std::string& node) override {
    Json invitation = *ParseJson(AgentsTest::Invite(node), "an invitation");
    if (road_ == nullptr) {
      road_ =
          std::make_unique<BreakableRoad>(ParseEndpoint(invitation["endpoints"][0].get<std::string>())->port);
    }
    invitation["endpoints"] = {road_->endpoint()};
    return invitation.dump();
  }
  // Agents come back with a beat.
  void Beat() {
    for (const auto& node : nodes_) {
      threads_.emplace_back([this, &link = node->link()] {
        while (!is_over_) {
          link.Beat();
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
      });
    }
  }

  std::unique_ptr<BreakableRoad> road_;
  std::vector<std::thread> threads_;
  std::atomic<bool> is_over_{false};
};

TEST_F(RoadTest, NothingIsLostOrDoneTwiceHoweverOftenConnectionsBreak) {
  StartJob({"n0", "n1"});
  Beat();
  constexpr int kRounds = 10;
  std::array<std::atomic<int>, 2> num_left = {4 * kRounds, 4 * kRounds};  // calls, by node
  std::vector<std::future<void>> workers;
  for (size_t n = 0; n < 2; ++n) {
    for (size_t i = 0; i < 2; ++i) {
      workers.push_back(std::async(std::launch::async, [&, n, i] {
        for (int round = 0; round < kRounds; ++round) {
          for (const std::string& key : {std::string("count"), absl::StrCat("round ", round)}) {
            const auto count = store(n, i).Add(key, 1);
            EXPECT_TRUE(count.ok()) << count.status();
            --num_left[n];
          }
        }
      }));
    }
  }
  std::mt19937 random(1);
  const auto pause = [&](int most_ms) {
    std::this_thread::sleep_for(
        std::chrono::milliseconds(std::uniform_int_distribution<int>(0, most_ms)(random)));
  };
  int num_breaks = 0;
  for (; num_left[0] + num_left[1] > 0; ++num_breaks) {
    const int before[] = {num_left[0], num_left[1]};
    road_->Break();
    if (num_breaks % 4 == 0) {  // in the middle of a handshake, perhaps
      pause(10);
      road_->Break();
    }
    // Each gets something done between two breaks, or it would be given up on a slow machine.
    for (const size_t n : {0, 1}) {
      while (num_left[n] == before[n] && num_left[n] > 0) pause(1);
    }
    pause(10);
  }
  for (std::future<void>& worker : workers) worker.get();
  const auto count = store(0, 0).Add("count", 0);
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_EQ(*count, 4 * kRounds);
  EXPECT_GT(num_breaks, 3);
  EXPECT_GT(road_->num_connections(), 6);
  for (const News& news : service_->TakeNodeNews()) {
    EXPECT_FALSE(std::holds_alternative<News::Gone>(news.what)) << news.node;
  }
  for (size_t n = 0; n < 2; ++n) {
    for (size_t i = 0; i < 2; ++i) {
      road_->Break();
      EXPECT_TRUE(nodes_[n]->worker(i).Leave(LeaveReason::kFinished).ok());
    }
  }
}

TEST_F(RoadTest, DirectivesReachWhoWasAway) {
  StartJob({"n0", "n1"});
  road_->Break();
  service_->Submit(rendezvous::StopRequest{rendezvous::StopMode::kAfterSave, "stop"});
  Beat();
  for (const auto& node : nodes_) {
    for (size_t i = 0; i < 2; ++i) {
      while (node->worker(i).control().Poll().kind != DirectiveKind::kStopAfterSave)
        std::this_thread::yield();
    }
  }
}

}  // namespace
}  // namespace trainctl::rpc
