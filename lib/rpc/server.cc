#include "rpc/server.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "proto/trainctl.grpc.pb.h"
#include "rpc/access_file.h"
#include "rpc/admin_port.h"
#include "rpc/agent_hub.h"
#include "rpc/channel.h"
#include "rpc/folder_check.h"
#include "rpc/grpc_log.h"
#include "rpc/socket_server.h"
#include "rpc/store_service.h"
#include "rpc/token.h"
#include "rpc/token_guard.h"
#include "rpc/wire.h"
#include "rpc/worker_stream.h"

namespace trainctl::rpc {
namespace {

constexpr absl::Duration kLastAnswers = absl::Seconds(1);
constexpr size_t kMaxQueuedLineBytes = 4 << 20;
constexpr Role kAccessRoles[] = {Role::kAdmin, Role::kReader};  // of other machines

using rendezvous::Command;
using rendezvous::Notice;

// A worker of this machine waits for the answer.
class LocalStoreCall : public grpc::ServerUnaryReactor {
 public:
  LocalStoreCall(StoreService* store, const v1::StoreRequest& request, v1::StoreReply* reply)
      : store_(store) {
    store_->Handle({this, 0}, request, [this, reply](const grpc::Status& status, v1::StoreReply answer) {
      *reply = std::move(answer);
      Finish(status);
    });
  }
  void OnCancel() override {
    if (store_->Cancel({this, 0})) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  StoreService* const store_;
};

class Server : public rendezvous::RendezvousService,
               public v1::Trainctl::CallbackService,
               private WorkerStream::Handler,
               private AgentHub::Handler,
               private AdminService::Handler {
 public:
  explicit Server(const rendezvous::ServiceOptions& options)
      : options_(options), coordinator_(options.timeouts, options.term, options.last_generation) {}

  ~Server() override {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    closed_.notify_all();
    if (ticker_.joinable()) ticker_.join();
    store_.AbortWaiting("the coordinator shuts down");
    if (hub_ != nullptr) hub_->Shutdown(kLastAnswers);
    // Whoever asked for the end has its answer first.
    if (admin_ != nullptr) admin_->Shutdown(kLastAnswers);
    if (server_ != nullptr) server_->Shutdown(kLastAnswers);
    if (notice_fd_ >= 0) ::close(notice_fd_);
    if (!options_.network) return;
    for (const Role role : kAccessRoles)
      RemoveAccessFile(options_.network->setup.run_dir, role, options_.job);
  }

  absl::Status Start() {
    QuietGrpc();
    TRAINCTL_RETURN_IF_ERROR(CheckRoomForGrpc());
    TRAINCTL_RETURN_IF_ERROR(AdmitAdmin());
    notice_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (notice_fd_ < 0) return ErrnoError("create", "an event descriptor", errno);
    TRAINCTL_ASSIGN_OR_RETURN(server_, SocketServer::Start(options_.socket_path, this, &refusals_));
    if (options_.network) {
      hub_ = std::make_unique<AgentHub>(launch_, *options_.network, options_.timeouts, clock_, &refusals_,
                                        static_cast<AgentHub::Handler*>(this));
      TRAINCTL_RETURN_IF_ERROR(hub_->Start());
      TRAINCTL_ASSIGN_OR_RETURN(
          admin_, AdminPort::Start(options_.job, options_.folder, options_.network->addresses, clock_,
                                   &refusals_, static_cast<AdminService::Handler*>(this)));
      for (const Role role : kAccessRoles) {
        TRAINCTL_ASSIGN_OR_RETURN(const LauncherAccess access, admin_->MakeAccess(role));
        TRAINCTL_RETURN_IF_ERROR(WriteAccessFile(options_.network->setup.run_dir, role, access));
      }
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
    progress_at_.clear();
    return std::exchange(notices_, {});
  }

  int notice_fd() const override { return notice_fd_; }

  absl::StatusOr<std::string> AdmitWorker(const rendezvous::Slot& slot) override {
    TRAINCTL_RETURN_IF_ERROR(RestoreFiles());
    std::string path = WorkerTokenPath(options_.token_path, slot);
    TRAINCTL_RETURN_IF_ERROR(guard_.Admit({Role::kWorker, slot.member}, path));
    return path;
  }

  absl::StatusOr<std::string> Invite(const std::string& node) override {
    TRAINCTL_CHECK(hub_ != nullptr);
    return hub_->Invite(node);
  }

  void SendToNode(const std::string& node, const rendezvous::NodeCommand& command) override {
    if (hub_ != nullptr) hub_->Send(node, command);
  }

  std::vector<rendezvous::NodeNews> TakeNodeNews() override {
    std::lock_guard lock(news_mutex_);
    for (const auto& [node, num_lines] : std::exchange(num_dropped_, {})) {
      news_.push_back({node, rendezvous::NodeNews::Dropped{num_lines}});
    }
    queued_line_bytes_ = 0;
    boards_at_.clear();
    return std::exchange(news_, {});
  }

  void NoteAgentCommandEnded(const std::string& node, const std::string& why) override {
    if (hub_ != nullptr) hub_->NoteCommandEnded(node, why);
  }

  void DismissNodes(bool is_finished) override {
    if (hub_ != nullptr) hub_->Dismiss(is_finished);
  }

  bool AllNodesLeft() override { return hub_ == nullptr || hub_->AllLeft(); }

  // ---- the gRPC service -------------------------------------------------------------------------
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
    if (allowed.ok()) return new LocalStoreCall(&store_, *request, reply);
    return FinishNow(context, allowed);
  }

  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context, const v1::StatusRequest* request,
                                   v1::StatusReply* reply) override {
    const grpc::Status allowed = CheckAdmin(*context, /*changes=*/nullptr);
    return allowed.ok() ? OnAdminStatus(context, reply) : FinishNow(context, allowed);
  }

  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context, const v1::StopRequest* request,
                                 v1::StopReply* reply) override {
    const grpc::Status allowed = CheckAdmin(*context, kStopsTheRun);
    return allowed.ok() ? OnAdminStop(context, *request) : FinishNow(context, allowed);
  }

