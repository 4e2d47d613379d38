#include "launcher/progress_board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#include "base/files.h"
#include "base/life_signs.h"
#include "base/status.h"

namespace trainctl::launcher {

struct ProgressBoard::Page {
  static constexpr size_t kPhaseWords = 6;
  std::atomic<int64_t> step_plus_one;  // so that a page of zeros is empty
  // Odd while the phase is being written.
  std::atomic<uint64_t> version;
  std::array<std::atomic<uint64_t>, kPhaseWords> phase;
  LifeSigns signs;
};

absl::StatusOr<ProgressBoard> ProgressBoard::Map(int fd) {
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  void* memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return ErrnoError("map", "the progress board", errno);
  ProgressBoard board;
  board.fd_ = fd;
  board.page_ = static_cast<Page*>(memory);
  return board;
}

absl::StatusOr<ProgressBoard> ProgressBoard::Create() {
  const int fd = ::memfd_create("trainctl-progress", MFD_CLOEXEC);
  if (fd < 0) return ErrnoError("create", "the progress board", errno);
  if (::ftruncate(fd, sizeof(Page)) != 0) {
    const int error_number = errno;
    ::close(fd);
    return ErrnoError("size", "the progress board", error_number);
  }
  return Map(fd);
}

absl::StatusOr<ProgressBoard> ProgressBoard::Open(int fd) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return ErrnoError("open", "the progress board", errno);
  if (info.st_size != static_cast<off_t>(sizeof(Page))) {
    return EnvironmentError(
        "the inherited progress board has the wrong size; use one version of trainctl "
        "and its worker");
  }
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);  // it is not for the worker's own children
  return Map(fd);
}

ProgressBoard::ProgressBoard(ProgressBoard&& other) noexcept { *this = std::move(other); }

ProgressBoard& ProgressBoard::operator=(ProgressBoard&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(page_, other.page_);
  std::swap(is_published_, other.is_published_);
  return *this;
}

ProgressBoard::~ProgressBoard() {
  if (page_ != nullptr && !is_published_) ::munmap(page_, sizeof(Page));
  if (fd_ >= 0) ::close(fd_);
}

void ProgressBoard::Write(const Progress& progress) {
  uint64_t words[Page::kPhaseWords] = {};
  std::memcpy(words, progress.phase.data(), std::min(progress.phase.size(), sizeof(words) - 1));
  page_->version.fetch_add(1);
  for (size_t i = 0; i < Page::kPhaseWords; ++i) page_->phase[i].store(words[i]);
  page_->step_plus_one.store(progress.step + 1);
  page_->version.fetch_add(1);
}

void ProgressBoard::PublishLifeSigns() {
  is_published_ = true;
  InstallLifeSigns(&page_->signs);
}

rendezvous::Standing ProgressBoard::ReadStanding() const {
  rendezvous::Standing standing;
  const Progress progress = Read();
  standing.step = progress.step;
  standing.phase = progress.phase;
  standing.beats = page_->signs.beats;
  standing.is_waiting = page_->signs.main_waits > 0;
  for (int i = 0; i < LifeSigns::kGroups; ++i) {
    const LifeSigns::GroupCalls& calls = page_->signs.groups[static_cast<size_t>(i)];
    if (calls.is_member == 0) continue;
    standing.groups.push_back({i, calls.entered, calls.left, calls.waits_for - 1});
  }
  return standing;
}

Progress ProgressBoard::Read() const {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const uint64_t version = page_->version.load();
    uint64_t words[Page::kPhaseWords];
    for (size_t i = 0; i < Page::kPhaseWords; ++i) words[i] = page_->phase[i].load();
    const int64_t step = page_->step_plus_one.load() - 1;
    if (version % 2 != 0 || page_->version.load() != version) continue;
    const char* phase = reinterpret_cast<const char*>(words);
    return {step, std::string(phase, ::strnlen(phase, sizeof(words)))};
  }
  return {page_->step_plus_one.load() - 1, ""};
}

}  // namespace trainctl::launcher
