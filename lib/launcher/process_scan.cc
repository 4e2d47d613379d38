#include "launcher/process_scan.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace trainctl::launcher {
namespace {

struct DirEntry {  // struct linux_dirent64 of getdents64(2)
  uint64_t inode;
  int64_t offset;
  uint16_t record_bytes;
  uint8_t type;
  char name[];
};

// "/proc/<pid><suffix>" into `path`.
void ProcPath(pid_t pid, const char* suffix, char (&path)[64]) {
  char digits[16];
  int num_digits = 0;
  do {
    digits[num_digits++] = static_cast<char>('0' + pid % 10);
    pid /= 10;
  } while (pid > 0);
  std::strcpy(path, "/proc/");
  char* out = path + 6;
  while (num_digits > 0) *out++ = digits[--num_digits];
  std::strcpy(out, suffix);
}

pid_t ParsePid(const char* name) {
  pid_t pid = 0;
  for (; *name != '\0'; ++name) {
    if (*name < '0' || *name > '9') return 0;
    pid = pid * 10 + (*name - '0');
  }
  return pid;
}

}  // namespace

pid_t ParentOf(pid_t pid) {
  char path[64];
  ProcPath(pid, "/stat", path);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  char buffer[512];
  const ssize_t count = ::read(fd, buffer, sizeof(buffer) - 1);
  ::close(fd);
  if (count <= 0) return -1;
  buffer[count] = '\0';
  // "pid (name) state ppid ..."; the name may hold anything, so look for its last ')'.
  const char* end = std::strrchr(buffer, ')');
  if (end == nullptr || std::strlen(end) < 5) return -1;
  pid_t parent = 0;
  for (const char* c = end + 4; *c >= '0' && *c <= '9'; ++c) parent = parent * 10 + (*c - '0');
  return parent;
}

void ForEachEntry(const char* folder, void (*visit)(const char* name, void* context), void* context) {
  const int fd = ::open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return;
  alignas(DirEntry) char buffer[8192];
  int64_t count;
  while ((count = ::syscall(SYS_getdents64, fd, buffer, sizeof(buffer))) > 0) {
    for (int64_t at = 0; at < count;) {
      const DirEntry* entry = reinterpret_cast<const DirEntry*>(buffer + at);
      if (std::strcmp(entry->name, ".") != 0 && std::strcmp(entry->name, "..") != 0)
        visit(entry->name, context);
      at += entry->record_bytes;
    }
  }
  ::close(fd);
}

void ForEachProcess(void (*visit)(pid_t pid, void* context), void* context) {
  struct Visit {
    void (*visit)(pid_t pid, void* context);
    void* context;
  } each = {visit, context};
  ForEachEntry(
      "/proc",
      [](const char* name, void* each) {
        const pid_t pid = ParsePid(name);
        if (pid > 0) static_cast<Visit*>(each)->visit(pid, static_cast<Visit*>(each)->context);
      },
      &each);
}

}  // namespace trainctl::launcher
