#include "rpc/worker_client.h"

#include <grpcpp/client_context.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "launcher/progress_board.h"
#include "proto/trainctl.grpc.pb.h"
#include "rendezvous/worker_session.h"
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

// Carries what rendezvous::WorkerSession has to tell over a stream of gRPC, with a thread for each way.
class WorkerClient::Impl : public ControlChannel {
 public:
  Impl(WorkerClientOptions options, Pass pass, std::optional<launcher::ProgressBoard> board)
      : options_(std::move(options)),
        board_(std::move(board)),
        channel_(MakeChannel(options_.flags.socket)),
        stub_(v1::Trainctl::NewStub(channel_)),
        launch_(pass.launch),
        store_(stub_.get(), pass, options_.flags.incarnation),
        session_(
            {launcher::MemberName(options_.flags.node, options_.flags.worker_id), options_.flags.incarnation},
            ::getpid()) {
    context_.AddMetadata(kTokenKey, pass.token);
    stream_ = stub_->Session(&context_);
    writer_ = std::thread([this] { RunWriter(); });
    try {
      reader_ = std::thread([this] { RunReader(); });
    } catch (const std::system_error&) {
      EndWriter();
      context_.TryCancel();
      throw;
    }
  }

  ~Impl() override {
    EndWriter();
    context_.TryCancel();
    reader_.join();
    std::lock_guard lock(mutex_);
    (void)EndOfStream();
  }

  absl::StatusOr<rendezvous::WorldAssignment> Join(absl::Duration timeout) {
    std::unique_lock lock(mutex_);
    const bool decided = changed_.wait_for(lock, absl::ToChronoMilliseconds(timeout),
                                           [&] { return session_.running() || !session_.lost().empty(); });
    if (!decided) {
      return absl::DeadlineExceededError(
          absl::StrCat("the other workers did not join within ", absl::FormatDuration(timeout)));
    }
    if (!session_.running()) return absl::UnavailableError(session_.lost());
    return session_.world();
  }

  absl::Status Leave(LeaveReason reason) {
    std::unique_lock lock(mutex_);
    if (session_.Say(reason == LeaveReason::kStopped ? rendezvous::LeaveKind::kStopped
                                                     : rendezvous::LeaveKind::kFinished)) {
      return AwaitHeard(lock);
    }
    return absl::UnavailableError("this worker has announced its end before");
  }

  StoreClient& store() { return store_; }

  // ---- ControlChannel ---------------------------------------------------------------------------
  Directive Poll() override {
    std::lock_guard lock(mutex_);
    return session_.directive();
  }

  void Report(const Progress& progress) override {
    {
      std::lock_guard lock(mutex_);
      if (board_) board_->Write(progress);
      session_.Report(progress);
    }
    wake_writer_.notify_one();
  }

  void Fail(const Failure& failure) override {
    std::unique_lock lock(mutex_);
    if (session_.Say(failure)) (void)AwaitHeard(lock);
  }

 private:
  // The process is about to end, and would take with it what the launcher has not read: Write only hands
  // the words to the connection. The launcher ends the stream when it has read all of it, and by dying; one
  // that stands still (suspended, say) is waited for, and one that lives but does not answer ends its
  // workers. `lock`: of mutex_.
  absl::Status AwaitHeard(std::unique_lock<std::mutex>& lock) {
    wake_writer_.notify_all();
    changed_.wait(lock, [&] { return ended_ && all_written_; });
    return FromGrpc(EndOfStream(), "the launcher did not hear the end of this worker");
  }

  // Of a stream that has ended. Requires mutex_.
  const grpc::Status& EndOfStream() {
    if (!status_) status_ = stream_->Finish();
    return *status_;
  }

  // No words come any more. Requires mutex_.
  bool IsEnding() const { return ends_ || session_.closing(); }

  void EndWriter() {
    {
      std::lock_guard lock(mutex_);
      ends_ = true;
    }
    wake_writer_.notify_all();
    writer_.join();
  }

