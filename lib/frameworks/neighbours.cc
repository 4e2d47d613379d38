#include "frameworks/neighbours.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/units.h"
#include "frameworks/framework_ways.h"
#include "frameworks/price_memory.h"
#include "frameworks/price_time.h"
#include "frameworks/sharding_name.h"

namespace trainctl::frameworks {
namespace {

using schedule::PipelineKind;

constexpr std::pair<const char*, double TimePrice::*> kTimes[] = {
    {"forward and backward", &TimePrice::compute_seconds},
    {"recompute", &TimePrice::recompute_seconds},
    {"tensor parallel", &TimePrice::tensor_seconds},
    {"expert parallel", &TimePrice::expert_seconds},
    {"context parallel", &TimePrice::context_seconds},
    {"bubble and transfers", &TimePrice::pipeline_seconds},
    {"data parallel", &TimePrice::data_seconds},
    {"optimizer", &TimePrice::optimizer_seconds},
    {"copies to the host", &TimePrice::offload_seconds}};
constexpr const char* kParts[kNumMemoryParts] = {"parameters", "gradients", "optimizer",      "activations",
                                                 "work",       "logits",    "outside tensors"};
// Of the step and of the limit: less is not worth a word.
constexpr double kWorthAWord = 0.01;
constexpr size_t kMostWords = 3;

std::string Bytes(double bytes) { return FormatBytes(std::llround(bytes)); }

std::string Signed(double value, const std::string& text) {
  return absl::StrCat(value < 0 ? "\u2212" : "+", text);
}

std::string Seconds(double seconds) {
  if (seconds >= 1) return absl::StrFormat("%.2f s", seconds);
  return seconds >= 1e-3 ? absl::StrFormat("%.1f ms", seconds * 1e3)
                         : absl::StrFormat("%.0f us", seconds * 1e6);
}

// The largest ones first, as far as they matter.
std::string Joined(std::vector<std::pair<double, std::string>> words) {
  std::sort(words.begin(), words.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> texts;
  for (size_t i = 0; i < words.size() && i < kMostWords; ++i) texts.push_back(std::move(words[i].second));
  return absl::StrJoin(texts, ", ");
}

class Prices {
 public:
  Prices(const Workload& workload, double limit_bytes)
      : limit_bytes_(limit_bytes),
        own_tp_(workload.mesh.tp),
        framework_has_it_(HasWaysOf(workload)),
        memory_(PriceMemory(workload)),
        time_(PriceTime(workload)) {}

  void Add(std::string name, const Workload& other) {
    // Nobody would have a stage without a layer, or tensor parallelism beyond a node.
    if (other.mesh.pp > 1 && other.mesh.pp * other.virtual_stages > NumLayers(other.model)) return;
    if (other.mesh.tp > std::max<int64_t>(other.node->gpus, own_tp_)) return;
    if (!Validate(other).ok()) return;
    // Nor what the framework cannot run, unless it is priced with a thing that it lacks already.
    if (framework_has_it_ && !HasWaysOf(other)) return;
    const MemoryPrice memory = PriceMemory(other);
    report::Alternative row;
    row.name = std::move(name);
    row.fits = limit_bytes_ <= 0 || memory.upper_bytes <= limit_bytes_;
    row.device_bytes = memory.device_bytes;
    const TimePrice time = PriceTime(other);
    row.step_seconds = time.step_seconds;
    row.reason = row.fits ? Difference(memory, time) : Excess(memory);
    rows_.push_back(std::move(row));
  }

  std::vector<report::Alternative> Take() {
    std::stable_sort(rows_.begin(), rows_.end(),
                     [](const report::Alternative& a, const report::Alternative& b) {
                       if (a.fits != b.fits) return a.fits;
                       return a.fits ? a.step_seconds < b.step_seconds : a.device_bytes < b.device_bytes;
                     });
    return std::move(rows_);
  }

 private:
  std::string Difference(const MemoryPrice& memory, const TimePrice& time) const {
    std::vector<std::pair<double, std::string>> words;
    for (const auto& [name, term] : kTimes) {
      const double more = time.*term - time_.*term;
      if (std::fabs(more) < kWorthAWord * time_.step_seconds) continue;
      words.emplace_back(std::fabs(more), absl::StrCat(name, " ", Signed(more, Seconds(std::fabs(more)))));
    }
    std::string text = Joined(std::move(words));
    const double more = memory.device_bytes - memory_.device_bytes;
    if (std::fabs(more) >= kWorthAWord * std::max(limit_bytes_, memory_.device_bytes)) {
      absl::StrAppend(&text, text.empty() ? "" : "; ", "memory ", Signed(more, Bytes(std::fabs(more))));
    }
    return text.empty() ? "much the same" : text;
  }

  std::string Excess(const MemoryPrice& memory) const {
    std::vector<std::pair<double, std::string>> words;
    for (size_t i = 0; i < memory.parts.size(); ++i) {
      if (memory.parts[i] < 10 * kWorthAWord * memory.device_bytes) continue;
      words.emplace_back(memory.parts[i], absl::StrCat(kParts[i], " ", Bytes(memory.parts[i])));
    }
    return absl::StrCat("needs up to ", Bytes(memory.upper_bytes), " of ", Bytes(limit_bytes_), ": ",
                        Joined(std::move(words)));
  }

  const double limit_bytes_;
  const int64_t own_tp_;
  const bool framework_has_it_;
  const MemoryPrice memory_;
  const TimePrice time_;
  std::vector<report::Alternative> rows_;
};

std::string Change(const char* what, int64_t from, int64_t to) {
  return absl::StrCat(what, " ", from, " \u2192 ", to);
}

// Data parallelism takes up what the other degrees leave. False where that is no whole number.
bool SettleDataParallel(const Workload& from, Workload& to) {
  const int64_t world = from.mesh.world_size();
  const int64_t others = to.mesh.tp * to.mesh.pp * to.mesh.cp;
  if (others <= 0 || world % others != 0) return false;
  const int64_t dp = world / others;
  if (dp * to.mesh.cp == 1) to.zero_stage = 0;
  const bool whole = from.mesh.dp_replicate == 1;
  to.mesh.dp_shard = to.zero_stage == 0 ? 1 : whole ? dp : std::min(from.mesh.dp_shard, dp);
  to.mesh.dp_replicate = dp / to.mesh.dp_shard;
  return dp % to.mesh.dp_shard == 0 && to.mesh.HasExpertView();
}

// A cut of one's own is for one number of stages.
void ForgetStages(Workload& w) {
  w.stage_layers.clear();
  if (w.recompute == RecomputeKind::kFull) w.recomputed_layers.reset();
}

void AddDegrees(const Workload& w, Prices& prices) {
  const std::pair<const char*, int64_t layout::Mesh::*> degrees[] = {{"tp", &layout::Mesh::tp},
                                                                     {"pp", &layout::Mesh::pp},
                                                                     {"cp", &layout::Mesh::cp},
                                                                     {"ep", &layout::Mesh::ep}};
  for (const auto& [name, degree] : degrees) {
    if (degree == &layout::Mesh::ep && FindExperts(w.model) == nullptr) continue;
    const int64_t now = w.mesh.*degree;
    for (const int64_t value : {now % 2 == 0 ? now / 2 : 0, now * 2}) {
      if (value == 0) continue;
      Workload other = w;
      other.mesh.*degree = value;
      if (degree == &layout::Mesh::pp) {
        ForgetStages(other);
        if (value == 1 || now == 1) {
          other.virtual_stages = 1;
          other.pipeline.reset();
        }
      }
      if (SettleDataParallel(w, other)) prices.Add(Change(name, now, value), other);
    }
  }
}

void AddBatch(const Workload& w, Prices& prices) {
  for (const int64_t value : {w.micro_batch % 2 == 0 ? w.micro_batch / 2 : 0, w.micro_batch * 2}) {
    if (value == 0) continue;
    Workload other = w;
    other.micro_batch = value;
    prices.Add(Change("micro-batch", w.micro_batch, value), other);
  }
}

void AddSharding(const Workload& w, Prices& prices) {
  const int64_t dp = w.mesh.data_degree();
  const auto name_of = [](const Workload& job) {
    return job.zero_stage == 0 ? std::string("DDP") : ShardingName(job);
  };
  const auto add = [&](int stage, int64_t group) {
    if (stage == w.zero_stage && group == w.mesh.dp_shard) return;
    Workload other = w;
    other.zero_stage = stage;
    other.mesh.dp_shard = group;
    other.mesh.dp_replicate = dp / group;
    prices.Add(absl::StrCat(name_of(w), " \u2192 ", name_of(other)), other);
  };
  if (dp == 1) return;
  add(0, 1);
  const int64_t group = w.zero_stage > 0 ? w.mesh.dp_shard : dp;
  for (int stage = 1; stage <= 3; ++stage) {
    // Gradients of several micro-batches under way are kept anyway.
    if (stage == 2 && w.mesh.pp > 1) continue;
    add(stage, group);
  }
  if (w.zero_stage == 0) return;
  const int64_t in_node = w.node->gpus / std::max<int64_t>(1, w.mesh.tp * w.mesh.cp);
  for (const int64_t other : {in_node == dp ? 0 : in_node, dp}) {
    if (other > 1 && other <= dp && dp % other == 0) add(w.zero_stage, other);
  }
}

void AddSchedules(const Workload& w, Prices& prices) {
  if (w.mesh.pp == 1) return;
  const auto name_of = [](const Workload& job) {
    const int64_t v = job.virtual_stages;
    return absl::StrCat(std::string(schedule::PipelineKindName(job.Pipeline())),
                        v > 1 ? absl::StrCat(" x ", v) : "");
  };
  const auto add = [&](PipelineKind kind, int64_t virtual_stages) {
    if (kind == w.Pipeline() && virtual_stages == w.virtual_stages) return;
    Workload other = w;
    other.pipeline = kind;
    other.virtual_stages = virtual_stages;
    if (virtual_stages != w.virtual_stages) ForgetStages(other);
    prices.Add(absl::StrCat(name_of(w), " \u2192 ", name_of(other)), other);
  };
  for (const PipelineKind kind : {PipelineKind::k1F1B, PipelineKind::kZbH1, PipelineKind::kZbv}) {
    add(kind, schedule::LimitsOf(kind).min_virtual_stages);
  }
  const bool interleaved = w.Pipeline() == PipelineKind::kInterleaved1F1B;
  const int64_t now = interleaved ? w.virtual_stages : 1;
  for (const int64_t v : {now / 2, now * 2}) {
    if (v > 1) add(PipelineKind::kInterleaved1F1B, v);
  }
}

void AddRecompute(const Workload& w, Prices& prices) {
  constexpr const char* kNames[] = {"none", "selective", "full"};
  for (const RecomputeKind kind : {RecomputeKind::kNone, RecomputeKind::kSelective, RecomputeKind::kFull}) {
    if (kind == w.recompute) continue;
    Workload other = w;
    other.recompute = kind;
    other.recomputed_layers.reset();
    prices.Add(absl::StrCat("recompute ", kNames[static_cast<size_t>(w.recompute)], " \u2192 ",
                            kNames[static_cast<size_t>(kind)]),
               other);
  }
}

}  // namespace

std::vector<report::Alternative> NeighboursOf(const Workload& workload, double memory_limit_bytes) {
  Prices prices(workload, memory_limit_bytes);
  AddDegrees(workload, prices);
  AddBatch(workload, prices);
  AddSharding(workload, prices);
  AddSchedules(workload, prices);
  AddRecompute(workload, prices);
  return prices.Take();
}

}  // namespace trainctl::frameworks