  grpc::ServerUnaryReactor* Save(grpc::CallbackServerContext* context, const v1::SaveRequest* request,
                                 v1::SaveReply* reply) override {
    const grpc::Status allowed = CheckAdmin(*context, kSavesTheRun);
    return allowed.ok() ? OnAdminSave(context) : FinishNow(context, allowed);
  }

 private:
  absl::Status AdmitAdmin() { return guard_.Admit({Role::kAdmin, "admin"}, options_.token_path); }

  // Somebody may have removed the socket or the token since the last attempt.
  absl::Status RestoreFiles() {
    TRAINCTL_RETURN_IF_ERROR(server_->Restore());
    return AdmitAdmin();
  }

  // ---- administration ---------------------------------------------------------------------------
  grpc::Status CheckAdmin(const grpc::ServerContextBase& context, const char* changes) {
    const grpc::Status allowed = guard_.CheckAdmin(context, changes);
    return allowed.ok() ? CheckFolder(context, options_.folder) : allowed;
  }

  grpc::ServerUnaryReactor* OnAdminStatus(grpc::CallbackServerContext* context,
                                          v1::StatusReply* reply) override {
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
      if (view.progress.peak_bytes >= 0) member->set_peak_bytes(view.progress.peak_bytes);
      member->set_state(view.state);
      member->set_silent_ms(absl::ToInt64Milliseconds(view.silent));
    }
    return FinishNow(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* OnAdminStop(grpc::CallbackServerContext* context,
                                        const v1::StopRequest& request) override {
    const rendezvous::StopRequest stop{
        request.now() ? rendezvous::StopMode::kNow : rendezvous::StopMode::kAfterSave, request.reason()};
    grpc::ServerUnaryReactor* const reactor = FinishNow(context, grpc::Status::OK);
    Submit(stop);  // after the answer, which the end of the job would cut off
    return reactor;
  }

  grpc::ServerUnaryReactor* OnAdminSave(grpc::CallbackServerContext* context) override {
    {
      std::lock_guard lock(mutex_);
      if (!coordinator_.running()) {
        return FinishNow(context,
                         {grpc::StatusCode::FAILED_PRECONDITION,
                          absl::StrCat("its workers do not train now (", coordinator_.phase_name(), ")")});
      }
    }
    Submit(rendezvous::SaveRequest{});
    return FinishNow(context, grpc::Status::OK);
  }

  // ---- sessions ---------------------------------------------------------------------------------
  struct SessionEntry {
    MemberSink* sink = nullptr;
    int64_t incarnation = 0;
  };

  void OnMessage(WorkerStream* stream, const v1::WorkerMessage& message) override {
    if (const grpc::Status known = guard_.CheckLaunch(message.header()); !known.ok()) {
      return stream->End(known);
    }
    std::lock_guard lock(mutex_);
    if (message.has_join()) {
      if (message.protocol_version() > kProtocolVersion) {
        stream->End({grpc::StatusCode::FAILED_PRECONDITION,
                     absl::StrCat("the worker speaks protocol ", message.protocol_version(),
                                  ", this launcher up to ", kProtocolVersion)});
        return;
      }
    }
    Hear(stream, message);
  }

  grpc::Status OnImpostor(WorkerStream* stream, const v1::WorkerMessage& message) override {
    return guard_.RefuseImpostor(stream->member(), message.member());
  }

  void OnClosed(WorkerStream* stream) override {
    Forget(stream);
    stream->End(grpc::Status::OK);
  }

  // ---- other nodes ------------------------------------------------------------------------------
  void OnWorkerMessage(MemberSink* sink, const v1::WorkerMessage& message) override {
    std::lock_guard lock(mutex_);
    Hear(sink, message);
  }

  void OnNodeClosed(MemberSink* sink) override {
    store_.CancelAllOf(sink);
    Forget(sink);
  }

  void OnNews(rendezvous::NodeNews news) override {
    {
      std::lock_guard lock(news_mutex_);
      if (const auto* line = std::get_if<rendezvous::NodeNews::Line>(&news.what)) {
        if (queued_line_bytes_ + line->text.size() > kMaxQueuedLineBytes) {
          ++num_dropped_[news.node];
          return;
        }
        queued_line_bytes_ += line->text.size() + sizeof(news);
      }
      if (IsBoards(news)) {
        // What nobody has looked at yet is replaced: boards come often.
        const auto [at, is_new] = boards_at_.try_emplace(news.node, news_.size());
        if (!is_new) {
          news_[at->second] = std::move(news);
          return;
        }
      } else {
        boards_at_.clear();  // their order with other news stays
      }
      news_.push_back(std::move(news));
    }
    Wake();
  }

  void OnStop(const std::string& reason) override {
    Submit(rendezvous::StopRequest{rendezvous::StopMode::kAfterSave, reason});
  }

  void OnStore(StoreService::CallId id, const v1::StoreRequest& request,
               StoreService::Answer answer) override {
    store_.Handle(id, request, std::move(answer));
  }

  void OnStoreCancel(StoreService::CallId id) override { store_.Cancel(id); }

  static bool IsBoards(const rendezvous::NodeNews& news) {
    const auto* event = std::get_if<rendezvous::NodeEvent>(&news.what);
    return event != nullptr && std::holds_alternative<rendezvous::BoardsSeen>(event->what);
  }

  void Wake() {
    const uint64_t one = 1;
    (void)!::write(notice_fd_, &one, sizeof(one));
  }

  // Requires mutex_.
  void Hear(MemberSink* sink, const v1::WorkerMessage& message) {
    if (message.has_join()) {
      SessionEntry& session = sessions_[message.member()];
      if (session.sink != nullptr) members_[session.sink].erase(message.member());
      session = {sink, message.header().incarnation()};
      members_[sink].insert(message.member());
    }
    if (const std::optional<rendezvous::Event> event = EventOf(message)) Decide(*event);
  }

  void Forget(MemberSink* sink) {
    std::lock_guard lock(mutex_);
    const auto it = members_.find(sink);
    if (it == members_.end()) return;
    for (const std::string& member : it->second) sessions_.erase(member);
    members_.erase(it);
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
      if (notice.kind == Notice::Kind::kFailed && !notice.is_hang) {
        store_.AbortWaiting(absl::StrCat("rank ", notice.rank, " failed: ", notice.failure.message));
      }
      AddNotice(std::move(notice));
    }
  }

