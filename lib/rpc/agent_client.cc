#include "rpc/agent_client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

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
#include "rpc/channel.h"
#include "rpc/grpc_log.h"
#include "rpc/job_authority.h"
#include "rpc/job_secret.h"
#include "rpc/node_wire.h"
#include "rpc/numbered.h"
#include "rpc/socket_server.h"
#include "rpc/tls.h"
#include "rpc/token.h"
#include "rpc/token_guard.h"
#include "rpc/wire.h"
#include "rpc/worker_stream.h"

namespace trainctl::rpc {
namespace {

using rendezvous::AgentLink;

constexpr absl::Duration kAttemptTimeout = absl::Seconds(5);
constexpr absl::Duration kLookUpPause = absl::Milliseconds(500);
constexpr absl::Duration kLastWords = absl::Seconds(1);
constexpr size_t kMaxQueuedLineBytes = 1 << 20;
constexpr absl::Duration kRedialInterval = absl::Milliseconds(100);

struct Entry {
  std::string endpoint;  // an address
  v1::Header header;     // of its messages
  std::shared_ptr<grpc::ChannelCredentials> credentials;
};

// With names looked up. A name that is not known yet may be in a moment.
absl::StatusOr<std::vector<std::string>> LookUp(const std::string& endpoint) {
  TRAINCTL_ASSIGN_OR_RETURN(const Endpoint parsed, ParseEndpoint(endpoint));
  const absl::StatusOr<std::vector<std::string>> addresses = AddressesOf(parsed.host);
  if (!addresses.ok()) return absl::UnavailableError(addresses.status().message());
  std::vector<std::string> endpoints;
  for (const std::string& address : *addresses) endpoints.push_back(FormatEndpoint(address, parsed.port));
  return endpoints;
}

absl::StatusOr<v1::EnrollRequest> MakeRequest(const Invitation& invitation, const KeyAndRequest& mine) {
  v1::EnrollRequest request;
  request.set_node(invitation.node);
  request.set_certificate_request(mine.csr_pem);
  if (invitation.node_key.empty()) {
    request.set_token(invitation.token);
    return request;
  }
  TRAINCTL_ASSIGN_OR_RETURN(const std::string nonce, RandomHex(16));
  request.set_nonce(nonce);
  request.set_token(EnrolmentProof(invitation.node_key, invitation.node, nonce, mine.csr_pem));
  return request;
}

// Asks there for a certificate.
absl::StatusOr<Entry> EnrollAt(const std::string& endpoint, const Invitation& invitation,
                               const KeyAndRequest& mine, const v1::EnrollRequest& request,
                               absl::Time deadline) {
  TRAINCTL_ASSIGN_OR_RETURN(const auto credentials, MakeClientCredentials(invitation.bootstrap));
  TRAINCTL_ASSIGN_OR_RETURN(const auto channel, MakeTlsChannel(endpoint, credentials));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(deadline));
  context.set_wait_for_ready(true);
  v1::EnrollReply reply;
  TRAINCTL_RETURN_IF_ERROR(FromGrpc(v1::Agents::NewStub(channel)->Enroll(&context, request, &reply),
                                    absl::StrCat("the launcher at ", endpoint)));
  if (!invitation.job.empty() && reply.header().job() != invitation.job) {
    return absl::PermissionDeniedError(absl::StrCat("the launcher at ", endpoint, " is of another job"));
  }
  Entry entry{endpoint, reply.header(), nullptr};
  TRAINCTL_ASSIGN_OR_RETURN(entry.credentials, MakeClientCredentials({mine.key_pem, reply.certificate(),
                                                                      invitation.bootstrap.ca_pem}));
  return entry;
}

// Trades the token for a certificate, with whichever address answers.
absl::StatusOr<Entry> Enroll(const AgentClientOptions& options) {
  const Invitation& invitation = options.invitation;
  TRAINCTL_ASSIGN_OR_RETURN(const KeyAndRequest mine, MakeKeyAndRequest());
  TRAINCTL_ASSIGN_OR_RETURN(const v1::EnrollRequest request, MakeRequest(invitation, mine));
  const absl::Time end = absl::Now() + options.timeout;
  absl::Status last = absl::UnavailableError("no address");
  do {
    for (const std::string& endpoint : invitation.endpoints) {
      const absl::StatusOr<std::vector<std::string>> addresses = LookUp(endpoint);
      if (!addresses.ok()) {
        last = addresses.status();
        if (!absl::IsUnavailable(last)) return last;
        absl::SleepFor(kLookUpPause);
        continue;
      }
      for (const std::string& address : *addresses) {
        absl::StatusOr<Entry> entry =
            EnrollAt(address, invitation, mine, request, std::min(end, absl::Now() + kAttemptTimeout));
        if (entry.ok()) return entry;
        last = entry.status();
        if (absl::IsPermissionDenied(last) || absl::IsInvalidArgument(last)) return last;
      }
    }
    if (options.is_cancelled && options.is_cancelled()) {
      return absl::CancelledError("stopped before it had reached the launcher");
    }
  } while (absl::Now() < end);
  return absl::UnavailableError(
      absl::StrCat("no address of the launcher answers within ", absl::FormatDuration(options.timeout), " (",
                   absl::StrJoin(invitation.endpoints, ", "), "): ", last.message()));
}

class AgentClient : public AgentLink, private v1::Trainctl::CallbackService, private WorkerStream::Handler {
 public:
  AgentClient(AgentClientOptions options, Entry entry)
      : options_(std::move(options)), entry_(std::move(entry)) {}

