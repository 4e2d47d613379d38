#include "layout/layout.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainctl::layout {
namespace {

constexpr absl::string_view kRecomputeNames[] = {"none", "full"};

std::string Text(const std::optional<int64_t>& degree) {
  return degree.has_value() ? absl::StrCat(*degree) : "auto";
}

std::string Workers(int64_t count) { return absl::StrCat(count, count == 1 ? " worker" : " workers"); }

// "are 8 and 12": multiples of `divisor` next to `value`.
std::string NearestMultiples(int64_t value, int64_t divisor) {
  const int64_t below = value / divisor * divisor;
  return below > 0 ? absl::StrCat("are ", below, " and ", below + divisor) : absl::StrCat("is ", divisor);
}

// "are 2 and 4": divisors of `value` next to `wanted`.
std::string NearestDivisors(int64_t value, int64_t wanted) {
  const int64_t start = std::clamp<int64_t>(wanted, 1, value);
  int64_t below = start, above = start;
  while (value % below != 0) --below;
  while (value % above != 0) ++above;
  return below == above ? absl::StrCat("is ", below) : absl::StrCat("are ", below, " and ", above);
}

class Finder {
 public:
  explicit Finder(const Request& request) : r_(request), workers_(request.num_workers()) {}

  std::vector<Violation> Run() {
    if (r_.nodes < 1 || r_.devices_per_node < 1 || r_.nodes > kMaxWorkers / r_.devices_per_node) {
      Add({"cluster.nodes", "cluster.devices_per_node"},
          absl::StrCat(Factors(), " is not a number of workers from 1 to ", kMaxWorkers));
      return std::move(found_);
    }
    CheckBatch();
    CheckDegrees();
    CheckSize();
    return std::move(found_);
  }

 private:
  void Add(std::vector<std::string> fields, std::string message) {
    found_.push_back({std::move(fields), std::move(message)});
  }

  std::string Factors() const {
    return absl::StrCat("cluster.nodes ", r_.nodes, " x cluster.devices_per_node ", r_.devices_per_node);
  }

  std::string Batch() const { return absl::StrCat("train.batch_sequences (", r_.batch_sequences, ")"); }

  void CheckBatch() {
    if (r_.batch_sequences < 1 || r_.batch_sequences % workers_ != 0) {
      Add({"train.batch_sequences", "cluster.devices_per_node"},
          absl::StrCat(Batch(), " is not a multiple of the ", Workers(workers_), " (", Factors(),
                       "); the nearest ", NearestMultiples(r_.batch_sequences, workers_)));
      return;
    }
    const int64_t share = r_.batch_sequences / workers_;
    if (!r_.micro_batch.has_value()) return;
    if (*r_.micro_batch < 1 || share % *r_.micro_batch != 0) {
      Add({"train.micro_batch", "train.batch_sequences"},
          absl::StrCat("train.micro_batch (", *r_.micro_batch, ") does not divide the ", share,
                       " sequences of each worker: ", Batch(), " / ", Workers(workers_), "; the nearest ",
                       NearestDivisors(share, *r_.micro_batch)));
    }
  }

  std::string Degrees() const {
    return absl::StrCat("dp_replicate ", Text(r_.dp_replicate), " x dp_shard ", Text(r_.dp_shard));
  }

  void CheckDegrees() {
    const int64_t product = r_.dp_replicate.value_or(1) * r_.dp_shard.value_or(1);
    const bool is_complete = r_.dp_replicate.has_value() && r_.dp_shard.has_value();
    if (product < 1 || (is_complete ? product != workers_ : workers_ % product != 0)) {
      Add({"parallel.dp_replicate", "parallel.dp_shard"},
          absl::StrCat("parallel: ", Degrees(), is_complete ? " is not the " : " does not divide the ",
                       Workers(workers_), " (", Factors(), ")", NearestDegree(is_complete)));
      return;
    }
    if (r_.zero_stage.has_value()) CheckStage();
  }

