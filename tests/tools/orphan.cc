// Preloaded into a run's processes: each worker leaves a grandchild behind at its start, in a session of its
// own and not of its parentage any more. ORPHAN=plain: with the worker's environment; ORPHAN=bare: with none.
//
//   LD_PRELOAD=liborphan.so ORPHAN=bare trainctl launch ...

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

extern char** environ;

namespace {

[[gnu::constructor]] void LeaveGrandchild() {
  const char* const kind = std::getenv("ORPHAN");
  std::string name;
  std::getline(std::ifstream("/proc/self/comm"), name);
  if (kind == nullptr || name != "trainctl-worker") return;
  if (::fork() != 0) return;
  ::setsid();
  if (::fork() != 0) ::_exit(0);
  const char* arguments[] = {"sleep", "98765", nullptr};
  char* none[] = {nullptr};
  ::execve("/bin/sleep", const_cast<char**>(arguments), kind == std::string("bare") ? none : environ);
  ::_exit(1);
}

}  // namespace
