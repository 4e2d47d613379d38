// A job of two nodes with two workers each, over real sockets and in one process: the service, its agents,
// and workers at the agents' sockets.
#pragma once

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "launcher/worker_contract.h"
#include "proto/trainctl.grpc.pb.h"
#include "rpc/agent_client.h"
#include "rpc/agent_hub.h"
#include "rpc/invitation.h"
#include "rpc/server.h"
#include "rpc/tls.h"
#include "rpc/wire.h"
#include "rpc/worker_client.h"

namespace trainctl::rpc {

inline std::vector<uint8_t> Bytes(absl::string_view text) { return {text.begin(), text.end()}; }

// For calls that must be answered: a test that waits for longer has failed.
inline std::chrono::system_clock::time_point Soon() {
  return std::chrono::system_clock::now() + std::chrono::minutes(2);
}

inline std::string MakeFolder() {
  std::string folder = "/tmp/trainctl-agents-test-XXXXXX";
  EXPECT_NE(::mkdtemp(folder.data()), nullptr);
  return folder;
}

// Says what no agent of ours would.
class RawAgent {
 public:
  using Stream = grpc::ClientReaderWriter<v1::AgentMessage, v1::AgentOrder>;

  explicit RawAgent(const std::string& invitation, bool has_certificate = true)
      : invitation_(*ReadInvitation(invitation)) {
    const KeyAndRequest mine = *MakeKeyAndRequest();
    Credential credential = invitation_.bootstrap;
    if (has_certificate) {
      v1::EnrollReply reply;
      const grpc::Status status = Enroll(invitation_.node, invitation_.token, mine.csr_pem, &reply);
      EXPECT_TRUE(status.ok()) << status.error_message();
      credential.key_pem = mine.key_pem;
      credential.cert_pem = reply.certificate();
      header_ = reply.header();
    }
    channel_ = *MakeTlsChannel(invitation_.endpoints[0], *MakeClientCredentials(credential));
    stub_ = v1::Agents::NewStub(channel_);
  }
  ~RawAgent() {
    if (stream_ != nullptr) (void)Finish();
  }

  grpc::Status Enroll(const std::string& node, const std::string& token, const std::string& request,
                      v1::EnrollReply* reply) const {
    const auto channel =
        *MakeTlsChannel(invitation_.endpoints[0], *MakeClientCredentials(invitation_.bootstrap));
    grpc::ClientContext context;
    context.set_deadline(Soon());
    v1::EnrollRequest message;
    message.set_node(node);
    message.set_token(token);
    message.set_certificate_request(request);
    return v1::Agents::NewStub(channel)->Enroll(&context, message, reply);
  }

  void Open() {
    context_ = std::make_unique<grpc::ClientContext>();
    context_->set_deadline(Soon());
    stream_ = stub_->Node(context_.get());
  }
  void Say(v1::AgentMessage message) {
    if (!message.has_header()) *message.mutable_header() = header_;
    message.set_seq(message.has_hello() ? 0 : ++seq_);
    (void)stream_->Write(message);
  }
  // Says it again.
  void SayAs(uint64_t seq, v1::AgentMessage message) {
    seq_ = seq - 1;
    Say(std::move(message));
  }
  // `acked`: of the orders.
  void SayHello(uint64_t acked = 0) {
    v1::AgentMessage hello;
    hello.set_acked(acked);
    hello.set_protocol_version(kProtocolVersion);
    hello.mutable_hello()->set_pid(1);
    Say(std::move(hello));
  }
  // Opens, says hello and waits for the setup.
  void Join() {
    Open();
    SayHello();
    v1::AgentOrder order;
    ASSERT_TRUE(stream_->Read(&order));
    ASSERT_TRUE(order.has_setup());
  }
  void Say(const v1::NodeReport& report) {
    v1::AgentMessage message;
    *message.mutable_report() = report;
    Say(std::move(message));
  }
  // Reads to the end of the stream.
  grpc::Status Wait() {
    v1::AgentOrder order;
    while (stream_->Read(&order)) continue;
    const grpc::Status status = stream_->Finish();
    stream_.reset();
    return status;
  }
  grpc::Status Finish() {
    context_->TryCancel();
    return Wait();
  }

  const v1::Header& header() const { return header_; }
  const Invitation& invitation() const { return invitation_; }
  v1::Agents::Stub* stub() const { return stub_.get(); }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  Stream* stream() const { return stream_.get(); }

 private:
  const Invitation invitation_;
  v1::Header header_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Agents::Stub> stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<Stream> stream_;
  uint64_t seq_ = 0;
};

// An agent and its workers.
class TestNode {
 public:
  using Link = rendezvous::AgentLink;

  TestNode(const std::string& name, const std::string& invitation) : name_(name), folder_(MakeFolder()) {
    auto link = ConnectAgent({*ReadInvitation(invitation), folder_ + "/s", folder_ + "/token"});
    EXPECT_TRUE(link.ok()) << link.status();
    if (link.ok()) link_ = *std::move(link);
  }
  ~TestNode() {
    workers_.clear();
    link_.reset();
    (void)RemoveAll(folder_);
  }

