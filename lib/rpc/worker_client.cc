#include "rpc/worker_client.h"

#include <grpcpp/client_context.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "launcher/progress_board.h"
#include "proto/trainctl.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/store_client.h"
#include "rpc/token.h"
#include "rpc/wire.h"

namespace trainctl::rpc {
namespace {

void ExitBecauseLost(const std::string& reason) {
  std::fprintf(stderr, "trainctl-worker: %s; exiting\n", reason.c_str());
  ::_exit(static_cast<int>(ExitCode::kStoppedUnsaved));
}

}  // namespace

class WorkerClient::Impl : public ControlChannel {
 public:
  Impl(WorkerClientOptions options, std::string token, std::optional<launcher::ProgressBoard> board)
      : options_(std::move(options)),
        board_(std::move(board)),
        member_(launcher::MemberName(options_.flags.node, options_.flags.worker_id)),
        incarnation_(absl::ToInt64Nanoseconds(RealClock().Monotonic())),
        channel_(MakeChannel(options_.flags.socket)),
        stub_(v1::Trainctl::NewStub(channel_)),
        store_(stub_.get(), token) {
    context_.AddMetadata(kTokenKey, token);
    stream_ = stub_->Session(&context_);
    Enqueue(JoinMessage());
    writer_ = std::thread([this] { RunWriter(); });
    reader_ = std::thread([this] { RunReader(); });
  }

  ~Impl() override {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake_writer_.notify_all();
    writer_.join();
    context_.TryCancel();
    reader_.join();
    if (!finished_) (void)stream_->Finish();
  }

  absl::StatusOr<rendezvous::WorldAssignment> Join(absl::Duration timeout) {
    std::unique_lock lock(mutex_);
    const bool decided = changed_.wait_for(lock, absl::ToChronoMilliseconds(timeout),
                                           [&] { return running_ || !lost_.empty(); });
    if (!decided) {
      return absl::DeadlineExceededError(
          absl::StrCat("the other workers did not join within ", absl::FormatDuration(timeout)));
    }
    if (!running_) return absl::UnavailableError(lost_);
    return world_;
  }

  absl::Status Leave(LeaveReason reason) {
    std::unique_lock lock(mutex_);
    EnqueueProgress();
    v1::WorkerMessage message = Message();
    message.mutable_leave()->set_stopped(reason == LeaveReason::kStopped);
    return SayLast(lock, std::move(message));
  }

  StoreClient& store() { return store_; }

  // ---- ControlChannel ---------------------------------------------------------------------------
  Directive Poll() override {
    std::lock_guard lock(mutex_);
    return directive_;
  }

  void Report(const Progress& progress) override {
    {
      std::lock_guard lock(mutex_);
      if (board_) board_->Write(progress);
      progress_ = progress;
      progress_waits_ = true;
    }
    wake_writer_.notify_one();
  }

  void Fail(const Failure& failure) override {
    std::unique_lock lock(mutex_);
    if (std::exchange(failed_, true)) return;
    EnqueueProgress();
    v1::WorkerMessage message = Message();
    message.mutable_failure()->set_step(failure.step);
    message.mutable_failure()->set_axis(WireText(failure.axis));
    message.mutable_failure()->set_message(WireText(failure.message));
    message.mutable_failure()->set_peer_failed(failure.peer_failed);
    (void)SayLast(lock, std::move(message));
  }

 private:
  // The rest requires mutex_ unless it says otherwise.
  v1::WorkerMessage Message() {
    v1::WorkerMessage message;
    message.set_protocol_version(kProtocolVersion);
    message.set_member(member_);
    message.set_incarnation(incarnation_);
    message.set_generation(generation_);
    message.set_seq(++seq_);
    return message;
  }

  v1::WorkerMessage JoinMessage() {
    v1::WorkerMessage message = Message();
    message.mutable_join()->set_pid(::getpid());
    return message;
  }

