#include "launcher/agent_runner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/lock_open_file.h"
#include "base/network.h"
#include "base/status.h"
#include "base/temporary_folder.h"
#include "base/unix_socket.h"
#include "launcher/cpu_layout.h"
#include "launcher/keeper.h"
#include "launcher/node_host.h"
#include "launcher/signal_pipe.h"
#include "launcher/worker_environment.h"
#include "run/run_folder.h"

namespace trainctl::launcher {
namespace {

using rendezvous::AgentLink;

constexpr int kLookMs = 100;
constexpr absl::Duration kLookInterval = absl::Milliseconds(kLookMs);
constexpr absl::Duration kDiskPatience = absl::Seconds(10);
// By then the launcher has given up a node that is not ready (recipe::NodeTimeout).
constexpr absl::Duration kGuardPatience = absl::Minutes(2);

class AgentRunner {
 public:
  AgentRunner(const AgentRunOptions& options, std::string folder, SignalPipe signals, Keeper& guard)
      : options_(options), folder_(std::move(folder)), signals_(std::move(signals)), guard_(guard) {
    orphans_.AddKeeper(guard_.pid());
  }

  absl::StatusOr<bool> Run() {
    TRAINCTL_ASSIGN_OR_RETURN(link_, options_.connect(folder_ + "/s", folder_ + "/token", [this] {
      guard_.Beat();
      return signals_.HasAny();
    }));
    while (!result_ || (host_ && !host_->is_idle())) PollOnce();
    host_.reset();
    disk_.Wait(kDiskPatience);
    return *result_;
  }

 private:
  void PollOnce() {
    std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}, {link_->order_fd(), POLLIN, 0}};
    if (host_) host_->AddPollFds(fds);
    ::poll(fds.data(), fds.size(), host_ ? host_->PollMs(kLookInterval) : kLookMs);
    for (const int signal_number : signals_.Take()) {
      // The end of a connection by which this process was started is no wish of anybody.
      if (signal_number != SIGHUP) link_->AskToStop(SignalName(signal_number));
    }
    for (AgentLink::Order& order : link_->TakeOrders()) {
      std::visit([&](auto& what) { Handle(std::move(what)); }, order);
    }
    if (!result_ && link_->silence() > coordinator_timeout_) {
      Handle(AgentLink::Lost{absl::StrCat("the launcher was silent for ",
                                          absl::FormatDuration(coordinator_timeout_),
                                          host_ ? " (launch.coordinator_timeout)" : "")});
    }
    if (host_) host_->Advance();
    for (const absl::Status& error : disk_.TakeErrors()) {
      link_->Tell({attempt_, rendezvous::NodeMessage{std::string(error.message())}});
    }
    if (Now() >= next_beat_) {
      link_->Beat();
      guard_.Beat();
      next_beat_ = Now() + beat_interval_;
    }
  }

  void Handle(rendezvous::NodeSetup setup) {
    const absl::Status status = SetUp(setup);
    if (status.ok()) return;
    link_->TellNotReady(std::string(status.message()));
    result_ = status;
  }

  void Handle(rendezvous::NodeCommand command) {
    if (!host_) return;
    attempt_ = std::max(attempt_, command.attempt);
    host_->Handle(std::move(command));
  }

  void Handle(AgentLink::Dismissed dismissed) {
    result_ = dismissed.is_finished;
    EndWorkers();
  }

  void Handle(AgentLink::Lost lost) {
    if (!result_) result_ = absl::UnavailableError(lost.why);
    EndWorkers();
  }

  void EndWorkers() {
    if (host_) host_->Handle({attempt_, rendezvous::EndWorkers{stop_timeout_}});
  }

