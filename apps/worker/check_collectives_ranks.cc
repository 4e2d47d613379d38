#include "apps/worker/check_collectives_ranks.h"

#include <poll.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "base/subprocess.h"
#include "trainer/check_collectives.h"

namespace trainctl {
namespace {

using Options = std::map<std::string, std::string>;

// Sums of values from -15 to 15 over more ranks are not exact in bf16.
constexpr int kMostRanks = 16;
constexpr int kKilled = 9;

absl::StatusOr<int64_t> Number(const Options& options, const std::string& name, int64_t otherwise,
                               int64_t least, int64_t most) {
  const auto it = options.find(name);
  if (it == options.end()) return otherwise;
  int64_t value = 0;
  if (absl::SimpleAtoi(it->second, &value) && value >= least && value <= most) return value;
  return UsageError(
      absl::StrCat(name, " ", it->second, ": expected a whole number from ", least, " to ", most));
}

// One process has failed: the others wait for it in a collective.
void EndAll(std::vector<Subprocess>& ranks) {
  for (Subprocess& rank : ranks) {
    if (!rank.TryWait()) rank.Signal(kKilled);
  }
}

absl::StatusOr<int> WaitForAll(std::vector<Subprocess>& ranks, absl::Time deadline) {
  int code = 0;
  bool is_ending = false;
  for (size_t ended = 0; ended < ranks.size();) {
    std::vector<pollfd> open;
    ended = 0;
    for (Subprocess& rank : ranks) {
      const std::optional<ExitStatus> status = rank.TryWait();
      if (!status) {
        open.push_back({rank.pidfd(), POLLIN, 0});
        continue;
      }
      ++ended;
      if (status->Success() || is_ending) continue;
      // A rank that was killed says nothing itself.
      code = std::max(code, status->signaled ? static_cast<int>(ExitCode::kWorkerFailed) : status->code);
    }
    if (open.empty()) break;
    const absl::Duration left = deadline - absl::Now();
    if (!is_ending && (code > 1 || left <= absl::ZeroDuration())) {
      if (code <= 1) code = static_cast<int>(ExitCode::kWorkerFailed);
      is_ending = true;
      EndAll(ranks);
    }
    const int64_t wait_ms = is_ending ? -1 : std::max<int64_t>(1, absl::ToInt64Milliseconds(left));
    ::poll(open.data(), open.size(), static_cast<int>(std::min<int64_t>(wait_ms, 1 << 30)));
  }
  for (Subprocess& rank : ranks) rank.Reap();
  return code;
}

}  // namespace

absl::StatusOr<int> CheckCollectivesOfRanks(const Options& options, const std::string& plugin) {
  const auto device = options.find("--device");
  if (device != options.end() && device->second != "cpu" && device->second != "cuda")
    return UsageError(absl::StrCat("--device ", device->second, ": expected cpu or cuda"));
  trainer::CollectiveCheck check;
  if (device != options.end() && device->second == "cuda") check.plugin_path = plugin;
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t num_ranks, Number(options, "--ranks", 2, 2, kMostRanks));
  TRAINCTL_ASSIGN_OR_RETURN(check.max_bytes,
                            Number(options, "--max-bytes", check.max_bytes, 4, int64_t{1} << 30));
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t seconds, Number(options, "--timeout", 300, 1, 86400));
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t plants, Number(options, "--plant-error", -1, 0, kMostRanks));
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t rank, Number(options, "--rank", -1, 0, num_ranks - 1));
  check.world_size = static_cast<int>(num_ranks);
  check.plants_error = static_cast<int>(plants);
  check.timeout = absl::Seconds(seconds);
  if (rank >= 0) {
    check.rank = static_cast<int>(rank);
    check.store_path = options.count("--store") > 0 ? options.at("--store") : "";
    return trainer::CheckCollectives(check);
  }

  std::error_code error;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(error);
  if (error) return ErrnoError("use", "the temporary folder (TMPDIR)", error.value());
  std::string folder = (temporary / "trainctl-collectives-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return ErrnoError("create", folder, errno);
  const absl::Cleanup remove = [&] {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  };
  std::vector<Subprocess> ranks;
  absl::Cleanup end_all = [&] {
    EndAll(ranks);
    for (Subprocess& one : ranks) one.Wait();
  };
  for (int64_t i = 0; i < num_ranks; ++i) {
    SpawnOptions spawn;
    spawn.argv = {"/proc/self/exe", "check-collectives", "--rank",
                  absl::StrCat(i),  "--store",           folder + "/store"};
    for (const auto& [name, value] : options) spawn.argv.insert(spawn.argv.end(), {name, value});
    spawn.env = CurrentEnvironment();
    spawn.die_with_parent = true;
    TRAINCTL_ASSIGN_OR_RETURN(Subprocess started, Subprocess::Start(spawn));
    ranks.push_back(std::move(started));
  }
  std::move(end_all).Cancel();
  return WaitForAll(ranks, absl::Now() + absl::Seconds(seconds));
}

}  // namespace trainctl