  void Execute(const Command& command) {
    const auto it = sessions_.find(command.to.member);
    if (it == sessions_.end() || it->second.incarnation != command.to.incarnation) return;
    v1::CoordinatorMessage message;
    *message.mutable_header() = MakeHeader(launch_, command.generation, command.to.incarnation);
    switch (command.kind) {
      case Command::Kind::kPrepare:
        message.mutable_prepare()->set_assignment(coordinator_.assignment_bytes());
        message.mutable_prepare()->set_assignment_hash(coordinator_.assignment_hash());
        message.mutable_prepare()->set_heartbeat_interval_ms(
            absl::ToInt64Milliseconds(options_.timeouts.heartbeat_interval));
        break;
      case Command::Kind::kGo:
        message.mutable_go();
        break;
      case Command::Kind::kDirective:
        message.mutable_directive()->set_kind(ToWire(command.directive.kind));
        message.mutable_directive()->set_reason(WireText(command.directive.reason));
        break;
      case Command::Kind::kReject:
        message.mutable_reject()->set_reason(WireText(command.reason));
        message.mutable_reject()->set_rejoin(command.rejoin);
        break;
    }
    it->second.sink->SendTo(command.to.member, command.to.incarnation, message);
  }

  void AddNotice(Notice notice) {
    if (notice.kind == Notice::Kind::kProgress) {
      const auto [at, is_new] = progress_at_.try_emplace(notice.member, notices_.size());
      if (!is_new && notices_[at->second].generation == notice.generation) {
        notices_[at->second] = std::move(notice);
        return;
      }
      at->second = notices_.size();
    }
    notices_.push_back(std::move(notice));
    Wake();
  }

