#include "rpc/agent_client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/client_callback.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/network.h"
#include "base/secret_file.h"
#include "base/status.h"
#include "launcher/worker_contract.h"
#include "proto/trainctl.grpc.pb.h"
#include "rpc/agent_hub.h"
#include "rpc/grpc_log.h"
#include "rpc/node_wire.h"
#include "rpc/tls.h"
#include "rpc/token.h"
#include "rpc/wire.h"
#include "rpc/worker_stream.h"

namespace trainctl::rpc {
namespace {

using rendezvous::AgentLink;

constexpr absl::Duration kAttemptTimeout = absl::Seconds(5);
constexpr absl::Duration kLastWords = absl::Seconds(1);
constexpr size_t kMaxQueuedLineBytes = 1 << 20;

struct Entry {
  std::string endpoint;
  std::shared_ptr<grpc::Channel> channel;
};

// Trades the token for a certificate, with whichever address answers.
absl::StatusOr<Entry> Enroll(const Invitation& invitation, absl::Duration timeout) {
  TRAINCTL_ASSIGN_OR_RETURN(const KeyAndRequest mine, MakeKeyAndRequest());
  Credential credential{.ca_pem = invitation.ca_pem};
  v1::EnrollRequest request;
  request.set_node(invitation.node);
  request.set_token(invitation.token);
  request.set_certificate_request(mine.csr_pem);
  const absl::Time end = absl::Now() + timeout;
  absl::Status last = absl::UnavailableError("no address");
  do {
    for (const std::string& endpoint : invitation.endpoints) {
      TRAINCTL_ASSIGN_OR_RETURN(const auto anonymous, MakeClientCredentials({.ca_pem = invitation.ca_pem}));
      TRAINCTL_ASSIGN_OR_RETURN(const auto channel, MakeTlsChannel(endpoint, anonymous));
      grpc::ClientContext context;
      context.set_deadline(absl::ToChronoTime(std::min(end, absl::Now() + kAttemptTimeout)));
      context.set_wait_for_ready(true);
      v1::EnrollReply reply;
      last = FromGrpc(v1::Agents::NewStub(channel)->Enroll(&context, request, &reply),
                      absl::StrCat("the launcher at ", endpoint));
      if (last.ok()) {
        credential.key_pem = mine.key_pem;
        credential.cert_pem = reply.certificate();
        TRAINCTL_ASSIGN_OR_RETURN(const auto own, MakeClientCredentials(credential));
        Entry entry{endpoint, nullptr};
        TRAINCTL_ASSIGN_OR_RETURN(entry.channel, MakeTlsChannel(endpoint, own));
        return entry;
      }
      if (absl::IsPermissionDenied(last) || absl::IsInvalidArgument(last)) return last;
    }
  } while (absl::Now() < end);
  return absl::UnavailableError(
      absl::StrCat("no address of the launcher answers within ", absl::FormatDuration(timeout), " (",
                   absl::StrJoin(invitation.endpoints, ", "), "): ", last.message()));
}

// A store call of a worker, handed on to the coordinator. Both ends delete it together.
class StoreProxy : public grpc::ServerUnaryReactor {
 public:
  StoreProxy(v1::Agents::Stub* stub, std::chrono::system_clock::time_point deadline,
             const v1::StoreRequest* request, v1::StoreReply* reply) {
    context_.set_deadline(deadline);
    stub->async()->Store(&context_, request, reply, [this](grpc::Status status) { Finish(status); });
  }
  void OnCancel() override { context_.TryCancel(); }
  void OnDone() override { delete this; }

