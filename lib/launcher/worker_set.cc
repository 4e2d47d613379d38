#include "launcher/worker_set.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "launcher/worker_contract.h"
#include "launcher/worker_signals.h"

namespace trainctl::launcher {
namespace {

// How long a process that was killed may take to end: one that takes longer hangs in the kernel.
constexpr absl::Duration kStuckAfter = absl::Seconds(5);

SpawnOptions OptionsOf(const WorkerStart& start, const rendezvous::Slot& slot, const std::string& token_path,
                       int64_t attempt, const ProgressBoard& board, int output_fd) {
  SpawnOptions spawn;
  spawn.argv = {start.program};
  for (std::string& flag :
       FormatWorkerFlags({start.run->path(), start.socket_path, token_path, slot.worker_id, board.fd(),
                          start.node, start.address, attempt})) {
    spawn.argv.push_back(std::move(flag));
  }
  spawn.argv.insert(spawn.argv.end(), start.args.begin(), start.args.end());
  spawn.env = start.env;
  const std::string threads = absl::StrCat(slot.threads);
  spawn.env.push_back("OMP_NUM_THREADS=" + threads);
  spawn.env.push_back("MKL_NUM_THREADS=" + threads);
  spawn.cores = slot.cores;
  spawn.stdout_fd = output_fd;
  spawn.stderr_fd = output_fd;
  spawn.inherited_fds = {board.fd()};
  spawn.ignored_signals = SignalsThatWorkersIgnore();
  spawn.blocked_signals = SignalsThatWorkersBlock();
  return spawn;
}

}  // namespace

absl::StatusOr<WorkerSet> WorkerSet::Start(const WorkerStart& start, const rendezvous::SpawnWorkers& spawn,
                                           int64_t attempt, absl::Time now, DiskQueue& disk, LineSink sink) {
  std::vector<Worker> workers;
  std::vector<SpawnOptions> options;
  std::vector<int> child_ends;
  KeeperOwner owner = start.owner;
  const absl::Cleanup close_child_ends = [&] {
    for (const int fd : child_ends) ::close(fd);
  };
  absl::Cleanup close_own_ends = [&] {
    for (const Worker& worker : workers) ::close(worker.output_fd);
  };
  for (const rendezvous::Slot& slot : spawn.slots) {
    const int rank = spawn.first_rank + static_cast<int>(workers.size());
    TRAINCTL_ASSIGN_OR_RETURN(const std::string token_path, start.admit(slot));
    owner.leftovers.insert(owner.leftovers.begin(), token_path);  // before the folder that it is in
    TRAINCTL_ASSIGN_OR_RETURN(WorkerLog log,
                              WorkerLog::Open(start.run->log_path(rank), start.log_limit_bytes, disk));
    log.BeginAttempt(now);
    TRAINCTL_ASSIGN_OR_RETURN(ProgressBoard board, ProgressBoard::Create());
    // The child's end blocks, ours does not.
    int output[2];
    if (::pipe2(output, O_CLOEXEC) != 0) return ErrnoError("create", "a pipe", errno);
    ::fcntl(output[0], F_SETFL, O_NONBLOCK);
    child_ends.push_back(output[1]);
    options.push_back(OptionsOf(start, slot, token_path, attempt, board, output[1]));
    workers.push_back({rank, std::move(log), std::move(board), output[0]});
  }
  TRAINCTL_ASSIGN_OR_RETURN(Keeper keeper,
                            Keeper::Start(std::move(options), start.run->lock_fd(), kStuckAfter, owner));
  std::move(close_own_ends).Cancel();
  WorkerSet set(std::move(sink), std::move(keeper));
  set.workers_ = std::move(workers);
  return set;
}

WorkerSet::~WorkerSet() {
  for (Worker& worker : workers_) {
    if (worker.output_fd >= 0) ::close(worker.output_fd);
  }
}

bool WorkerSet::AllExited() const {
  return absl::c_all_of(workers_, [](const Worker& worker) { return worker.exit.has_value(); });
}

std::map<int, rendezvous::Standing> WorkerSet::Boards() const {
  std::map<int, rendezvous::Standing> boards;
  for (int i = 0; i < size(); ++i) {
    if (at(i).exit || at(i).has_left) continue;
    rendezvous::Standing standing = at(i).board.ReadStanding();
    // Before that it has not joined, which has a limit of its own.
    if (!standing.phase.empty()) boards[i] = std::move(standing);
  }
  return boards;
}

void WorkerSet::AddPollFds(std::vector<pollfd>& fds) const {
  fds.push_back({keeper_.fd(), POLLIN, 0});
  for (const Worker& worker : workers_) {
    if (worker.output_fd >= 0) fds.push_back({worker.output_fd, POLLIN, 0});
  }
}

bool WorkerSet::ReadSome(int worker_id) {
  Worker& worker = at(worker_id);
  if (worker.output_fd < 0) return false;
  char buffer[64 << 10];
  const ssize_t count = ::read(worker.output_fd, buffer, sizeof(buffer));
  if (count == 0) ::close(std::exchange(worker.output_fd, -1));
  if (count <= 0) return false;
  worker.log.Add(absl::string_view(buffer, static_cast<size_t>(count)),
                 [&](absl::string_view line) { TakeLine(worker, line); });
  return true;
}

void WorkerSet::TakeLine(Worker& worker, absl::string_view line) const {
  if (absl::StrContains(line, kStackTitle)) worker.shows_stack = true;
  if (!worker.is_quiet) sink_(worker.rank, line);
}

void WorkerSet::AskForStack(int worker_id, bool is_shown) {
  at(worker_id).is_quiet = !is_shown;
  keeper_.SignalMainThread(worker_id, ShowStackSignal());
}

void WorkerSet::ReadOutput() {
  for (int i = 0; i < size(); ++i) ReadSome(i);
}

void WorkerSet::DrainOutput() {
  for (int i = 0; i < size(); ++i) {
    // What cannot be ended could write for ever.
    for (int pieces = 0; pieces < 1000 && ReadSome(i); ++pieces) {
    }
    at(i).log.Flush([&](absl::string_view line) { TakeLine(at(i), line); });
  }
}

std::vector<KeeperEvent> WorkerSet::TakeEvents() {
  std::vector<KeeperEvent> events = keeper_.Take();
  for (const KeeperEvent& event : events) {
    if (event.kind == KeeperEvent::Kind::kStarted) at(event.worker).pid = event.pid;
    if (event.kind == KeeperEvent::Kind::kExited) at(event.worker).exit = event.exit;
  }
  return events;
}

}  // namespace trainctl::launcher