  void RunTicker() {
    std::unique_lock lock(mutex_);
    while (!closing_) {
      closed_.wait_for(lock, absl::ToChronoMilliseconds(options_.timeouts.tick));
      if (closing_) break;
      Decide(rendezvous::Tick{});
      if (hub_ == nullptr) continue;
      lock.unlock();
      hub_->LoseSilent();
      lock.lock();
    }
  }

  const rendezvous::ServiceOptions options_;
  const RealClock clock_;
  RefusalLog refusals_{clock_};
  const Launch launch_{options_.job, options_.term};
  TokenGuard guard_{launch_, &refusals_};
  int notice_fd_ = -1;
  StoreService store_{launch_};
  std::mutex mutex_;
  std::condition_variable closed_;
  bool closing_ = false;
  rendezvous::Coordinator coordinator_;
  int64_t store_generation_ = 0;
  std::map<std::string, SessionEntry> sessions_;          // by member
  std::map<MemberSink*, std::set<std::string>> members_;  // of the sessions
  std::vector<Notice> notices_;
  std::map<std::string, size_t> progress_at_;  // by member, in notices_
  std::mutex news_mutex_;
  std::vector<rendezvous::NodeNews> news_;
  std::map<std::string, size_t> boards_at_;     // by node, in news_ after all other news
  std::map<std::string, int64_t> num_dropped_;  // lines, by node
  size_t queued_line_bytes_ = 0;
  std::thread ticker_;
  std::unique_ptr<AdminPort> admin_;  // of a job on several machines, as is the hub
  std::unique_ptr<AgentHub> hub_;
  std::unique_ptr<SocketServer> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<rendezvous::RendezvousService>> StartServer(
    const rendezvous::ServiceOptions& options) {
  auto server = std::make_unique<Server>(options);
  TRAINCTL_RETURN_IF_ERROR(server->Start());
  return server;
}

}  // namespace trainctl::rpc
