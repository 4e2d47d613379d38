// Preloaded into a worker, makes its main thread stand still within a library call, once:
//
//   STAND_STILL_RANK   the rank that does
//   STAND_STILL_IN     data (opening a .txt file), collective (sending to a peer), checkpoint (fsync),
//                      teardown (after main)
//   STAND_STILL_AT     in which of these calls, from 1
//   STAND_STILL_HOW    sleep (for ever), stop (the whole process, SIGSTOP), fifo (opening one nobody writes
//   to) STAND_STILL_MARK   a file that is made when it happens; while it exists nothing does STAND_STILL_FIFO
//   for "fifo"
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace {

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// By the worker contract: "... --worker-id K ...".
bool IsTheRank() {
  std::ifstream file("/proc/self/cmdline");
  std::string word, before;
  while (std::getline(file, word, '\0')) {
    if (before == "--worker-id") return word == Variable("STAND_STILL_RANK");
    before = word;
  }
  return false;
}

template <typename Function>
Function* Original(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

void StandStill() {
  const int mark = Original<int(const char*, int, ...)>("open")(Variable("STAND_STILL_MARK").c_str(),
                                                                O_CREAT | O_EXCL | O_WRONLY, 0644);
  if (mark < 0) return;
  ::close(mark);
  const std::string how = Variable("STAND_STILL_HOW");
  if (how == "stop") ::raise(SIGSTOP);
  if (how == "fifo")
    Original<int(const char*, int, ...)>("open")(Variable("STAND_STILL_FIFO").c_str(), O_RDONLY);
  while (true) ::pause();
}

void Reach(const char* place) {
  static const bool is_rank = IsTheRank();
  static const std::string wanted = Variable("STAND_STILL_IN");
  static const int at = std::atoi(Variable("STAND_STILL_AT").c_str());
  static int count = 0;
  if (!is_rank || wanted != place || ::gettid() != ::getpid() || ++count != at) return;
  StandStill();
}

__attribute__((destructor)) void AtTheEnd() { Reach("teardown"); }

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  const size_t length = std::strlen(path);
  if (length > 4 && std::strcmp(path + length - 4, ".txt") == 0) Reach("data");
  va_list arguments;
  va_start(arguments, flags);
  const int mode = va_arg(arguments, int);
  va_end(arguments);
  static auto* const original = Original<int(const char*, int, ...)>("open");
  return original(path, flags, mode);
}

ssize_t writev(int fd, const iovec* pieces, int num_pieces) {
  Reach("collective");
  static auto* const original = Original<ssize_t(int, const iovec*, int)>("writev");
  return original(fd, pieces, num_pieces);
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  Reach("collective");
  static auto* const original = Original<ssize_t(int, const msghdr*, int)>("sendmsg");
  return original(fd, message, flags);
}

int fsync(int fd) {
  Reach("checkpoint");
  static auto* const original = Original<int(int)>("fsync");
  return original(fd);
}

}  // extern "C"