  void RunWriter() {
    std::unique_lock lock(mutex_);
    uint64_t seq = 0;
    while (true) {
      wake_writer_.wait_for(lock, absl::ToChronoMilliseconds(session_.heartbeat_interval()),
                            [&] { return IsEnding() || session_.HasWords(); });
      if (!session_.HasWords() && IsEnding()) break;
      if (!session_.lost().empty()) {  // nobody listens; wait for the end
        wake_writer_.wait(lock, [&] { return IsEnding(); });
        break;
      }
      v1::WorkerMessage message = MessageOf(session_.TakeWords(), launch_);
      message.set_seq(++seq);
      lock.unlock();
      const bool ok = stream_->Write(message);
      lock.lock();
      if (!ok) {  // the reader finds out why
        wake_writer_.wait(lock, [&] { return IsEnding() || !session_.lost().empty(); });
      }
    }
    lock.unlock();
    stream_->WritesDone();
    lock.lock();
    all_written_ = true;
    changed_.notify_all();
  }

  // Of this launch, and for this process.
  absl::Status CheckOrder(const v1::Header& header) const {
    TRAINCTL_RETURN_IF_ERROR(CheckHeader(header, launch_));
    if (header.incarnation() == options_.flags.incarnation) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("an order is for incarnation ", header.incarnation(),
                                                      ", this is ", options_.flags.incarnation));
  }

  void RunReader() {
    v1::CoordinatorMessage message;
    while (stream_->Read(&message)) {
      if (const absl::Status mine = CheckOrder(message.header()); !mine.ok()) {
        Change([&] { session_.Lose(std::string(mine.message())); });
        continue;
      }
      const std::optional<rendezvous::WorkerOrder> order = OrderOf(message);
      if (order) Change([&] { session_.Receive(*order); });
    }
    std::string lost;
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
      if (!IsEnding()) lost = WhyItEnded(EndOfStream());
    }
    changed_.notify_all();
    if (!lost.empty()) Change([&] { session_.Lose(lost); });
  }

  static std::string WhyItEnded(const grpc::Status& status) {
    return IsRefusal(status)
               ? absl::StrCat("the launcher does not want this worker: ", status.error_message())
               : "the launcher is gone";
  }

  // Whoever waits for what has changed goes on; a session that is lost by it is told to the owner.
  template <typename Function>
  void Change(Function change) {
    std::string lost;
    bool was_running = false;
    {
      std::lock_guard lock(mutex_);
      const bool was_lost = !session_.lost().empty();
      was_running = session_.running();
      change();
      if (!was_lost) lost = session_.lost();
      if (session_.running()) store_.set_generation(session_.generation());
    }
    changed_.notify_all();
    wake_writer_.notify_all();
    if (lost.empty()) return;
    if (options_.on_lost) {
      options_.on_lost(lost);
    } else if (was_running) {  // before that, Join returns the reason
      ExitBecauseLost(lost);
    }
  }

  const WorkerClientOptions options_;
  std::optional<launcher::ProgressBoard> board_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Trainctl::Stub> stub_;
  const Launch launch_;
  StoreClient store_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::CoordinatorMessage>> stream_;

  std::mutex mutex_;
  std::condition_variable wake_writer_;
  std::condition_variable changed_;  // for Join, Leave, Fail
  rendezvous::WorkerSession session_;
  bool ends_ = false;         // this object
  bool all_written_ = false;  // and the launcher told so
  bool ended_ = false;        // the stream, by the server
  std::optional<grpc::Status> status_;
  std::thread writer_;
  std::thread reader_;
};

WorkerClient::WorkerClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WorkerClient::~WorkerClient() = default;

absl::StatusOr<std::unique_ptr<WorkerClient>> WorkerClient::Connect(WorkerClientOptions options) {
  TRAINCTL_RETURN_IF_ERROR(CheckRoomForGrpc());
  TRAINCTL_ASSIGN_OR_RETURN(Pass pass, ReadPass(options.flags.token_file));
  std::optional<launcher::ProgressBoard> board;
  if (options.flags.progress_fd >= 0) {
    TRAINCTL_ASSIGN_OR_RETURN(board, launcher::ProgressBoard::Open(options.flags.progress_fd));
    board->PublishLifeSigns();
  }
  return std::unique_ptr<WorkerClient>(
      new WorkerClient(std::make_unique<Impl>(std::move(options), std::move(pass), std::move(board))));
}

absl::StatusOr<rendezvous::WorldAssignment> WorkerClient::Join(absl::Duration timeout) {
  return impl_->Join(timeout);
}

KeyValueStore& WorkerClient::store() { return impl_->store(); }
ControlChannel& WorkerClient::control() { return *impl_; }
absl::Status WorkerClient::Leave(LeaveReason reason) { return impl_->Leave(reason); }

}  // namespace trainctl::rpc