  ~AgentClient() override {
    {
      std::lock_guard lock(mutex_);
      is_closing_ = true;
      EndHeard();
    }
    worker_server_.reset();
    SayLastWords();
    if (order_fd_ >= 0) ::close(order_fd_);
  }

  absl::Status Start() {
    order_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (order_fd_ < 0) return ErrnoError("create", "an event descriptor", errno);
    std::lock_guard lock(mutex_);
    TRAINCTL_ASSIGN_OR_RETURN(
        worker_server_, SocketServer::Start(options_.socket_path,
                                            static_cast<v1::Trainctl::CallbackService*>(this), &refusals_));
    return Dial();
  }

  // ---- AgentLink --------------------------------------------------------------------------------
  std::vector<Order> TakeOrders() override {
    std::lock_guard lock(mutex_);
    uint64_t count = 0;
    (void)!::read(order_fd_, &count, sizeof(count));
    return std::exchange(orders_, {});
  }
  int order_fd() const override { return order_fd_; }

  absl::StatusOr<std::string> AdmitWorker(const rendezvous::Slot& slot) override {
    TRAINCTL_RETURN_IF_ERROR(worker_server_->Restore());
    std::string path = WorkerTokenPath(options_.token_path, slot);
    TRAINCTL_RETURN_IF_ERROR(guard_.Admit({Role::kWorker, slot.member}, path));
    return path;
  }

  void TellReady(const rendezvous::NodeOffer& offer) override {
    v1::AgentMessage message;
    *message.mutable_ready() = ToWire(offer, absl::Now());
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
    const bool is_of_the_moment = std::holds_alternative<rendezvous::BoardsSeen>(event.what);
    std::lock_guard lock(mutex_);
    is_of_the_moment ? AddOfTheMoment(std::move(message)) : (void)Add(std::move(message));
  }
  void AskToStop(const std::string& reason) override {
    v1::AgentMessage message;
    message.mutable_stop()->set_reason(WireText(reason));
    Send(std::move(message));
  }

  void Beat() override {
    std::unique_lock lock(mutex_);
    if (num_dropped_ > 0) {
      v1::AgentMessage message;
      message.mutable_lines()->set_num_dropped(std::exchange(num_dropped_, 0));
      Add(std::move(message));
    }
    v1::AgentMessage message;
    message.mutable_beat();
    AddOfTheMoment(std::move(message));
    if (is_lost_ || is_dismissed_ || is_closing_) return;
    if (call_ != nullptr) {
      // A connection that is dead tells nobody; over a new one the packets may find their way.
      const bool is_answered = last_heard() > dialled_at_;
      const absl::Duration patience = is_answered ? redial_after_ : answer_timeout_;
      if (clock_.Monotonic() - std::max(dialled_at_, last_heard()) > patience) call_->Cancel();
      return;
    }
    // However often it beats: the launcher has a limit for the connections of one address.
    if (clock_.Monotonic() - tried_at_ < kRedialInterval) return;
    tried_at_ = clock_.Monotonic();
    lock.unlock();
    const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(entry_.endpoint);
    const PortState port = endpoint.ok() ? LookAtPort(*endpoint, kProbeTimeout) : PortState::kSilent;
    lock.lock();
    if (call_ != nullptr) return;  // another beat was faster
    if (port == PortState::kClosed) {
      LoseCoordinator("the launcher has ended: nothing listens at its port");
    } else if (port == PortState::kOpen) {
      (void)Dial();
    }
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
    queued_line_bytes_ += added->text().size();
    Add(std::move(message));
  }

