#include "verify/ranks.h"

#include <ATen/Parallel.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "device/counting_allocator.h"
#include "device/device.h"
#include "device/error_text.h"

namespace trainctl::verify {
namespace {

// What a rank has to say when it fails, for the process that forked it.
struct Message {
  bool said = false;
  char text[4000] = {};
};

absl::Status Guarded(absl::FunctionRef<absl::Status(int)> body, int rank) {
  try {
    return body(rank);
  } catch (const std::exception& error) {
    return device::StatusOf(error);
  }
}

std::string HowItEnded(int status) {
  return WIFSIGNALED(status) ? absl::StrCat("was killed by signal ", WTERMSIG(status))
                             : absl::StrCat("exited with code ", WEXITSTATUS(status));
}

// Ranks outnumber the cores. By default a message wakes a thread of Gloo that displaces the sender while it
// still holds a lock, and then polls for that lock. As batch processes, the ranks of a matrix took half the
// time.
void YieldToOtherRanks() {
  const sched_param none = {};
  sched_setscheduler(0, SCHED_BATCH, &none);  // only an optimization, so errors do not matter
}

// The file of a store that forked ranks share. It has no name, so that nothing is left of it, however they
// end.
class StoreFile {
 public:
  StoreFile() : file_(memfd_create("store", 0)) {}
  ~StoreFile() { close(file_); }
  StoreFile(const StoreFile&) = delete;
  StoreFile& operator=(const StoreFile&) = delete;
  bool exists() const { return file_ >= 0; }
  std::string path() const { return absl::StrCat("/proc/self/fd/", file_); }

 private:
  const int file_;
};

}  // namespace

absl::Status RunRanks(int world_size, absl::FunctionRef<absl::Status(int rank)> body) {
  const size_t bytes = sizeof(Message) * static_cast<size_t>(world_size);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return ErrnoError("share", "memory between ranks", errno);
  auto* const messages = static_cast<Message*>(memory);
  const pid_t parent = getpid();
  std::vector<pid_t> children;
  std::fflush(nullptr);
  for (int rank = 0; rank < world_size; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      at::set_num_threads(1);
      YieldToOtherRanks();
      const absl::Status status = Guarded(body, rank);
      if (!status.ok()) {
        Message& message = messages[rank];
        std::snprintf(message.text, sizeof(message.text), "%s", std::string(status.message()).c_str());
        message.said = true;
      }
      std::fflush(nullptr);
      _exit(status.ok() ? 0 : 1);
    }
    if (child > 0) children.push_back(child);
  }
  absl::Status failure;
  if (static_cast<int>(children.size()) < world_size) failure = ErrnoError("fork", "a rank", errno);
  const auto end_all = [&] {
    for (const pid_t child : children) kill(child, SIGKILL);
  };
  if (!failure.ok()) end_all();
  std::vector<pid_t> left = children;
  while (!left.empty()) {
    int status = 0;
    const pid_t ended = wait(&status);
    if (ended < 0 && errno == EINTR) continue;
    if (ended < 0) break;
    const auto at = std::find(children.begin(), children.end(), ended);
    if (at == children.end()) continue;
    left.erase(std::find(left.begin(), left.end(), ended));
    if ((WIFEXITED(status) && WEXITSTATUS(status) == 0) || !failure.ok()) continue;
    const Message& message = messages[at - children.begin()];
    failure = WorkerError(
        absl::StrCat("rank ", at - children.begin(), " ", message.said ? message.text : HowItEnded(status)));
    for (const pid_t child : left) kill(child, SIGKILL);
  }
  munmap(memory, bytes);
  return failure;
}

absl::Status RunTogether(int world_size, TogetherBody body) {
  const StoreFile store_file;
  if (!store_file.exists()) return ErrnoError("create", "a file for the ranks' store", errno);
  return RunRanks(world_size, [&](int rank) -> absl::Status {
    device::InstallCountingAllocator();
    auto store = c10::make_intrusive<c10d::FileStore>(store_file.path(), world_size);
    TRAINCTL_ASSIGN_OR_RETURN(
        const auto communicator,
        comm::Communicator::Create(device::Device::Cpu(), store, rank, world_size, absl::Seconds(60)));
    std::vector<int> everyone;
    for (int r = 0; r < world_size; ++r) everyone.push_back(r);
    comm::Group world = communicator->MakeHostGroup(everyone, "world");
    return body(*communicator, world);
  });
}

}  // namespace trainctl::verify