  v1::WorkerMessage HeartbeatMessage() {
    v1::WorkerMessage message = Message();
    message.mutable_heartbeat()->set_step(progress_.step);
    message.mutable_heartbeat()->set_phase(WireText(progress_.phase));
    if (progress_.peak_bytes >= 0) message.mutable_heartbeat()->set_peak_bytes(progress_.peak_bytes);
    progress_waits_ = false;
    return message;
  }

  // Last words come after the last step.
  void EnqueueProgress() {
    if (progress_waits_) Enqueue(HeartbeatMessage());
  }

  void Enqueue(v1::WorkerMessage message) {
    outgoing_.push_back(std::move(message));
    wake_writer_.notify_one();
  }

  // The process is about to end, and would take with it what the launcher has not read: Write only hands
  // the words to the connection. The launcher ends the stream when it has read all of it, and by dying; one
  // that stands still (suspended, say) is waited for, and one that lives but does not answer ends its
  // workers.
  absl::Status SayLast(std::unique_lock<std::mutex>& lock, v1::WorkerMessage message) {
    if (closing_) return absl::UnavailableError("this worker has announced its end before");
    Enqueue(std::move(message));
    closing_ = true;
    wake_writer_.notify_all();
    changed_.wait(lock, [&] { return ended_ && all_written_; });
    finished_ = true;
    lock.unlock();
    return FromGrpc(stream_->Finish(), "the launcher did not hear the end of this worker");
  }