  absl::Duration silence() const override { return clock_.Monotonic() - last_heard(); }

  std::string coordinator_host() const override {
    const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(entry_.endpoint);
    return endpoint.ok() ? endpoint->host : "";
  }

 private:
  // One stream to the coordinator.
  class Call : public grpc::ClientBidiReactor<v1::AgentMessage, v1::AgentOrder> {
   public:
    Call(AgentClient* client, const std::shared_ptr<grpc::Channel>& channel)
        : client_(client), stub_(v1::Agents::NewStub(channel)) {}

    // Before anything else, and with the client's lock held, as Write.
    void Begin(const v1::AgentMessage& hello) {
      stub_->async()->Node(&context_, this);
      AddHold();  // writes come from all threads; until nothing can be written any more
      StartRead(&incoming_);
      Write(hello);
      StartCall();
    }
    bool can_write() const { return is_open_ && !is_writing_; }
    void Write(const v1::AgentMessage& message) {
      outgoing_ = message;
      is_writing_ = true;
      StartWrite(&outgoing_);
    }
    void Cancel() { context_.TryCancel(); }

    void OnReadDone(bool ok) override {
      if (ok) {
        client_->Receive(incoming_);
        return StartRead(&incoming_);
      }
      {
        std::lock_guard lock(client_->mutex_);
        is_open_ = false;
      }
      RemoveHold();
    }
    void OnWriteDone(bool ok) override {
      std::lock_guard lock(client_->mutex_);
      is_writing_ = false;
      if (ok) client_->Pump();
    }
    void OnDone(const grpc::Status& status) override { client_->OnCallDone(status); }

   private:
    AgentClient* const client_;
    const std::unique_ptr<v1::Agents::Stub> stub_;
    grpc::ClientContext context_;
    v1::AgentOrder incoming_;
    v1::AgentMessage outgoing_;
    bool is_open_ = true;
    bool is_writing_ = false;
  };

  // ---- the streams to the coordinator -----------------------------------------------------------
  // Requires mutex_, and no call.
  absl::Status Dial() {
    TRAINCTL_ASSIGN_OR_RETURN(const auto channel, MakeTlsChannel(entry_.endpoint, entry_.credentials));
    v1::AgentMessage hello;
    *hello.mutable_header() = entry_.header;
    hello.set_protocol_version(kProtocolVersion);
    hello.set_acked(inbox_.last());
    hello.mutable_hello()->set_pid(::getpid());
    ended_call_.reset();
    outbox_.Connect();
    dialled_at_ = clock_.Monotonic();
    call_ = std::make_unique<Call>(this, channel);
    call_->Begin(hello);
    return absl::OkStatus();
  }

  void OnCallDone(const grpc::Status& status) {
    std::lock_guard lock(mutex_);
    ended_call_ = std::move(call_);
    outbox_.Disconnect();
    if (IsRefusal(status)) LoseCoordinator(status.error_message());
    changed_.notify_all();
  }

  // Requires mutex_. For good.
  void LoseCoordinator(const std::string& why) {
    if (std::exchange(is_lost_, true)) return;
    EndHeard();
    for (const auto& [stream, talk] : sessions_) stream->End(Unheard());
    for (const auto& [id, call] : store_calls_) call->Finish(Unheard());
    store_calls_.clear();
    Give(Lost{why});
    changed_.notify_all();
  }

  // The coordinator shall know that this agent does not come back.
  void SayLastWords() {
    std::unique_lock lock(mutex_);
    v1::AgentMessage leaving;
    leaving.mutable_leaving();
    Add(std::move(leaving));
    const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(kLastWords);
    changed_.wait_until(lock, deadline, [&] { return call_ == nullptr || outbox_.is_all_acked(); });
    if (call_ != nullptr) call_->Cancel();
    changed_.wait(lock, [&] { return call_ == nullptr; });
  }

  void Send(v1::AgentMessage message) {
    std::lock_guard lock(mutex_);
    Add(std::move(message));
  }

  // Requires mutex_. Returns its number.
  uint64_t Add(v1::AgentMessage message) {
    *message.mutable_header() = entry_.header;
    const uint64_t seq = outbox_.Add(std::move(message));
    Pump();
    return seq;
  }

