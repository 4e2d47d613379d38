// A worker without LibTorch that does what its script says. After the flags of the worker contract
// come commands, carried out in order: `WHO:COMMAND[:ARGUMENT]`, WHO a rank or `*`, with `once+`
// before the command to do it only in the first process that reaches it. At the end of the script
// it leaves as finished.
//
//   *:barrier:NAME    waits for all ranks through the store
//   *:steps:N         N steps of about a millisecond; obeys directives (leaves with 75 after a "save")
//   *:print:TEXT      a line to stdout           *:flood:N        N bytes without a newline
//   *:raw:HEX         these bytes to stdout
//   *:signal:N        sends itself signal N      *:exit:N         exits at once, without leaving
//   *:send_to_nobody  writes to a socket whose peer is gone
//   *:fail:TEXT       reports a failure, exits with 4
//   *:echo:TEXT       reports the failure of a peer, exits with 4
//   *:hang            never returns              *:ignore_term    SIGTERM does nothing from here on
//   *:leave           leaves as finished; commands may follow
//   *:orphan:FILE     a grandchild in its own session, out of reach of this one; its pid into FILE
//   *:bare_orphan:FILE  the same with an empty environment
//   *:pid:FILE        its own pid into FILE      *:environment    prints threads and cores
//   *:await_death:FILE  waits until the process whose pid is in FILE is dead
//   *:touch:FILE      makes an empty FILE        *:checkpoint:N   commits an (empty) checkpoint of step N
//   *:await:FILE      waits until FILE exists    *:wait_key:NAME  waits for a key that nobody sets
//   *:downfall:N:FOLDER   in generations 1 to N one rank fails, and all others because of it; see Downfall()
//   *:node_loss:N:FOLDER  in generations 1 to N all fail once FOLDER/fallen-GENERATION is there
//
// A script that `trainctl launch` cannot give on the command line is taken from FAKE_WORKER_SCRIPT, its
// commands parted by spaces.

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/files.h"
#include "base/life_signs.h"
#include "base/status.h"
#include "checkpoint/checkpoint_io.h"
#include "launcher/worker_signals.h"
#include "rpc/worker_client.h"

extern char** environ;

namespace trainctl {
namespace {

// As Gloo does it: with writev, without MSG_NOSIGNAL.
void SendToNobody() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) std::abort();
  ::close(ends[1]);
  char byte = 0;
  const iovec data = {&byte, 1};
  if (::writev(ends[0], &data, 1) >= 0 || errno != EPIPE) std::abort();
  ::close(ends[0]);
}

[[noreturn]] void Die(const absl::Status& status) {
  std::fprintf(stderr, "fake_worker: %s\n", std::string(status.message()).c_str());
  std::exit(static_cast<int>(ExitCodeFor(status)));
}

void SleepForever() {
  while (true) ::pause();
}

// A grandchild that nothing ties to this process but its parentage.
void StartOrphan(const std::string& pid_file, bool clear_environment) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setsid();
    if (::fork() != 0) ::_exit(0);
    ::signal(SIGTERM, SIG_IGN);
    (void)WriteFileAtomic(pid_file, absl::StrCat(::getpid()));
    const char* arguments[] = {"sleep", "1000", nullptr};
    char* none[] = {nullptr};
    ::execve("/bin/sleep", const_cast<char**>(arguments), clear_environment ? none : environ);
    ::_exit(1);
  }
}

std::string Cores() {
  cpu_set_t set;
  ::sched_getaffinity(0, sizeof(set), &set);
  std::string cores;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) absl::StrAppend(&cores, cores.empty() ? "" : ",", i);
  }
  return cores;
}

class Script {
 public:
  Script(rpc::WorkerClient& client, rendezvous::WorldAssignment world, std::string run_dir)
      : client_(client), world_(std::move(world)), run_dir_(std::move(run_dir)) {}

  void Run(const std::vector<std::string>& commands) {
    for (const std::string& entry : commands) {
      const std::vector<std::string> parts = absl::StrSplit(entry, absl::MaxSplits(':', 2));
      if (parts.size() < 2) Die(UsageError(absl::StrCat("'", entry, "' is not WHO:COMMAND")));
      if (parts[0] != "*" && parts[0] != absl::StrCat(world_.rank)) continue;
      absl::string_view name = parts[1];
      if (absl::ConsumePrefix(&name, "once+") && !FirstTime(entry)) continue;
      Do(name, parts.size() > 2 ? parts[2] : "");
    }
    Leave();
  }

