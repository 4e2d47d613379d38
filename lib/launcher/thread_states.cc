#include "launcher/thread_states.h"

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/files.h"

namespace trainctl::launcher {
namespace {

constexpr int kLooks = 5;
constexpr std::chrono::milliseconds kBetweenLooks{20};
constexpr int kMaxThreads = 64;  // that are described
constexpr int64_t kMaxFileBytes = 64 << 10;

// 'R', 'S', 'D', 'T', ... of proc(5); 0 when it is gone.
char StateOf(const std::string& stat_path) {
  const absl::StatusOr<std::string> text = ReadFile(stat_path);
  if (!text.ok()) return 0;
  const size_t end = text->rfind(") ");  // behind the name, which may hold anything
  return end == std::string::npos || end + 2 >= text->size() ? 0 : (*text)[end + 2];
}

// "" where it cannot be read.
std::string ReadLine(const std::string& path) {
  return std::string(absl::StripAsciiWhitespace(ReadFile(path, kMaxFileBytes).value_or("")));
}

// The values of these fields of proc(5)'s status, as it writes them.
std::string StatusFields(const std::string& status) {
  std::string found;
  for (const absl::string_view line : absl::StrSplit(status, '\n')) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (field.first != "Name" && field.first != "State" && field.first != "SigPnd" &&
        field.first != "ShdPnd" && field.first != "SigBlk") {
      continue;
    }
    absl::StrAppend(&found, found.empty() ? "" : ", ", field.first, " ",
                    absl::StripAsciiWhitespace(field.second));
  }
  return found;
}

std::string DescribeThread(const std::string& folder) {
  std::string text = absl::StrCat("  thread ", folder.substr(folder.rfind('/') + 1), ": ",
                                  StatusFields(ReadFile(folder + "/status", kMaxFileBytes).value_or("")));
  const std::string wchan = ReadLine(folder + "/wchan");
  if (!wchan.empty() && wchan != "0") absl::StrAppend(&text, ", in ", wchan);
  const std::string call = ReadLine(folder + "/syscall");
  if (!call.empty()) absl::StrAppend(&text, ", system call ", call);
  absl::StrAppend(&text, "\n");
  for (const absl::string_view frame : absl::StrSplit(ReadLine(folder + "/stack"), '\n', absl::SkipEmpty())) {
    absl::StrAppend(&text, "    ", frame, "\n");
  }
  return text;
}

}  // namespace

rendezvous::Activity LookAtThreads(pid_t pid) {
  bool is_stopped = false;
  for (int look = 0; look < kLooks; ++look) {
    if (look > 0) std::this_thread::sleep_for(kBetweenLooks);
    std::error_code error;
    for (std::filesystem::directory_iterator it(absl::StrCat("/proc/", pid, "/task"), error), end;
         !error && it != end; it.increment(error)) {
      const char state = StateOf(it->path().string() + "/stat");
      if (state == 'R' || state == 'D' || state == 't') return rendezvous::Activity::kBusy;
      if (state == 'T') is_stopped = true;
    }
  }
  return is_stopped ? rendezvous::Activity::kStopped : rendezvous::Activity::kIdle;
}

std::string DescribeThreads(pid_t pid) {
  std::string text =
      absl::StrCat("trainctl: process ", pid, " does not respond; its threads according to /proc:\n");
  int num_threads = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it(absl::StrCat("/proc/", pid, "/task"), error), end;
       !error && it != end; it.increment(error)) {
    if (++num_threads <= kMaxThreads) absl::StrAppend(&text, DescribeThread(it->path().string()));
  }
  if (num_threads == 0) absl::StrAppend(&text, "  the process has exited\n");
  if (num_threads > kMaxThreads) absl::StrAppend(&text, "  and ", num_threads - kMaxThreads, " more\n");
  return text;
}

}  // namespace trainctl::launcher