 private:
  grpc::ClientContext context_;
};

class AgentClient : public AgentLink,
                    private v1::Trainctl::CallbackService,
                    private WorkerStream::Handler,
                    private grpc::ClientBidiReactor<v1::AgentMessage, v1::AgentOrder> {
 public:
  AgentClient(Invitation invitation, Entry entry, AgentClientOptions options)
      : invitation_(std::move(invitation)),
        options_(std::move(options)),
        endpoint_(std::move(entry.endpoint)),
        channel_(std::move(entry.channel)),
        stub_(v1::Agents::NewStub(channel_)) {}

  ~AgentClient() override {
    {
      std::lock_guard lock(mutex_);
      is_closing_ = true;
      EndHeard();
    }
    if (worker_server_ != nullptr) {
      worker_server_->Shutdown(std::chrono::system_clock::now());
      worker_server_->Wait();
      ::unlink(options_.socket_path.c_str());
    }
    if (is_started_) {
      std::unique_lock lock(mutex_);
      const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(kLastWords);
      if (changed_.wait_until(lock, deadline, [&] { return is_ended_ || outgoing_.empty(); }) && !is_ended_) {
        // The coordinator ends the stream when it has read all of it. To cancel could overtake the last
        // words.
        StartWritesDone();
        changed_.wait_until(lock, deadline, [&] { return is_done_; });
      }
      lock.unlock();
      context_.TryCancel();
      lock.lock();
      changed_.wait(lock, [&] { return is_done_; });
    }
    if (order_fd_ >= 0) ::close(order_fd_);
  }

  absl::Status Start() {
    order_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (order_fd_ < 0) return ErrnoError("create", "an event descriptor", errno);
    std::lock_guard lock(mutex_);  // what workers say waits until the stream is there, and the hello in it
    TRAINCTL_RETURN_IF_ERROR(ServeWorkers());
    stub_->async()->Node(&context_, this);
    v1::AgentMessage hello;
    hello.set_protocol_version(kProtocolVersion);
    hello.mutable_hello()->set_pid(::getpid());
    Enqueue(std::move(hello));
    is_started_ = true;
    AddHold();  // writes come from all threads; until nothing can be written any more
    StartRead(&incoming_);
    StartCall();
    return absl::OkStatus();
  }

  // ---- AgentLink --------------------------------------------------------------------------------
  std::vector<Order> TakeOrders() override {
    std::lock_guard lock(mutex_);
    uint64_t count = 0;
    (void)!::read(order_fd_, &count, sizeof(count));
    return std::exchange(orders_, {});
  }
  int order_fd() const override { return order_fd_; }

  void TellReady(const std::vector<rendezvous::Slot>& slots) override {
    v1::AgentMessage message;
    *message.mutable_ready() = ToWire(slots);
    Send(std::move(message));
  }
  void TellNotReady(const std::string& why) override {
    v1::AgentMessage message;
    message.mutable_not_ready()->set_why(WireText(why));
    Send(std::move(message));
  }
  void Tell(const rendezvous::NodeEvent& event) override {
    v1::AgentMessage message;
    *message.mutable_report() = ToWire(event);
    Send(std::move(message));
  }
  void AskToStop(const std::string& reason) override {
    v1::AgentMessage message;
    message.mutable_stop()->set_reason(WireText(reason));
    Send(std::move(message));
  }
  void Beat() override {
    v1::AgentMessage message;
    message.mutable_beat();
    std::lock_guard lock(mutex_);
    if (num_dropped_ > 0 && queued_line_bytes_ == 0) {
      message.mutable_lines()->set_num_dropped(std::exchange(num_dropped_, 0));
    }
    Enqueue(std::move(message));
  }

  void ShowLine(int rank, absl::string_view line) override {
    std::lock_guard lock(mutex_);
    if (queued_line_bytes_ + line.size() > kMaxQueuedLineBytes) {
      ++num_dropped_;
      return;
    }
    v1::AgentMessage message;
    v1::WorkerLines::Line* const added = message.mutable_lines()->add_lines();
    added->set_rank(rank);
    added->set_text(WireText(line));
    message.mutable_lines()->set_num_dropped(std::exchange(num_dropped_, 0));
    queued_line_bytes_ += line.size();
    Enqueue(std::move(message));
  }

  absl::Duration silence() const override {
    return clock_.Monotonic() - absl::Milliseconds(last_heard_ms_.load());
  }

  std::string coordinator_host() const override {
    const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(endpoint_);
    return endpoint.ok() ? endpoint->host : "";
  }

 private:
  // ---- the stream to the coordinator ------------------------------------------------------------
  void Send(v1::AgentMessage message) {
    std::lock_guard lock(mutex_);
    Enqueue(std::move(message));
  }

  // Requires mutex_. Returns its number.
  uint64_t Enqueue(v1::AgentMessage message) {
    message.set_job(invitation_.job);
    message.set_seq(++seq_);
    if (is_ended_) return seq_;
    outgoing_.push_back(std::move(message));
    if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
    return seq_;
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    for (const v1::WorkerLines::Line& line : outgoing_.front().lines().lines()) {
      queued_line_bytes_ -= std::min(queued_line_bytes_, line.text().size());
    }
    outgoing_.pop_front();
    if (!ok || is_ended_) outgoing_.clear();  // OnDone tells why
    if (!outgoing_.empty()) StartWrite(&outgoing_.front());
    if (outgoing_.empty()) changed_.notify_all();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      {
        std::lock_guard lock(mutex_);
        is_ended_ = true;
        changed_.notify_all();
      }
      return RemoveHold();
    }
    last_heard_ms_ = absl::ToInt64Milliseconds(clock_.Monotonic());
    Receive(incoming_);
    StartRead(&incoming_);
  }

