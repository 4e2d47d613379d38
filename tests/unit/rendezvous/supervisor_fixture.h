// A supervisor by hand: time passes only when a test says so. The test is the nodes, the coordinator and the
// disk.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/supervisor.h"

namespace trainctl::rendezvous {

inline constexpr absl::Duration kStopTimeout = absl::Seconds(30);
inline constexpr absl::Duration kNodeTimeout = absl::Minutes(2);
inline constexpr absl::Duration kStacksTimeout = absl::Seconds(20);
inline constexpr int64_t kGeneration = 8;

class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest() { Make({"a", "b", "c"}); }

  void Make(std::vector<std::string> nodes, int64_t max_restarts = 3, int64_t checkpoint_step = 10) {
    SupervisorOptions options;
    options.nodes = std::move(nodes);
    options.max_restarts = max_restarts;
    options.stop_timeout = kStopTimeout;
    options.node_timeout = kNodeTimeout;
    options.stacks_timeout = kStacksTimeout;
    options.watchdog.at_first = absl::Seconds(60);
    options.watchdog.most = absl::Minutes(10);
    options.checkpoint_step = checkpoint_step;
    supervisor_.emplace(options);
    attempt_ = 1;
  }
  const std::vector<SupervisorAction>& Give(const SupervisorEvent& event) {
    return actions_ = supervisor_->Decide(now_, event);
  }
  const std::vector<SupervisorAction>& Pass(absl::Duration time) {
    now_ += time;
    return Give(SupervisorTick{});
  }

  // ---- the world
  // Two workers on each: ranks 0 and 1 on the first node.
  static std::vector<Slot> SlotsOf(const std::string& node, int num_workers = 2) {
    std::vector<Slot> slots;
    for (int i = 0; i < num_workers; ++i) slots.push_back({absl::StrCat(node, "/", i), node, i, 1, {}});
    return slots;
  }
  void Ready(const std::string& node) { Give(NodeReady{node, SlotsOf(node)}); }
  void Report(const std::string& node, decltype(NodeEvent::what) what) {
    Give(NodeReport{node, {attempt_, std::move(what)}});
  }
  Notice Of(Notice::Kind kind) const {
    Notice notice;
    notice.kind = kind;
    notice.attempt = attempt_;
    notice.generation = kGeneration;
    return notice;
  }
  void Fail(const std::string& member, int rank, const std::string& message = "killed by SIGSEGV (11)",
            int64_t step = 5, std::optional<int> exit_code = {}) {
    Notice notice = Of(Notice::Kind::kFailed);
    notice.member = member;
    notice.failure = {rank, step, "", message, false, exit_code};
    Give(notice);
  }
  void Stop(StopMode mode) {
    Notice notice = Of(Notice::Kind::kStopRequested);
    notice.stop = mode;
    notice.reason = "SIGTERM";
    Give(notice);
  }
  void Leave(const std::string& member, int rank) {
    Notice notice = Of(Notice::Kind::kLeft);
    notice.member = member;
    notice.rank = rank;
    Give(notice);
  }
  void Finish(bool stopped) {
    Notice notice = Of(Notice::Kind::kFinished);
    notice.stopped = stopped;
    Give(notice);
  }
  static WorkerEnded EndOf(const std::string& node, int worker, std::optional<int> exit_code = std::nullopt) {
    WorkerEnded ended;
    ended.worker = worker;
    ended.exited.member = absl::StrCat(node, "/", worker);
    ended.exit_code = exit_code;
    return ended;
  }
  void Start() {
    Give(Begin{});
    for (const char* node : {"a", "b", "c"}) Ready(node);
  }
  void Run() {
    Start();
    Record();
  }
  void Record() {
    Give(Of(Notice::Kind::kPrepared));
    Give(GenerationRecorded{kGeneration});
  }
  void EndNodes(const std::vector<std::string>& nodes = {"a", "b", "c"}) {
    for (const std::string& node : nodes) Report(node, NodeEnded{});
  }
  // To the next attempt, all of whose nodes are ready already.
  void Settle() {
    Give(Settled{});
    ASSERT_THAT(All<CheckRestart>(), testing::SizeIs(1));
    Give(RestartChecked{});
    ++attempt_;
  }

  // ---- what was decided
  template <typename T>
  std::vector<T> All() const {
    std::vector<T> found;
    for (const SupervisorAction& action : actions_) {
      if (const T* one = std::get_if<T>(&action)) found.push_back(*one);
    }
    return found;
  }
  // What nodes were told: node, command.
  template <typename T>
  std::vector<std::pair<std::string, T>> Told() const {
    std::vector<std::pair<std::string, T>> found;
    for (const ToNode& told : All<ToNode>()) {
      EXPECT_EQ(told.command.attempt, attempt_);
      if (const T* one = std::get_if<T>(&told.command.what)) found.emplace_back(told.node, *one);
    }
    return found;
  }
  template <typename T>
  std::vector<std::string> NodesTold() const {
    std::vector<std::string> nodes;
    for (const auto& [node, command] : Told<T>()) nodes.push_back(node);
    return nodes;
  }
  std::optional<absl::Duration> Grace() const {  // of all that were told to end
    const auto told = Told<EndWorkers>();
    for (const auto& [node, end] : told) EXPECT_EQ(end.grace, told[0].second.grace);
    return told.empty() ? std::nullopt : std::optional(told[0].second.grace);
  }
  template <typename T>
  std::vector<T> Submitted() const {
    std::vector<T> found;
    for (const ToCoordinator& submitted : All<ToCoordinator>()) {
      if (const T* one = std::get_if<T>(&submitted.event)) found.push_back(*one);
    }
    return found;
  }
  std::string Said() const {
    std::string said;
    for (const Say& say : All<Say>()) absl::StrAppend(&said, say.text, "\n");
    return said;
  }
  bool Settles() const { return !All<rendezvous::Settle>().empty(); }
  std::vector<std::string> AgentsStarted() const {
    std::vector<std::string> nodes;
    for (const StartAgent& start : All<StartAgent>()) nodes.push_back(start.node);
    return nodes;
  }
  JobOutcome Outcome() const {
    const auto concluded = All<Conclude>();
    if (concluded.size() != 1 || !concluded[0].outcome.ok()) {
      ADD_FAILURE() << "no outcome";
      return {};
    }
    return *concluded[0].outcome;
  }
  std::string Error() const {
    const auto concluded = All<Conclude>();
    return concluded.size() == 1 ? std::string(concluded[0].outcome.status().message()) : "none";
  }

  std::optional<Supervisor> supervisor_;
  absl::Duration now_ = absl::Seconds(1000);
  int64_t attempt_ = 1;
  std::vector<SupervisorAction> actions_;
};

}  // namespace trainctl::rendezvous