  absl::Status SetUp(const rendezvous::NodeSetup& setup) {
    if (host_) return absl::InternalError("the launcher has sent a second setup to this agent");
    const absl::StatusOr<std::string> proof = ReadFile(setup.run_dir + "/launch-id", 4096);
    if (!proof.ok() || *proof != setup.proof) {
      return EnvironmentError(
          absl::StrCat(setup.run_dir, " is not the launcher's run folder on this machine (",
                       proof.ok() ? "it contains a different launch" : proof.status().message(),
                       "); with run.root or --run-dir, put the run on a file system shared by all nodes"));
    }
    TRAINCTL_ASSIGN_OR_RETURN(run::RunFolder run, run::RunFolder::Open(setup.run_dir));
    run_.emplace(std::move(run));
    TRAINCTL_ASSIGN_OR_RETURN(const std::vector<int> cores, AllowedCores());
    const bool has_route = setup.interface.empty() || setup.interface == "auto";
    TRAINCTL_ASSIGN_OR_RETURN(
        const std::string address,
        has_route ? LocalAddressTowards(link_->coordinator_host(), 1) : AddressOfInterface(setup.interface));
    WorkerStart start;
    start.run = &*run_;
    start.node = options_.node;
    start.program = options_.worker_program;
    start.files = ProgramFiles::Open(options_.worker_program, setup.env);
    start.args = setup.worker_args;
    start.log_limit_bytes = setup.log_limit_bytes;
    start.address = address;
    const auto timeouts = rendezvous::Timeouts::FromDetect(setup.detect_timeout);
    start.owner.silent_after = timeouts.keeper;
    std::map<std::string, std::string> env = setup.env;
    // NCCL finds its network by an interface's name; the user's own choice stands.
    if (const absl::StatusOr<std::string> interface = InterfaceWithAddress(address); interface.ok()) {
      env.try_emplace("NCCL_SOCKET_IFNAME", absl::StrCat("=", *interface));
    }
    start.env = WorkerEnvironment(env);
    start.socket_path = folder_ + "/s";
    start.admit = [this](const rendezvous::Slot& slot) { return link_->AdmitWorker(slot); };
    beat_interval_ = setup.heartbeat_interval;
    stop_timeout_ = setup.stop_timeout;
    coordinator_timeout_ = setup.coordinator_timeout;
    host_.emplace(
        std::move(start),
        rendezvous::AgentOptions{.stop_timeout = setup.stop_timeout, .stacks_timeout = timeouts.stacks},
        NodeHost::Deps{
            .clock = clock_,
            .disk = disk_,
            .orphans = orphans_,
            .tell = [this](rendezvous::NodeEvent event) { link_->Tell(event); },
            .show_line = [this](int rank, absl::string_view line) { link_->ShowLine(rank, line); }});
    link_->TellReady({OfferSlots(options_.node, cores, setup.num_workers, setup.threads_per_worker),
                      options_.look ? options_.look(setup) : rendezvous::NodeFacts()});
    return absl::OkStatus();
  }

  absl::Duration Now() const { return clock_.Monotonic(); }

  const AgentRunOptions& options_;
  const std::string folder_;
  SignalPipe signals_;
  Keeper& guard_;
  const RealClock clock_;
  DiskQueue disk_;
  Orphans orphans_;
  std::unique_ptr<AgentLink> link_;
  std::optional<run::RunFolder> run_;
  std::optional<NodeHost> host_;                // once it is set up
  std::optional<absl::StatusOr<bool>> result_;  // as RunAgent's
  int64_t attempt_ = 0;
  absl::Duration stop_timeout_;
  absl::Duration coordinator_timeout_ = kSetupTimeout;  // until it is set up
  absl::Duration beat_interval_ = kLookInterval;
  absl::Duration next_beat_ = absl::ZeroDuration();
};

// Leaves room for the names of the socket and the tokens.
constexpr size_t kMostFolderBytes = kMaxSocketPathBytes - 7;

// Makes the folder for the socket and the tokens of this node's workers. On some machines only the run folder
// can be written; its path may have any length (ShortSocketPath).
absl::StatusOr<std::string> MakeFolder(const std::string& run_dir) {
  constexpr absl::string_view kName = "trainctl-agent-XXXXXX";
  absl::StatusOr<std::string> folder = MakeTemporaryFolder(TemporaryFolders(), kName, kMostFolderBytes);
  if (folder.ok()) return folder;
  if (!run_dir.empty()) {
    const absl::StatusOr<std::string> inside = MakeTemporaryFolder({run_dir}, kName, PATH_MAX);
    if (inside.ok()) return inside;
  }
  return Annotate(folder.status(), "the agent needs a folder for its socket; set TMPDIR on that machine");
}

}  // namespace

absl::StatusOr<bool> RunAgent(const AgentRunOptions& options) {
  TRAINCTL_ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install());
  // Of this user alone: whoever can enter it speaks for the node's workers.
  TRAINCTL_ASSIGN_OR_RETURN(const std::string folder, MakeFolder(options.run_dir));
  // systemd-tmpfiles, which removes what is old, leaves a folder alone that is locked (tmpfiles.d, "Age").
  const int lock = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock >= 0) (void)TryLockOpenFile(lock, LockKind::kExclusive, folder);
  const absl::Cleanup unlock = [lock] {
    if (lock >= 0) ::close(lock);
  };
  // From the start on, not only while there are workers: what it would leave is removed, and if it stands
  // still it is ended.
  absl::StatusOr<Keeper> guard = Keeper::Start(
      {}, -1, kGuardPatience, {.silent_after = kGuardPatience, .folder = folder, .name = "trainctl-guard"});
  const absl::Cleanup remove_folder = [&] {
    (void)RemoveAll(folder);
    if (guard.ok()) guard->Dismiss();
  };
  TRAINCTL_RETURN_IF_ERROR(guard.status());
  return AgentRunner(options, folder, std::move(signals), *guard).Run();
}

}  // namespace trainctl::launcher