  std::string NearestDegree(bool is_complete) const {
    if (is_complete) {
      return workers_ % *r_.dp_replicate == 0
                 ? absl::StrCat("; with dp_replicate ", *r_.dp_replicate, " dp_shard is ",
                                workers_ / *r_.dp_replicate)
                 : absl::StrCat("; the nearest dp_replicate ", NearestDivisors(workers_, *r_.dp_replicate));
    }
    return absl::StrCat("; the nearest ",
                        NearestDivisors(workers_, r_.dp_replicate.value_or(r_.dp_shard.value_or(1))));
  }

  void CheckStage() {
    const int64_t stage = *r_.zero_stage;
    const int64_t shard = r_.dp_shard.value_or(r_.dp_replicate.has_value() ? workers_ / *r_.dp_replicate
                                               : stage == 0                ? 1
                                                                           : workers_);
    const std::string where = absl::StrCat(" (", Degrees(), ", ", Workers(workers_), ")");
    if (stage == 0 && shard > 1) {
      Add({"parallel.zero_stage"},
          absl::StrCat("parallel.zero_stage = 0 shards nothing but dp_shard is ", shard, where,
                       "; set dp_shard = 1 or zero_stage = 1, 2 or 3"));
    }
    if (stage > 0 && shard == 1) {
      Add({"parallel.zero_stage"},
          absl::StrCat("parallel.zero_stage = ", stage, " shards over dp_shard but dp_shard is 1", where,
                       "; use more workers with dp_shard > 1, or zero_stage = 0"));
    }
  }

  // Byte counts stay far below 2^63, and a step fits in memory as a list.
  void CheckSize() {
    if (r_.spec == nullptr || r_.batch_sequences < 1) return;
    const model::ModelSpec& spec = *r_.spec;
    const int64_t share = std::max<int64_t>(1, r_.batch_sequences / workers_);
    const double columns =
        static_cast<double>(8 * spec.hidden + 4 * spec.heads * spec.head_dim + 4 * spec.ffn);
    const double bytes = static_cast<double>(share) * static_cast<double>(r_.seq_len) * 8 *
                         (columns * static_cast<double>(spec.layers) + static_cast<double>(spec.vocab));
    if (bytes > 1e18) {
      Add({"train.batch_sequences", "data.seq_len"},
          absl::StrCat(Batch(), " x data.seq_len (", r_.seq_len,
                       ") is more than one step of this model can hold; lower one of them"));
      return;
    }
    if (!r_.micro_batch.has_value() || *r_.micro_batch < 1) return;
    const int64_t most = kMaxBlockRuns / model::NumBlocks(spec);
    const int64_t accumulation = share / *r_.micro_batch;
    if (accumulation <= most) return;
    Add({"train.micro_batch", "train.batch_sequences"},
        absl::StrCat("train.micro_batch (", *r_.micro_batch, ") makes ", accumulation,
                     " micro-batches a step, more than the ", most, " that a step may have; raise it"));
  }

  const Request& r_;
  const int64_t workers_;
  std::vector<Violation> found_;
};

}  // namespace

absl::string_view RecomputeName(Recompute recompute) {
  return kRecomputeNames[static_cast<size_t>(recompute)];
}

std::optional<Recompute> ParseRecompute(absl::string_view name) {
  const auto* const found = std::find(std::begin(kRecomputeNames), std::end(kRecomputeNames), name);
  if (found == std::end(kRecomputeNames)) return std::nullopt;
  return static_cast<Recompute>(found - std::begin(kRecomputeNames));
}

absl::string_view StrategyName(int zero_stage) {
  constexpr absl::string_view kNames[] = {"DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3"};
  return kNames[zero_stage];
}

std::string Layout::ToString() const {
  return absl::StrCat(StrategyName(zero_stage), " ", mesh.ToString(), " micro_batch=", micro_batch,
                      " recompute=", RecomputeName(recompute));
}

std::vector<Violation> FindViolations(const Request& request) { return Finder(request).Run(); }

}  // namespace trainctl::layout
