#include "rpc/server.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/status.h"
#include "proto/trainctl.grpc.pb.h"
#include "rpc/store_service.h"
#include "rpc/token.h"
#include "rpc/wire.h"

namespace trainctl::rpc {
namespace {

constexpr std::chrono::seconds kLastAnswers{1};

using rendezvous::Command;
using rendezvous::Notice;

class Server;

// One worker's stream. Owned by gRPC until OnDone.
class WorkerStream : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage> {
 public:
  explicit WorkerStream(Server* server) : server_(server) { StartRead(&incoming_); }
  explicit WorkerStream(const grpc::Status& refusal) : server_(nullptr) { Finish(refusal); }

  void Send(const v1::CoordinatorMessage& message) {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    outgoing_.push_back(message);
    if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
  }
  void End(const grpc::Status& status) {
    std::lock_guard lock(mutex_);
    if (std::exchange(finished_, true)) return;
    Finish(status);
  }
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    if (!outgoing_.empty()) outgoing_.pop_front();
    if (ok && !finished_ && !outgoing_.empty()) StartWrite(&outgoing_.front());
  }
  void OnDone() override { delete this; }

 private:
  Server* const server_;
  v1::WorkerMessage incoming_;
  std::mutex mutex_;
  std::deque<v1::CoordinatorMessage> outgoing_;  // the first is being written
  bool finished_ = false;
};

class Server : public rendezvous::RendezvousService, public v1::Trainctl::CallbackService {
 public:
  explicit Server(const rendezvous::ServiceOptions& options)
      : options_(options), coordinator_(options.timeouts, options.last_generation) {}

  ~Server() override {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    closed_.notify_all();
    if (ticker_.joinable()) ticker_.join();
    if (server_ != nullptr) {
      store_.AbortWaiting("the coordinator shuts down");
      // Whoever asked for the end has its answer first.
      server_->Shutdown(std::chrono::system_clock::now() + kLastAnswers);
      server_->Wait();
    }
    if (notice_fd_ >= 0) ::close(notice_fd_);
    ::unlink(options_.socket_path.c_str());
  }

