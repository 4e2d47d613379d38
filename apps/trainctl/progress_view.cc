#include "apps/trainctl/progress_view.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace trainctl::cli {

int TerminalColumns() {
  winsize size = {};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void ProgressView::Show(int64_t done_bytes, int64_t total_bytes) {
  std::string line = progress_.Update(done_bytes, total_bytes);
  if (line.empty()) return;
  if (!terminal_) return Note(line);
  line.resize(std::min(line.size(), static_cast<size_t>(TerminalColumns() - 1)));
  std::fprintf(stderr, "\r\x1b[K%s", line.c_str());
  std::fflush(stderr);
  is_drawn_ = true;
}

void ProgressView::Note(absl::string_view line) {
  Clear();
  std::fprintf(stderr, "trainctl: %.*s\n", static_cast<int>(line.size()), line.data());
}

void ProgressView::Clear() {
  if (is_drawn_) std::fputs("\r\x1b[K", stderr);
  is_drawn_ = false;
}

}  // namespace trainctl::cli