  // Requires mutex_.
  void AddOfTheMoment(v1::AgentMessage message) {
    *message.mutable_header() = entry_.header;
    outbox_.AddOfTheMoment(std::move(message));
    Pump();
  }

  // Requires mutex_.
  void Pump() {
    if (call_ == nullptr || !call_->can_write()) return;
    const v1::AgentMessage* const next = outbox_.Next();
    if (next == nullptr) return;
    v1::AgentMessage message = *next;
    message.set_acked(inbox_.last());
    call_->Write(message);
  }

  // Requires mutex_.
  void Give(Order order) {
    orders_.push_back(std::move(order));
    const uint64_t one = 1;
    (void)!::write(order_fd_, &one, sizeof(one));
  }

  void Receive(const v1::AgentOrder& order) {
    last_heard_ms_ = absl::ToInt64Milliseconds(clock_.Monotonic());
    std::lock_guard lock(mutex_);
    if (is_lost_) return;
    if (const absl::Status known = CheckHeader(order.header(), LaunchOf(entry_.header)); !known.ok()) {
      return LoseCoordinator(std::string(known.message()));
    }
    if (order.header().incarnation() != entry_.header.incarnation()) {
      return LoseCoordinator("the launcher speaks to another agent of this node");
    }
    outbox_.Acknowledge(order.acked(), [&](const v1::AgentMessage& heard) {
      for (const v1::WorkerLines::Line& line : heard.lines().lines()) {
        queued_line_bytes_ -= line.text().size();
      }
    });
    EndHeard();
    if (outbox_.is_all_acked()) changed_.notify_all();
    switch (inbox_.Take(order.seq())) {
      case Inbox::Verdict::kRepeated:
        return;
      case Inbox::Verdict::kGap:
        return LoseCoordinator("the launcher left out an order");
      case Inbox::Verdict::kNew:
        return CarryOut(order);
    }
  }