  absl::Status Start() {
    if (options_.socket_path.size() > 107) {
      return EnvironmentError(
          absl::StrCat("the path of the control socket is too long: ", options_.socket_path));
    }
    TRAINCTL_ASSIGN_OR_RETURN(token_, MakeToken());
    TRAINCTL_RETURN_IF_ERROR(WriteToken(options_.token_path, token_));
    notice_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (notice_fd_ < 0) return ErrnoError("create", "an event descriptor", errno);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + options_.socket_path, grpc::InsecureServerCredentials());
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.SetMaxSendMessageSize(kMaxMessageBytes);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) {
      return EnvironmentError(absl::StrCat("cannot listen on the control socket ", options_.socket_path));
    }
    if (::chmod(options_.socket_path.c_str(), 0600) != 0) {
      return ErrnoError("set the mode of", options_.socket_path, errno);
    }
    ticker_ = std::thread([this] { RunTicker(); });
    return absl::OkStatus();
  }

  // ---- RendezvousService ------------------------------------------------------------------------
  void Submit(const rendezvous::Event& event) override {
    std::lock_guard lock(mutex_);
    Decide(event);
  }

  std::vector<Notice> TakeNotices() override {
    std::lock_guard lock(mutex_);
    uint64_t count = 0;
    (void)!::read(notice_fd_, &count, sizeof(count));
    return std::exchange(notices_, {});
  }

  int notice_fd() const override { return notice_fd_; }

  // ---- sessions ---------------------------------------------------------------------------------
  void Handle(WorkerStream* session, const v1::WorkerMessage& message) {
    std::lock_guard lock(mutex_);
    if (message.has_join()) {
      if (message.protocol_version() > kProtocolVersion) {
        session->End({grpc::StatusCode::FAILED_PRECONDITION,
                      absl::StrCat("the worker speaks protocol ", message.protocol_version(),
                                   ", this launcher up to ", kProtocolVersion)});
        return;
      }
      sessions_[message.member()] = {session, message.incarnation()};
    }
    if (const std::optional<rendezvous::Event> event = EventOf(message)) Decide(*event);
  }

  void Forget(WorkerStream* session) {
    std::lock_guard lock(mutex_);
    for (auto it = sessions_.begin(); it != sessions_.end();) {
      it = it->second.session == session ? sessions_.erase(it) : std::next(it);
    }
  }

  // ---- the gRPC service -------------------------------------------------------------------------
  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Session(
      grpc::CallbackServerContext* context) override {
    const grpc::Status allowed = Authorize(*context);
    return allowed.ok() ? new WorkerStream(this) : new WorkerStream(allowed);
  }

  grpc::ServerUnaryReactor* Store(grpc::CallbackServerContext* context, const v1::StoreRequest* request,
                                  v1::StoreReply* reply) override {
    const grpc::Status allowed = Authorize(*context);
    if (allowed.ok()) return store_.Handle(request, reply);
    return FinishNow(context, allowed);
  }

  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context, const v1::StatusRequest* request,
                                   v1::StatusReply* reply) override {
    const grpc::Status allowed = Authorize(*context);
    if (!allowed.ok()) return FinishNow(context, allowed);
    std::lock_guard lock(mutex_);
    reply->set_phase(coordinator_.phase_name());
    reply->set_generation(coordinator_.generation());
    reply->set_pid(::getpid());
    if (coordinator_.stop() != rendezvous::StopMode::kNone) {
      reply->set_stop(coordinator_.stop() == rendezvous::StopMode::kNow ? "now" : "after save");
    }
    for (const rendezvous::MemberView& view : coordinator_.Members(clock_.Monotonic())) {
      v1::MemberStatus* member = reply->add_members();
      member->set_member(view.slot.member);
      member->set_rank(view.rank);
      member->set_pid(view.pid);
      member->set_step(view.progress.step);
      member->set_phase(view.progress.phase);
      member->set_state(view.state);
      member->set_silent_ms(absl::ToInt64Milliseconds(view.silent));
    }
    return FinishNow(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context, const v1::StopRequest* request,
                                 v1::StopReply* reply) override {
    const grpc::Status allowed = Authorize(*context);
    if (!allowed.ok()) return FinishNow(context, allowed);
    const rendezvous::StopRequest stop{
        request->now() ? rendezvous::StopMode::kNow : rendezvous::StopMode::kAfterSave, request->reason()};
    grpc::ServerUnaryReactor* const reactor = FinishNow(context, grpc::Status::OK);
    Submit(stop);  // after the answer, which the end of the job would cut off
    return reactor;
  }

 private:
  struct SessionEntry {
    WorkerStream* session;
    int64_t incarnation;
  };

  static grpc::ServerUnaryReactor* FinishNow(grpc::CallbackServerContext* context,
                                             const grpc::Status& status) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }

  grpc::Status Authorize(const grpc::CallbackServerContext& context) {
    const auto it = context.client_metadata().find(kTokenKey);
    if (it != context.client_metadata().end() &&
        SameToken(absl::string_view(it->second.data(), it->second.size()), token_)) {
      return grpc::Status::OK;
    }
    if (!refused_.exchange(true)) LogWarning("a call to the job without its token was refused");
    return {grpc::StatusCode::UNAUTHENTICATED, "the job's token is missing or wrong"};
  }

  // Requires mutex_.
  void Decide(const rendezvous::Event& event) {
    rendezvous::Decision decision = coordinator_.Decide(clock_.Monotonic(), event);
    if (coordinator_.generation() != store_generation_) {
      store_generation_ = coordinator_.generation();
      store_.StartGeneration(store_generation_);
    }
    for (const Command& command : decision.commands) Execute(command);
    for (Notice& notice : decision.notices) {
      if (notice.kind == Notice::Kind::kFailed) {
        store_.AbortWaiting(absl::StrCat("rank ", notice.rank, " failed: ", notice.failure.message));
      }
      AddNotice(std::move(notice));
    }
  }

  void Execute(const Command& command) {
    const auto it = sessions_.find(command.to.member);
    if (it == sessions_.end() || it->second.incarnation != command.to.incarnation) return;
    v1::CoordinatorMessage message;
    switch (command.kind) {
      case Command::Kind::kPrepare:
        message.mutable_prepare()->set_generation(command.generation);
        message.mutable_prepare()->set_assignment(coordinator_.assignment_bytes());
        message.mutable_prepare()->set_assignment_hash(coordinator_.assignment_hash());
        message.mutable_prepare()->set_heartbeat_interval_ms(
            absl::ToInt64Milliseconds(options_.timeouts.heartbeat_interval));
        break;
      case Command::Kind::kGo:
        message.mutable_go()->set_generation(command.generation);
        break;
      case Command::Kind::kDirective:
        message.mutable_directive()->set_kind(ToWire(command.directive.kind));
        message.mutable_directive()->set_reason(WireText(command.directive.reason));
        break;
      case Command::Kind::kReject:
        message.mutable_reject()->set_reason(WireText(command.reason));
        message.mutable_reject()->set_generation(command.generation);
        message.mutable_reject()->set_rejoin(command.rejoin);
        break;
    }
    it->second.session->Send(message);
  }

  void AddNotice(Notice notice) {
    if (notice.kind == Notice::Kind::kProgress) {
      for (Notice& waiting : notices_) {
        if (waiting.kind == Notice::Kind::kProgress && waiting.member == notice.member &&
            waiting.generation == notice.generation) {
          waiting = std::move(notice);
          return;
        }
      }
    }
    notices_.push_back(std::move(notice));
    const uint64_t one = 1;
    (void)!::write(notice_fd_, &one, sizeof(one));
  }

  void RunTicker() {
    std::unique_lock lock(mutex_);
    while (!closing_) {
      closed_.wait_for(lock, absl::ToChronoMilliseconds(options_.timeouts.tick));
      if (!closing_) Decide(rendezvous::Tick{});
    }
  }

  const rendezvous::ServiceOptions options_;
  const RealClock clock_;
  std::string token_;
  std::atomic<bool> refused_{false};  // a call has been; said once
  int notice_fd_ = -1;
  StoreService store_;
  std::mutex mutex_;
  std::condition_variable closed_;
  bool closing_ = false;
  rendezvous::Coordinator coordinator_;
  int64_t store_generation_ = 0;
  std::map<std::string, SessionEntry> sessions_;
  std::vector<Notice> notices_;
  std::thread ticker_;
  std::unique_ptr<grpc::Server> server_;
};

void WorkerStream::OnReadDone(bool ok) {
  if (!ok) {
    server_->Forget(this);
    End(grpc::Status::OK);
    return;
  }
  server_->Handle(this, incoming_);
  StartRead(&incoming_);
}

}  // namespace

absl::StatusOr<std::unique_ptr<rendezvous::RendezvousService>> StartServer(
    const rendezvous::ServiceOptions& options) {
  auto server = std::make_unique<Server>(options);
  TRAINCTL_RETURN_IF_ERROR(server->Start());
  return server;
}

}  // namespace trainctl::rpc