  // Without mutex_.
  void RunWriter() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_writer_.wait_for(lock, heartbeat_interval_,
                            [&] { return closing_ || !outgoing_.empty() || (progress_waits_ && running_); });
      if (outgoing_.empty() && closing_) break;
      if (!lost_.empty()) {  // nobody listens; wait for the end
        outgoing_.clear();
        wake_writer_.wait(lock, [&] { return closing_; });
        break;
      }
      v1::WorkerMessage message;
      if (!outgoing_.empty()) {
        message = std::move(outgoing_.front());
        outgoing_.pop_front();
      } else {
        message = HeartbeatMessage();
      }
      lock.unlock();
      const bool ok = stream_->Write(message);
      lock.lock();
      if (!ok) {  // the reader finds out why
        progress_waits_ = false;
        wake_writer_.wait(lock, [&] { return closing_ || !lost_.empty(); });
      }
    }
    lock.unlock();
    stream_->WritesDone();
    lock.lock();
    all_written_ = true;
    changed_.notify_all();
  }

  // Without mutex_.
  void RunReader() {
    v1::CoordinatorMessage message;
    while (stream_->Read(&message)) {
      std::string lost;
      {
        std::lock_guard lock(mutex_);
        lost = Receive(message);
      }
      if (!lost.empty()) Lose(lost);
    }
    bool expected = false;
    {
      std::lock_guard lock(mutex_);
      expected = closing_;
      ended_ = true;
    }
    changed_.notify_all();
    if (!expected) Lose("the launcher is gone");
  }

  // Without mutex_.
  void Lose(const std::string& reason) {
    bool was_running = false;
    {
      std::lock_guard lock(mutex_);
      if (!lost_.empty()) return;
      lost_ = reason;
      was_running = running_;
    }
    changed_.notify_all();
    wake_writer_.notify_all();
    if (options_.on_lost) {
      options_.on_lost(reason);
    } else if (was_running) {  // before that, Join returns the reason
      ExitBecauseLost(reason);
    }
  }

  void ReceiveDirective(DirectiveKind kind, const std::string& reason) {
    if (kind == DirectiveKind::kSave) {
      ++directive_.saves_asked;
    } else if (kind != DirectiveKind::kNone && kind >= directive_.kind) {
      directive_.kind = kind;
      directive_.reason = reason;
    }
  }

  // Returns why this client is of no more use, or nothing.
  std::string Receive(const v1::CoordinatorMessage& message) {
    switch (message.body_case()) {
      case v1::CoordinatorMessage::kPrepare:
        return ReceivePrepare(message.prepare());
      case v1::CoordinatorMessage::kGo:
        if (message.go().generation() != generation_) return "";
        store_.set_generation(generation_);
        running_ = true;
        changed_.notify_all();
        return "";
      case v1::CoordinatorMessage::kDirective:
        ReceiveDirective(FromWire(message.directive().kind()), message.directive().reason());
        return "";
      case v1::CoordinatorMessage::kReject:
        if (message.reject().rejoin() && !running_) {
          Enqueue(JoinMessage());
          return "";
        }
        return absl::StrCat("the launcher does not want this process: ", message.reject().reason());
      case v1::CoordinatorMessage::BODY_NOT_SET:
        return "";
    }
    return "";
  }

  std::string ReceivePrepare(const v1::Prepare& prepare) {
    if (prepare.generation() < generation_) return "";
    if (running_ && prepare.generation() != generation_) {
      return absl::StrCat("generation ", generation_, " is superseded by ", prepare.generation());
    }
    if (rendezvous::AssignmentHash(prepare.assignment()) != prepare.assignment_hash()) {
      return "the world assignment arrived damaged";
    }
    const auto assignment = rendezvous::ParseAssignment(prepare.assignment());
    if (!assignment.ok()) return std::string(assignment.status().message());
    const auto world = rendezvous::FindMember(*assignment, member_, incarnation_);
    if (!world.ok()) return std::string(world.status().message());
    world_ = *world;
    generation_ = prepare.generation();
    if (prepare.heartbeat_interval_ms() > 0) {
      heartbeat_interval_ = std::chrono::milliseconds(prepare.heartbeat_interval_ms());
    }
    v1::WorkerMessage ack = Message();
    ack.mutable_ack()->set_assignment_hash(prepare.assignment_hash());
    Enqueue(std::move(ack));
    return "";
  }

  const WorkerClientOptions options_;
  std::optional<launcher::ProgressBoard> board_;
  const std::string member_;
  const int64_t incarnation_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Trainctl::Stub> stub_;
  StoreClient store_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::CoordinatorMessage>> stream_;

  std::mutex mutex_;
  std::condition_variable wake_writer_;
  std::condition_variable changed_;  // for Join, Leave, Fail
  bool closing_ = false;
  bool all_written_ = false;  // and the launcher told so
  bool ended_ = false;        // the stream, by the server
  bool finished_ = false;     // its status is taken
  bool failed_ = false;
  bool running_ = false;
  std::string lost_;
  std::deque<v1::WorkerMessage> outgoing_;
  uint64_t seq_ = 0;
  int64_t generation_ = 0;
  std::chrono::milliseconds heartbeat_interval_{100};
  rendezvous::WorldAssignment world_;
  Directive directive_;
  Progress progress_{-1, "startup"};
  bool progress_waits_ = false;
  std::thread writer_;
  std::thread reader_;
};

WorkerClient::WorkerClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WorkerClient::~WorkerClient() = default;

absl::StatusOr<std::unique_ptr<WorkerClient>> WorkerClient::Connect(WorkerClientOptions options) {
  TRAINCTL_ASSIGN_OR_RETURN(std::string token, ReadToken(options.flags.token_file));
  std::optional<launcher::ProgressBoard> board;
  if (options.flags.progress_fd >= 0) {
    TRAINCTL_ASSIGN_OR_RETURN(board, launcher::ProgressBoard::Open(options.flags.progress_fd));
    board->PublishLifeSigns();
  }
  return std::unique_ptr<WorkerClient>(
      new WorkerClient(std::make_unique<Impl>(std::move(options), std::move(token), std::move(board))));
}

absl::StatusOr<rendezvous::WorldAssignment> WorkerClient::Join(absl::Duration timeout) {
  return impl_->Join(timeout);
}

KeyValueStore& WorkerClient::store() { return impl_->store(); }
ControlChannel& WorkerClient::control() { return *impl_; }
absl::Status WorkerClient::Leave(LeaveReason reason) { return impl_->Leave(reason); }

}  // namespace trainctl::rpc
