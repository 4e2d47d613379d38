#include "trainer/restore.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "checkpoint/examine.h"

namespace trainctl::trainer {
namespace {

using checkpoint::Condition;
using checkpoint::Examined;

// Rank 0 looks at manifests; one that fails ends the wait.
constexpr absl::Duration kChoiceTimeout = absl::Hours(24);

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

class Restorer {
 public:
  Restorer(parallel::ShardedState& state, comm::Group& world, KeyValueStore& store)
      : state_(state), world_(world), store_(store) {}

  // On rank 0.
  absl::StatusOr<Restored> Lead(const std::string& root,
                                const std::function<void(const std::string&)>& warn) {
    std::vector<std::string> warnings;
    const absl::StatusOr<checkpoint::CheckpointInfo> newest = checkpoint::FindNewestGood(
        root, &warnings, [this](const checkpoint::CheckpointInfo& info) -> absl::StatusOr<Examined> {
          Examined examined = Examine(info, checkpoint::Depth::kManifest);
          if (!examined.usable()) return examined;
          TRAINCTL_RETURN_IF_ERROR(Choose(info.path));
          TRAINCTL_ASSIGN_OR_RETURN(std::tie(examined.condition, examined.status), LoadTogether(info.path));
          return examined;
        });
    for (const std::string& warning : warnings) warn(warning);
    if (newest.ok()) return std::move(restored_);
    if (newest.status().code() == absl::StatusCode::kNotFound) {
      TRAINCTL_RETURN_IF_ERROR(Choose(""));
      return Restored{};
    }
    if (newest.status().code() != absl::StatusCode::kDataLoss || is_misfit_) return newest.status();
    return BadDataError(absl::StrCat(newest.status().message(),
                                     ". Restore a valid one, or discard all progress and restart at ",
                                     "step 1: trainctl resume --from-scratch"));
  }

  absl::StatusOr<Restored> Follow() {
    while (true) {
      TRAINCTL_ASSIGN_OR_RETURN(const std::vector<uint8_t> choice, store_.Get(NextKey(), kChoiceTimeout));
      const std::string path(choice.begin() + 1, choice.end());
      if (path.empty()) return Restored{};
      std::pair<Condition, absl::Status> judged;
      TRAINCTL_ASSIGN_OR_RETURN(judged, LoadTogether(path));
      if (judged.first == Condition::kGood) return std::move(restored_);
    }
  }

 private:
  std::string NextKey() { return absl::StrCat("start_checkpoint/", ++num_choices_); }
  absl::Status Choose(const std::string& path) {
    return store_.Set(NextKey(), Bytes("=" + path));  // an absent key is an empty value
  }

  // Collective. The same judgement on every rank; the reason on rank 0 and on those that found one.
  absl::StatusOr<std::pair<Condition, absl::Status>> LoadTogether(const std::string& path) {
    bool non_finite = false;
    absl::Status fits, read;
    absl::StatusOr<StoredState> stored = StoredState::Open(path, state_, /*weights_only=*/false);
    if (stored.ok()) {
      read = stored->Read(state_, &non_finite);
      restored_ = {path, stored->counters(), stored->description_json()};
    } else {
      fits = stored.status();
    }
    const bool is_damaged = read.code() == absl::StatusCode::kDataLoss;
    if (!read.ok() && !is_damaged) fits = read;  // a disk that fails, say: no reason to lose work
    const std::string key = absl::StrCat("start_checkpoint/why/", num_choices_);
    if (is_damaged) {
      const std::string why(read.message());
      TRAINCTL_RETURN_IF_ERROR(store_.CompareSet(key, {}, Bytes(why)).status());
    }
    double votes[] = {fits.ok() ? 0.0 : 1.0, is_damaged && !non_finite ? 1.0 : 0.0, non_finite ? 1.0 : 0.0};
    const absl::Status voted = world_.AllReduceScalars("restore", votes);
    is_misfit_ = !fits.ok();
    if (is_misfit_) return fits;
    TRAINCTL_RETURN_IF_ERROR(voted);
    if (votes[0] > 0) return WorkerError("another rank could not load " + path);
    if (votes[1] + votes[2] == 0) return std::pair(Condition::kGood, absl::OkStatus());
    TRAINCTL_ASSIGN_OR_RETURN(const std::vector<uint8_t> why, store_.Get(key, kChoiceTimeout));
    return std::pair(votes[1] > 0 ? Condition::kDamaged : Condition::kNonFinite,
                     BadDataError(std::string(why.begin(), why.end())));
  }

  parallel::ShardedState& state_;
  comm::Group& world_;
  KeyValueStore& store_;
  int num_choices_ = 0;
  bool is_misfit_ = false;
  Restored restored_;
};

}  // namespace

absl::StatusOr<Restored> RestoreNewest(const std::string& root, parallel::ShardedState& state,
                                       comm::Group& world, KeyValueStore& store,
                                       const std::function<void(const std::string&)>& warn) {
  Restorer restorer(state, world, store);
  return state.rank() == 0 ? restorer.Lead(root, warn) : restorer.Follow();
}

}  // namespace trainctl::trainer