 private:
  void Leave() {
    if (std::exchange(has_left_, true)) return;
    const absl::Status left = client_.Leave(rpc::LeaveReason::kFinished);
    if (!left.ok()) Die(left);
  }

  bool FirstTime(const std::string& entry) {
    const std::string mark = absl::StrCat(run_dir_, "/once-", absl::BytesToHexString(entry));
    if (PathExists(mark)) return false;
    (void)WriteFileAtomic(mark, "");
    return true;
  }

  void Do(absl::string_view name, const std::string& argument) {
    int64_t number = 0;
    (void)absl::SimpleAtoi(argument, &number);
    if (name == "barrier") {
      Barrier(argument);
    } else if (name == "steps") {
      Steps(number);
    } else if (name == "print") {
      Write(argument + "\n");
    } else if (name == "raw") {
      Write(absl::HexStringToBytes(argument));
    } else if (name == "flood") {
      for (int64_t i = 0; i < number; i += 1000) Write(std::string(1000, 'x'));
    } else if (name == "signal") {
      ::kill(::getpid(), static_cast<int>(number));
      SleepForever();
    } else if (name == "send_to_nobody") {
      SendToNobody();
    } else if (name == "exit") {
      ::_exit(static_cast<int>(number));
    } else if (name == "fail" || name == "echo") {
      std::fprintf(stderr, "%s\n", argument.c_str());
      FailWith(argument, name == "echo");
    } else if (name == "leave") {
      Leave();
    } else if (name == "hang") {
      SleepForever();
    } else if (name == "ignore_term") {
      ::signal(SIGTERM, SIG_IGN);
    } else if (name == "orphan" || name == "bare_orphan") {
      StartOrphan(argument, name == "bare_orphan");
      Await(argument);
    } else if (name == "pid") {
      (void)WriteFileAtomic(argument, absl::StrCat(::getpid()));
    } else if (name == "await") {
      Await(argument);
    } else if (name == "await_death") {
      AwaitDeath(argument);
    } else if (name == "touch") {
      (void)WriteFileAtomic(argument, "");
    } else if (name == "checkpoint") {
      CommitCheckpoint(number);
    } else if (name == "environment") {
      const char* threads = std::getenv("OMP_NUM_THREADS");
      const char* note = std::getenv("TEST_NOTE");
      const char* spin = std::getenv("GOMP_SPINCOUNT");
      Write(absl::StrCat("threads=", threads == nullptr ? "" : threads, " assigned=", world_.threads,
                         " cores=", Cores(), " note=", note == nullptr ? "" : note,
                         " spin=", spin == nullptr ? "" : spin, "\n"));
    } else if (name == "downfall" || name == "node_loss") {
      const std::pair<std::string, std::string> of = absl::StrSplit(argument, absl::MaxSplits(':', 1));
      int64_t last = 0;
      (void)absl::SimpleAtoi(of.first, &last);
      if (world_.generation > last) return;
      name == "downfall" ? Downfall(of.second) : NodeLoss(of.second);
    } else if (name == "wait_key") {
      const absl::Status status = client_.store().Wait({argument}, absl::Minutes(5));
      client_.control().Fail({world_.rank, step_ + 1, "", std::string(status.message()), true});
      ::_exit(static_cast<int>(ExitCode::kWorkerFailed));
    } else {
      Die(UsageError(absl::StrCat("unknown command '", name, "'")));
    }
  }

  // The rank (37 g + 11) mod n of n fails in generation g: by g mod 4 it throws, exits, crashes or hangs. The
  // others wait for it, and but for a hang fall within 50 ms, each in a way of its own. tests/cluster has the
  // same sums.
  void Downfall(const std::string& folder) {
    const int64_t generation = world_.generation;
    BeginGeneration("downfall");
    const std::string fallen = absl::StrCat(folder, "/fallen-", generation);
    if (world_.rank == (37 * generation + 11) % world_.world_size) {
      if (generation % 4 == 3) SleepForever();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      (void)WriteFileAtomic(fallen, "");
      if (generation % 4 == 1) ::_exit(9);
      if (generation % 4 == 2) Crash(SIGSEGV);
      FailWith("this one threw", /*is_echo=*/false);
    }
    Follow(fallen);
  }

  // All ranks that are left fall because of those that are taken from outside, once that has happened.
  void NodeLoss(const std::string& folder) {
    const int64_t generation = world_.generation;
    BeginGeneration("node-loss");
    if (world_.rank == 0) (void)WriteFileAtomic(absl::StrCat(folder, "/ready-", generation), "");
    Follow(absl::StrCat(folder, "/fallen-", generation));
  }