  // Requires mutex_.
  void CarryOut(const v1::AgentOrder& order) {
    switch (order.body_case()) {
      case v1::AgentOrder::kSetup: {
        const rendezvous::NodeSetup setup = FromWire(order.setup());
        if (setup.detect_timeout > absl::ZeroDuration()) {
          redial_after_ = rendezvous::Timeouts::FromDetect(setup.detect_timeout).redial;
          answer_timeout_ = redial_after_ / 2;
        }
        return Give(setup);
      }
      case v1::AgentOrder::kOrder: {
        absl::StatusOr<rendezvous::NodeCommand> command = FromWire(order.order(), options_.invitation.node);
        if (command.ok()) return Give(*std::move(command));
        return Give(Lost{std::string(command.status().message())});
      }
      case v1::AgentOrder::kMember:
        for (const auto& [stream, talk] : sessions_) {
          if (talk.member != order.member().member() || talk.incarnation != order.member().incarnation())
            continue;
          stream->SendTo(talk.member, talk.incarnation, order.member().message());
        }
        return;
      case v1::AgentOrder::kStore:
        if (const auto it = store_calls_.find(order.store().id()); it != store_calls_.end()) {
          StoreCall* const call = it->second;
          store_calls_.erase(it);
          call->Answer(order.store());
        }
        return;
      case v1::AgentOrder::kRefusal:
        return Give(Lost{order.refusal().reason()});
      case v1::AgentOrder::kFarewell:
        is_dismissed_ = true;
        return Give(Dismissed{order.farewell().is_finished()});
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

  // A store call of a worker, handed on to the coordinator.
  class StoreCall : public grpc::ServerUnaryReactor {
   public:
    StoreCall(AgentClient* client, uint64_t id, v1::StoreReply* reply)
        : client_(client), id_(id), reply_(reply) {}
    void Answer(const v1::StoreAnswer& answer) {
      *reply_ = answer.reply();
      Finish({static_cast<grpc::StatusCode>(answer.status().code()), answer.status().message()});
    }
    void OnCancel() override { client_->CancelStore(this, id_); }
    void OnDone() override { delete this; }

   private:
    AgentClient* const client_;
    const uint64_t id_;
    v1::StoreReply* const reply_;
  };

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Session(
      grpc::CallbackServerContext* context) override {
    std::string member;
    const grpc::Status allowed = guard_.CheckWorker(*context, &member);
    return allowed.ok() ? new WorkerStream(this, std::move(member)) : new WorkerStream(allowed);
  }

  grpc::ServerUnaryReactor* Store(grpc::CallbackServerContext* context, const v1::StoreRequest* request,
                                  v1::StoreReply* reply) override {
    std::string member;
    const grpc::Status allowed = guard_.CheckWorker(*context, &member);
    if (!allowed.ok()) return FinishNow(context, allowed);
    std::lock_guard lock(mutex_);
    if (is_lost_ || is_closing_) return FinishNow(context, Unheard());
    const uint64_t id = ++last_store_call_;
    auto* const call = new StoreCall(this, id, reply);
    store_calls_[id] = call;
    v1::AgentMessage message;
    message.mutable_store()->set_id(id);
    *message.mutable_store()->mutable_request() = *request;
    Add(std::move(message));
    return call;
  }

  void CancelStore(StoreCall* call, uint64_t id) {
    std::lock_guard lock(mutex_);
    if (store_calls_.erase(id) == 0) return;  // it is answered
    v1::AgentMessage message;
    message.set_store_cancel(id);
    Add(std::move(message));
    call->Finish(grpc::Status::CANCELLED);
  }

  void OnMessage(WorkerStream* stream, const v1::WorkerMessage& message) override {
    if (const grpc::Status known = guard_.CheckLaunch(message.header()); !known.ok()) {
      return stream->End(known);
    }
    std::lock_guard lock(mutex_);
    v1::AgentMessage handed_on;
    *handed_on.mutable_worker() = message;
    Talk& talk = sessions_[stream];
    talk.member = message.member();
    talk.incarnation = message.header().incarnation();
    if (message.has_heartbeat()) {
      AddOfTheMoment(std::move(handed_on));
    } else {
      talk.last_seq = Add(std::move(handed_on));
    }
    if (is_lost_) stream->End(Unheard());
  }

  grpc::Status OnImpostor(WorkerStream* stream, const v1::WorkerMessage& message) override {
    return guard_.RefuseImpostor(stream->member(), message.member());
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
      const bool is_heard = it->second.last_seq <= outbox_.acked();
      if (!it->second.is_closed || !(is_heard || is_lost_ || is_closing_)) {
        ++it;
        continue;
      }
      it->first->End(is_heard ? grpc::Status::OK : Unheard());
      it = sessions_.erase(it);
    }
  }

  absl::Duration last_heard() const { return absl::Milliseconds(last_heard_ms_.load()); }
  static grpc::Status Unheard() { return {grpc::StatusCode::UNAVAILABLE, "the launcher is gone"}; }

  const AgentClientOptions options_;
  const Entry entry_;
  const RealClock clock_;
  std::atomic<int64_t> last_heard_ms_ = absl::ToInt64Milliseconds(clock_.Monotonic());
  RefusalLog refusals_{clock_};
  TokenGuard guard_{LaunchOf(entry_.header), &refusals_};
  int order_fd_ = -1;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<Call> call_;  // null: away
  // The last channel to go takes gRPC's threads along, and so must not go on one of them.
  std::unique_ptr<Call> ended_call_;
  absl::Duration dialled_at_;
  absl::Duration tried_at_ = -absl::InfiniteDuration();
  absl::Duration redial_after_ = kMaxReconnectBackoff;
  // Of a new connection: what the launcher waits for one that broke has room for several.
  absl::Duration answer_timeout_ = kMaxReconnectBackoff;
  Outbox<v1::AgentMessage> outbox_;
  Inbox inbox_;
  bool is_lost_ = false;       // the coordinator, for good
  bool is_dismissed_ = false;  // the job is over
  bool is_closing_ = false;    // this client
  size_t queued_line_bytes_ = 0;
  int64_t num_dropped_ = 0;
  std::vector<Order> orders_;
  std::map<WorkerStream*, Talk> sessions_;
  std::map<uint64_t, StoreCall*> store_calls_;
  uint64_t last_store_call_ = 0;
  std::unique_ptr<SocketServer> worker_server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AgentLink>> ConnectAgent(const AgentClientOptions& options) {
  QuietGrpc();
  TRAINCTL_RETURN_IF_ERROR(CheckRoomForGrpc());
  TRAINCTL_ASSIGN_OR_RETURN(Entry entry, Enroll(options));
  auto client = std::make_unique<AgentClient>(options, std::move(entry));
  TRAINCTL_RETURN_IF_ERROR(client->Start());
  return client;
}

}  // namespace trainctl::rpc