  void OnDone(const grpc::Status& status) override {
    std::lock_guard lock(mutex_);
    is_done_ = true;
    outgoing_.clear();
    EndHeard();
    for (const auto& [stream, state] : sessions_) stream->End(Unheard());
    Give(Lost{status.error_message().empty() ? "the launcher is gone" : status.error_message()});
    changed_.notify_all();
  }

  // Requires mutex_.
  void Give(Order order) {
    orders_.push_back(std::move(order));
    const uint64_t one = 1;
    (void)!::write(order_fd_, &one, sizeof(one));
  }

  void Receive(const v1::AgentOrder& order) {
    std::lock_guard lock(mutex_);
    if (order.acked() > acked_) {
      acked_ = order.acked();
      EndHeard();
    }
    switch (order.body_case()) {
      case v1::AgentOrder::kSetup:
        Give(FromWire(order.setup()));
        return;
      case v1::AgentOrder::kOrder: {
        absl::StatusOr<rendezvous::NodeCommand> command = FromWire(order.order(), invitation_.node);
        if (command.ok()) {
          Give(*std::move(command));
        } else {
          Give(Lost{std::string(command.status().message())});
        }
        return;
      }
      case v1::AgentOrder::kMember:
        for (const auto& [stream, state] : sessions_) {
          if (state.member != order.member().member() || state.incarnation != order.member().incarnation())
            continue;
          stream->SendTo(state.member, state.incarnation, order.member().message());
        }
        return;
      case v1::AgentOrder::kRefusal:
        Give(Lost{order.refusal().reason()});
        return;
      case v1::AgentOrder::kFarewell:
        Give(Dismissed{});
        return;
      case v1::AgentOrder::BODY_NOT_SET:
        return;
    }
  }

  // ---- workers ----------------------------------------------------------------------------------
  struct Talk {  // of a worker
    std::string member;
    int64_t incarnation = 0;
    uint64_t last_seq = 0;   // of what was handed on for it
    bool is_closed = false;  // it says no more; it waits until the coordinator has heard its last words
  };

  absl::Status ServeWorkers() {
    if (options_.socket_path.size() > 107) {
      return EnvironmentError(
          absl::StrCat("the path of the control socket is too long: ", options_.socket_path));
    }
    TRAINCTL_ASSIGN_OR_RETURN(const std::string token, MakeToken());
    TRAINCTL_RETURN_IF_ERROR(WriteSecretFile(options_.token_path, token));
    guard_.set_token(token);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + options_.socket_path, grpc::InsecureServerCredentials());
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.SetMaxSendMessageSize(kMaxMessageBytes);
    builder.RegisterService(static_cast<v1::Trainctl::CallbackService*>(this));
    worker_server_ = builder.BuildAndStart();
    if (worker_server_ == nullptr || ::chmod(options_.socket_path.c_str(), 0600) != 0) {
      return EnvironmentError(absl::StrCat("cannot listen on the control socket ", options_.socket_path));
    }
    return absl::OkStatus();
  }

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Session(
      grpc::CallbackServerContext* context) override {
    const grpc::Status allowed = guard_.Check(*context);
    return allowed.ok() ? new WorkerStream(this) : new WorkerStream(allowed);
  }