  // With a checkpoint of its own, so that no restart is one without progress.
  void BeginGeneration(const std::string& name) {
    const int64_t generation = world_.generation;
    CommitCheckpoint(generation);
    client_.control().Report({generation, "forward"});
    Barrier(absl::StrCat(name, "-", generation));
  }

  // Waits for others, one of which falls.
  [[noreturn]] void Follow(const std::string& fallen) {
    const int64_t generation = world_.generation;
    const WaitingForOthers waiting;
    Await(fallen);
    std::this_thread::sleep_for(std::chrono::milliseconds((13 * world_.rank + 7 * generation) % 50));
    switch ((world_.rank + generation) % 4) {
      case 0:
        FailWith("connection closed", /*is_echo=*/true);
      case 1:
        FailWith("an exception of its own", /*is_echo=*/false);
      case 2:
        Crash(SIGABRT);
      default:
        Crash(SIGSEGV);
    }
  }

  [[noreturn]] static void Crash(int signal_number) {
    const rlimit none = {0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    ::kill(::getpid(), signal_number);
    while (true) ::pause();
  }

  [[noreturn]] void FailWith(const std::string& message, bool is_echo) {
    client_.control().Fail({world_.rank, step_ + 1, "", message, is_echo});
    ::_exit(static_cast<int>(ExitCode::kWorkerFailed));
  }

  static void Write(const std::string& bytes) {
    std::fwrite(bytes.data(), 1, bytes.size(), stdout);
    std::fflush(stdout);
  }

  static void Await(const std::string& path) {
    while (!PathExists(path)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }

  // As a peer sees it whose connection breaks: at once, before anybody has reaped the dead.
  static void AwaitDeath(const std::string& pid_file) {
    Await(pid_file);
    const std::string stat = absl::StrCat("/proc/", *ReadFile(pid_file), "/stat");
    while (true) {
      const absl::StatusOr<std::string> text = ReadFile(stat);
      if (!text.ok() || text->find(") Z") != std::string::npos) return;
      std::this_thread::yield();
    }
  }

  void Barrier(const std::string& name) {
    const auto count = client_.store().Add(absl::StrCat("barrier/", name), 1);
    if (!count.ok()) Die(count.status());
    const std::string done = absl::StrCat("barrier-done/", name);
    if (*count == world_.world_size) {
      const absl::Status status = client_.store().Set(done, {});
      if (!status.ok()) Die(status);
    }
    const absl::Status status = client_.store().Wait({done}, absl::Minutes(2));
    if (!status.ok()) Die(status);
  }

  // One without tensors, in the name of all ranks.
  void CommitCheckpoint(int64_t step) {
    if (world_.rank != 0) return;
    checkpoint::CheckpointWriter writer(run_dir_ + "/checkpoints", step, 0, 1);
    absl::Status status = writer.Begin();
    if (status.ok()) status = writer.Write({}, nullptr);
    if (status.ok()) status = writer.Commit({.step = step});
    if (!status.ok()) Die(status);
  }

  void Steps(int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      client_.control().Report({step_ + 1, "forward"});
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++step_;
      const Directive directive = client_.control().Poll();
      if (directive.kind == DirectiveKind::kAbort) ::_exit(static_cast<int>(ExitCode::kStoppedUnsaved));
      if (directive.kind != DirectiveKind::kStopAfterSave) continue;
      CommitCheckpoint(step_);
      (void)client_.Leave(rpc::LeaveReason::kStopped);
      std::exit(static_cast<int>(ExitCode::kStoppedResumable));
    }
  }

  rpc::WorkerClient& client_;
  const rendezvous::WorldAssignment world_;
  const std::string run_dir_;
  int64_t step_ = 0;
  bool has_left_ = false;
};

int Main(int argc, char** argv) {
  launcher::LeaveStoppingToLauncher();
  std::vector<std::string> args(argv + 1, argv + argc);
  absl::StatusOr<launcher::WorkerFlags> flags = launcher::ParseWorkerFlags(args);
  if (!flags.ok()) Die(flags.status());
  const std::string run_dir = flags->run_dir;
  auto client = rpc::WorkerClient::Connect({*std::move(flags), nullptr});
  if (!client.ok()) Die(client.status());
  const auto world = (*client)->Join();
  if (!world.ok()) Die(world.status());
  const char* const script = std::getenv("FAKE_WORKER_SCRIPT");
  if (script != nullptr) args = absl::StrSplit(script, ' ');
  Script(**client, *world, run_dir).Run(args);
  return 0;
}

}  // namespace
}  // namespace trainctl

int main(int argc, char** argv) { return trainctl::Main(argc, argv); }