  // Blocks until an order of that kind has come; others are left for later.
  template <typename T>
  T Await() {
    while (true) {
      for (auto it = orders_.begin(); it != orders_.end(); ++it) {
        if (!std::holds_alternative<T>(*it)) continue;
        T found = std::get<T>(std::move(*it));
        orders_.erase(it);
        return found;
      }
      pollfd fd = {link_->order_fd(), POLLIN, 0};
      // Beats are what an agent that is away comes back with.
      if (::poll(&fd, 1, 50) == 0) link_->Beat();
      for (Link::Order& order : link_->TakeOrders()) orders_.push_back(std::move(order));
    }
  }
  std::vector<rendezvous::Slot> Slots(int num_workers = 2) const {
    std::vector<rendezvous::Slot> slots;
    for (int i = 0; i < num_workers; ++i) {
      slots.push_back({launcher::MemberName(name_, i), name_, i, 2, {i}});
    }
    return slots;
  }
  WorkerClient& AddWorker(int i) {
    launcher::WorkerFlags flags{folder_, socket(), token(i), i};
    flags.node = name_;
    flags.incarnation = ++num_started_;
    auto client = WorkerClient::Connect({flags, [](const std::string& reason) {}});
    EXPECT_TRUE(client.ok()) << client.status();
    workers_.push_back(*std::move(client));
    return *workers_.back();
  }

  Link& link() { return *link_; }
  void KillAgent() { link_.reset(); }
  WorkerClient& worker(size_t i) { return *workers_[i]; }
  void EndWorkers() { workers_.clear(); }
  std::string socket() const { return folder_ + "/s"; }
  // The file with what worker `i` has to show.
  std::string token(int i) { return *link_->AdmitWorker(Slots(i + 1)[static_cast<size_t>(i)]); }
  const std::string& name() const { return name_; }

 private:
  const std::string name_;
  const std::string folder_;
  std::unique_ptr<Link> link_;
  std::deque<Link::Order> orders_;
  std::vector<std::unique_ptr<WorkerClient>> workers_;
  int64_t num_started_ = 0;
};

class AgentsTest : public testing::Test {
 protected:
  using News = rendezvous::NodeNews;

  AgentsTest() : folder_(MakeFolder()) {
    options_.socket_path = folder_ + "/s";
    options_.token_path = folder_ + "/token";
    options_.timeouts = rendezvous::Timeouts::FromDetect(absl::Seconds(60));
    rendezvous::NetworkOptions& network = options_.network.emplace();
    options_.job = "job-1";
    options_.term = 3;
    network.nodes = {"n0", "n1"};
    network.addresses = {"127.0.0.1", "::1"};
    network.setup.run_dir = "/run";
    network.setup.num_workers = 2;
    network.setup.heartbeat_interval = absl::Seconds(1);
    // Agents dial again after a third of it; a handshake takes long where a sanitizer looks on.
    network.setup.detect_timeout = options_.timeouts.detect;
  }
  ~AgentsTest() override {
    nodes_.clear();
    service_.reset();
    (void)RemoveAll(folder_);
  }

  void StartService() {
    auto service = StartServer(options_);
    ASSERT_TRUE(service.ok()) << service.status();
    service_ = *std::move(service);
  }
  virtual std::string Invite(const std::string& node) { return *service_->Invite(node); }
  TestNode& AddNode(const std::string& name) {
    nodes_.push_back(std::make_unique<TestNode>(name, Invite(name)));
    return *nodes_.back();
  }
  // A job of these nodes that runs.
  void StartJob(const std::vector<std::string>& names) {
    StartService();
    rendezvous::Expect expect;
    for (const std::string& name : names) {
      TestNode& node = AddNode(name);
      node.Await<rendezvous::NodeSetup>();
      node.link().TellReady({node.Slots()});
      for (rendezvous::Slot& slot : AwaitNews<rendezvous::NodeOffer>(name).slots) {
        expect.slots.push_back(std::move(slot));
      }
    }
    service_->Submit(expect);
    for (const auto& node : nodes_) {
      for (int i = 0; i < 2; ++i) node->AddWorker(i);
    }
    service_->Submit(rendezvous::Recorded{AwaitNotice(rendezvous::Notice::Kind::kPrepared).generation});
    for (const auto& node : nodes_) {
      for (size_t i = 0; i < 2; ++i) ASSERT_TRUE(node->worker(i).Join().ok());
    }
  }
  KeyValueStore& store(size_t node, size_t worker) { return nodes_[node]->worker(worker).store(); }

  // Block until such news, or such a notice, has come; other news is left for later.
  template <typename T>
  T AwaitNews(const std::string& node) {
    while (true) {
      for (auto it = news_.begin(); it != news_.end(); ++it) {
        if (it->node != node || !std::holds_alternative<T>(it->what)) continue;
        T found = std::get<T>(std::move(it->what));
        news_.erase(it);
        return found;
      }
      AwaitSomething();
      for (News& news : service_->TakeNodeNews()) news_.push_back(std::move(news));
    }
  }
  rendezvous::Notice AwaitNotice(rendezvous::Notice::Kind kind) {
    while (true) {
      for (const rendezvous::Notice& notice : service_->TakeNotices()) {
        if (notice.kind == kind) return notice;
      }
      // News comes over the same descriptor, and is no notice.
      for (News& news : service_->TakeNodeNews()) news_.push_back(std::move(news));
      AwaitSomething();
    }
  }

  const std::string folder_;
  rendezvous::ServiceOptions options_;
  std::unique_ptr<rendezvous::RendezvousService> service_;
  std::vector<std::unique_ptr<TestNode>> nodes_;
  std::deque<News> news_;

 private:
  void AwaitSomething() {
    pollfd fd = {service_->notice_fd(), POLLIN, 0};
    // Whoever took the notices has taken the signal of the news along.
    ::poll(&fd, 1, 50);
  }
};

}  // namespace trainctl::rpc