  grpc::ServerUnaryReactor* Store(grpc::CallbackServerContext* context, const v1::StoreRequest* request,
                                  v1::StoreReply* reply) override {
    const grpc::Status allowed = guard_.Check(*context);
    if (!allowed.ok()) return FinishNow(context, allowed);
    return new StoreProxy(stub_.get(), context->deadline(), request, reply);
  }

  void OnMessage(WorkerStream* stream, const v1::WorkerMessage& message) override {
    std::lock_guard lock(mutex_);
    if (!absl::StartsWith(message.member(), launcher::MemberPrefix(invitation_.node))) {
      sessions_.erase(stream);  // nothing of it is waited for
      return stream->End({grpc::StatusCode::PERMISSION_DENIED, "this is no worker of this node"});
    }
    v1::AgentMessage handed_on;
    *handed_on.mutable_worker() = message;
    Talk& session = sessions_[stream];
    session.member = message.member();
    session.incarnation = message.incarnation();
    session.last_seq = Enqueue(std::move(handed_on));
    if (is_done_) stream->End(Unheard());
  }

  void OnClosed(WorkerStream* stream) override {
    std::lock_guard lock(mutex_);
    sessions_[stream].is_closed = true;
    EndHeard();
  }

  // Requires mutex_. Ends the sessions of workers that say no more, once the coordinator has heard them or
  // will not any more.
  void EndHeard() {
    for (auto it = sessions_.begin(); it != sessions_.end();) {
      const bool is_heard = it->second.last_seq <= acked_;
      if (!it->second.is_closed || !(is_heard || is_done_ || is_closing_)) {
        ++it;
        continue;
      }
      it->first->End(is_heard ? grpc::Status::OK : Unheard());
      it = sessions_.erase(it);
    }
  }

  static grpc::Status Unheard() { return {grpc::StatusCode::UNAVAILABLE, "the launcher is gone"}; }

  const Invitation invitation_;
  const AgentClientOptions options_;
  const std::string endpoint_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Agents::Stub> stub_;
  const RealClock clock_;
  std::atomic<int64_t> last_heard_ms_ = absl::ToInt64Milliseconds(clock_.Monotonic());
  TokenGuard guard_;
  int order_fd_ = -1;
  grpc::ClientContext context_;
  v1::AgentOrder incoming_;
  bool is_started_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<v1::AgentMessage> outgoing_;  // the first is being written
  uint64_t seq_ = 0;
  uint64_t acked_ = 0;
  bool is_ended_ = false;    // the stream: nothing can be written any more
  bool is_done_ = false;     // and nothing of it is left
  bool is_closing_ = false;  // this client
  size_t queued_line_bytes_ = 0;
  int64_t num_dropped_ = 0;
  std::vector<Order> orders_;
  std::map<WorkerStream*, Talk> sessions_;
  std::unique_ptr<grpc::Server> worker_server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AgentLink>> ConnectAgent(const AgentClientOptions& options) {
  QuietGrpc();
  TRAINCTL_ASSIGN_OR_RETURN(Invitation invitation, ReadInvitation(options.invitation));
  TRAINCTL_ASSIGN_OR_RETURN(Entry entry, Enroll(invitation, options.timeout));
  auto client = std::make_unique<AgentClient>(std::move(invitation), std::move(entry), options);
  TRAINCTL_RETURN_IF_ERROR(client->Start());
  return client;
}

}  // namespace trainctl::rpc
