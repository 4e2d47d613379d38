#include "layout/layout.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainctl::layout {
namespace {

constexpr int64_t kMostTries = 4096;  // of values next to one that does not work
constexpr absl::string_view kRecomputeNames[] = {"none", "selective", "attention", "full"};

std::string Text(const std::optional<int64_t>& degree) {
  return degree.has_value() ? absl::StrCat(*degree) : "auto";
}

std::string Workers(int64_t count) { return absl::StrCat(count, count == 1 ? " worker" : " workers"); }

// "are 8 and 12", "is 8" or "".
std::string Nearest(const std::optional<int64_t>& below, const std::optional<int64_t>& above) {
  if (below.has_value() && above.has_value()) return absl::StrCat("are ", *below, " and ", *above);
  if (!below.has_value() && !above.has_value()) return "";
  return absl::StrCat("is ", below.has_value() ? *below : *above);
}

class Finder {
 public:
  explicit Finder(const Request& request, bool advises = true)
      : r_(request),
        workers_(request.pp.value_or(1) > 0 && request.tp.value_or(1) > 0 ? request.data_workers() : 0),
        advises_(advises) {}

  std::vector<Violation> Run() {
    if (r_.nodes < 1 || r_.devices_per_node < 1 || r_.nodes > kMaxWorkers / r_.devices_per_node) {
      Add({"cluster.nodes", "cluster.devices_per_node"},
          absl::StrCat(Factors(), " is not a number of workers from 1 to ", kMaxWorkers));
      return std::move(found_);
    }
    const bool divides = CheckDivision();
    CheckPipeline();
    CheckRecompute();
    CheckTensor();
    if (!divides) return std::move(found_);  // how many see other sequences is not known
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
    return absl::StrCat("cluster.nodes ", r_.nodes, " x cluster.devices_per_node ", r_.devices_per_node,
                        r_.pp.value_or(1) > 1 ? absl::StrCat(" / parallel.pp ", *r_.pp) : "",
                        r_.tp.value_or(1) > 1 ? absl::StrCat(" / parallel.tp ", *r_.tp) : "");
  }

  std::string Who() const {
    const std::string who = r_.tp.value_or(1) > 1
                                ? absl::StrCat(workers_, workers_ == 1 ? " group of " : " groups of ", *r_.tp,
                                               " tensor-parallel workers")
                                : Workers(workers_);
    return absl::StrCat(who, r_.pp.value_or(1) > 1 ? " of each stage" : "");
  }

  // Whether the workers can be dealt out.
  bool CheckDivision() {
    int64_t workers = r_.num_workers();
    bool divides = true;
    for (const auto& [field, asked] :
         {std::pair{"parallel.pp", &Request::pp}, std::pair{"parallel.tp", &Request::tp}}) {
      const int64_t degree = (r_.*asked).value_or(1);
      if (degree >= 1 && workers % degree == 0) {
        workers /= degree;
        continue;
      }
      divides = false;
      Add({field, "cluster.devices_per_node"},
          absl::StrCat(field, " (", degree, ") does not divide the ", Workers(workers),
                       workers < r_.num_workers() ? " of each stage" : "", " (cluster.nodes ", r_.nodes,
                       " x cluster.devices_per_node ", r_.devices_per_node, ")",
                       Advice("", NearestDivisors(workers, degree, asked))));
    }
    return divides;
  }

  // What tensor parallelism deals out: heads and the MLP's width evenly, keys and values evenly or as copies,
  // the sequence evenly; the vocabulary any way.
  void CheckTensor() {
    const int64_t tp = r_.tp.value_or(1);
    if (tp == 1) {
      if (r_.sequence_parallel.has_value()) {
        Add({"parallel.sequence_parallel"},
            "parallel.sequence_parallel: there is no tensor parallelism, parallel.tp is 1; set parallel.tp, "
            "or remove it");
      }
      return;
    }
    if (r_.spec == nullptr || tp < 1) return;
    const std::string obstacle = TensorObstacle(tp);
    if (obstacle.empty()) return;
    Add({"parallel.tp"}, absl::StrCat("parallel.tp (", tp, ") ", obstacle,
                                      Advice("that the model allows ", NearestTensor(tp))));
  }

  std::string NearestTensor(int64_t wanted) const {
    if (!advises_) return "";
    const auto first_that_divides = [&](int64_t degree, int64_t by) -> std::optional<int64_t> {
      for (; degree >= 1 && degree <= AttentionOf(*r_.spec).heads; degree += by) {
        if (TensorObstacle(degree).empty()) return degree;
      }
      return std::nullopt;
    };
    return Nearest(first_that_divides(std::min(wanted - 1, AttentionOf(*r_.spec).heads), -1),
                   first_that_divides(wanted + 1, 1));
  }

  // What of the model a degree does not divide; "": nothing.
  std::string TensorObstacle(int64_t degree) const {
    const model::Architecture& spec = *r_.spec;
    std::vector<std::string> whole;
    const auto check = [&](absl::string_view what, int64_t count) {
      if (count % degree != 0) whole.push_back(absl::StrCat(what, " (", count, ")"));
    };
    const model::Attention& attention = AttentionOf(spec);
    check("model.heads", attention.heads);
    if (degree < attention.kv_heads || degree % attention.kv_heads != 0)
      check("model.kv_heads", attention.kv_heads);
    check("model.ffn", MlpOf(spec).ffn);
    if (r_.sequence_parallel.value_or(true)) check("data.seq_len", r_.seq_len);
    if (spec.vocab < degree) whole.push_back(absl::StrCat("model.vocab (", spec.vocab, ")"));
    return whole.empty() ? "" : absl::StrCat("does not divide ", absl::StrJoin(whole, " and "));
  }

  void CheckPipeline() {
    if (r_.pp.value_or(1) == 1) {
      std::vector<std::string> fields;
      if (r_.pipeline_order.has_value()) fields.push_back("parallel.schedule");
      if (r_.virtual_stages.value_or(1) > 1) fields.push_back("parallel.virtual_stages");
      if (r_.stage_layers.has_value()) fields.push_back("parallel.stage_layers");
      if (!fields.empty()) {
        const std::string message =
            absl::StrCat(absl::StrJoin(fields, ", "),
                         ": there is no pipeline, parallel.pp is 1; set parallel.pp, or take ",
                         fields.size() > 1 ? "them out" : "it out");
        Add(std::move(fields), message);
      }
      return;
    }
    if (r_.spec != nullptr) CheckStages(*r_.spec);
  }

  void CheckStages(const model::Architecture& spec) {
    const int64_t stages = r_.num_stages();
    const std::string what = absl::StrCat("parallel.pp ", r_.pp.value_or(1), " x parallel.virtual_stages ",
                                          r_.virtual_stages.value_or(1));
    // The first may be the embedding alone, the last the head.
    if (stages < 1 || stages > NumLayers(spec) + 2) {
      Add({"parallel.pp", "parallel.virtual_stages"},
          absl::StrCat(what, " are more stages than the ", NumLayers(spec) + 2, " blocks of the model (",
                       NumLayers(spec), " layers, the embedding and the head); lower one of them"));
      return;
    }
    if (!r_.stage_layers.has_value()) return;
    const std::vector<int64_t>& layers = *r_.stage_layers;
    const int64_t sum = std::accumulate(layers.begin(), layers.end(), int64_t{0});
    if (static_cast<int64_t>(layers.size()) != stages || sum != NumLayers(spec)) {
      Add({"parallel.stage_layers"},
          absl::StrCat("parallel.stage_layers has ", sum, " layers in ", layers.size(),
                       " stages, the model has ", NumLayers(spec), ", and ", what, " are ", stages,
                       " stages; as even as they come: [",
                       absl::StrJoin(EvenStageLayers(NumLayers(spec), stages), ", "), "]"));
      return;
    }
    for (size_t s = 1; s + 1 < layers.size(); ++s) {
      if (layers[s] > 0) continue;
      Add({"parallel.stage_layers"},
          absl::StrCat("parallel.stage_layers: stage ", s,
                       " has no layer; only the first and the last stage have something else to do"));
    }
  }

  // One number may be more than some stage has: it is then all of that stage.
  void CheckRecompute() {
    if (!r_.recomputed_layers.has_value()) return;
    const std::vector<int64_t>& asked = *r_.recomputed_layers;
    const auto fail = [this](const auto&... words) {
      Add({"parallel.recomputed_layers"}, absl::StrCat("parallel.recomputed_layers", words...));
    };
    if (r_.recompute.has_value() && *r_.recompute != Recompute::kFull) {
      fail(": parallel.recompute is \"", RecomputeName(*r_.recompute),
           "\"; set it to \"full\", or take the layers out");
      return;
    }
    if (r_.spec == nullptr || r_.num_stages() < 1) return;
    const int64_t layers = NumLayers(*r_.spec), stages = r_.num_stages();
    if (asked.size() == 1) {
      if (asked[0] >= 0 && asked[0] <= layers) return;
      fail(" (", asked[0], "): the model has ", layers, " layers; the nearest is ",
           asked[0] < 0 ? 0 : layers);
      return;
    }
    if (static_cast<int64_t>(asked.size()) != stages) {
      fail(" has ", asked.size(), " numbers, parallel.pp ", r_.pp.value_or(1), " x parallel.virtual_stages ",
           r_.virtual_stages.value_or(1), stages == 1 ? " is " : " are ", stages,
           stages == 1 ? " stage; state one number" : " stages; state one number for all, or one for each");
      return;
    }
    if (!r_.stage_layers.has_value()) {
      fail(
          " is stated stage by stage, and the stages' layers are not; state parallel.stage_layers as well, "
          "or "
          "one number for all");
      return;
    }
    const std::vector<int64_t>& has = *r_.stage_layers;
    if (has.size() != asked.size()) return;  // CheckStages has said so
    std::vector<std::string> more;
    std::vector<int64_t> nearest = asked;
    for (size_t s = 0; s < has.size(); ++s) {
      nearest[s] = std::clamp<int64_t>(asked[s], 0, std::max<int64_t>(0, has[s]));
      if (nearest[s] != asked[s])
        more.push_back(absl::StrCat(asked[s], " of the ", has[s], " layers of stage ", s));
    }
    if (!more.empty())
      fail(": ", absl::StrJoin(more, ", "), "; the nearest is [", absl::StrJoin(nearest, ", "), "]");
  }

  std::string Batch() const { return absl::StrCat("train.batch_sequences (", r_.batch_sequences, ")"); }

  void CheckBatch() {
    if (r_.batch_sequences < 1 || r_.batch_sequences % workers_ != 0) {
      Add({"train.batch_sequences", "cluster.devices_per_node"},
          absl::StrCat(Batch(), " is not a multiple of the ", Who(), " (", Factors(), ")",
                       Advice("", NearestBatches()), CutThatHelps()));
      return;
    }
    const int64_t share = r_.batch_sequences / workers_;
    if (!r_.micro_batch.has_value()) return;
    if (*r_.micro_batch < 1 || share % *r_.micro_batch != 0) {
      Add({"train.micro_batch", "train.batch_sequences"},
          absl::StrCat("train.micro_batch (", *r_.micro_batch, ") does not divide the ", share,
                       " sequences of each worker: ", Batch(), " / ", Who(),
                       Advice("", NearestDivisors(share, *r_.micro_batch, &Request::micro_batch))));
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
          absl::StrCat("parallel: ", Degrees(), is_complete ? " is not the " : " does not divide the ", Who(),
                       " (", Factors(), ")", is_complete ? AdviceOnBothDegrees() : AdviceOnOneDegree()));
      return;
    }
    if (r_.zero_stage.has_value()) CheckStage();
  }

  std::string AdviceOnOneDegree() const {
    const bool is_shard = r_.dp_shard.has_value();
    const auto degree = is_shard ? &Request::dp_shard : &Request::dp_replicate;
    return Advice(is_shard ? "parallel.dp_shard " : "parallel.dp_replicate ",
                  NearestDivisors(workers_, *(r_.*degree), degree));
  }

  // The nearest pair whose product is the number of workers; by its replicas, as they were asked for if they
  // can be.
  std::string AdviceOnBothDegrees() const {
    if (!advises_) return "";
    const auto pair_of = [&](int64_t replicate) {
      Request changed = r_;
      changed.dp_replicate = replicate;
      changed.dp_shard = workers_ / replicate;
      return changed;
    };
    const auto helps = [&](int64_t replicate) {
      return workers_ % replicate == 0 && Helps(pair_of(replicate));
    };
    const int64_t wanted = std::clamp<int64_t>(*r_.dp_replicate, 1, workers_);
    for (int64_t apart = 0; apart < workers_; ++apart) {
      for (const int64_t replicate : {wanted - apart, wanted + apart}) {
        if (replicate < 1 || replicate > workers_ || !helps(replicate)) continue;
        const std::string shard = absl::StrCat("parallel.dp_shard = ", workers_ / replicate);
        return replicate == *r_.dp_replicate
                   ? absl::StrCat("; set ", shard)
                   : absl::StrCat("; set parallel.dp_replicate = ", replicate, " and ", shard);
      }
    }
    return "";
  }

  void CheckStage() {
    const int64_t stage = *r_.zero_stage;
    const int64_t shard = r_.dp_shard.value_or(r_.dp_replicate.has_value() ? workers_ / *r_.dp_replicate
                                               : stage == 0                ? 1
                                                                           : workers_);
    const std::string where = absl::StrCat(" (", Degrees(), ", ", Who(), ")");
    if (stage == 0 && shard > 1) {
      Add({"parallel.zero_stage"},
          absl::StrCat("parallel.zero_stage = 0 shards nothing but dp_shard is ", shard, where, "; set ",
                       r_.dp_replicate.has_value() ? "" : "parallel.dp_shard = 1 or ",
                       "parallel.zero_stage = 1, 2 or 3"));
    }
    if (stage > 0 && shard == 1) {
      Add({"parallel.zero_stage"},
          absl::StrCat("parallel.zero_stage = ", stage, " shards over dp_shard but dp_shard is 1", where,
                       workers_ > 1 ? "; leave the degrees at \"auto\"" : "; use more workers",
                       ", or set parallel.zero_stage = 0"));
    }
  }

  // Byte counts stay far below 2^63, and a step fits in memory as a list.
  void CheckSize() {
    if (r_.spec == nullptr || r_.batch_sequences < 1) return;
    const model::Architecture& spec = *r_.spec;
    const int64_t share = std::max<int64_t>(1, r_.batch_sequences / workers_);
    const double columns = static_cast<double>(
        8 * spec.hidden + 4 * AttentionOf(spec).heads * AttentionOf(spec).head_dim + 4 * MlpOf(spec).ffn);
    const double bytes = static_cast<double>(share) * static_cast<double>(r_.seq_len) * 8 *
                         (columns * static_cast<double>(NumLayers(spec)) + static_cast<double>(spec.vocab));
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

  // ---- advice: what is named here leaves fewer violations, whatever else the request asks for

  bool Helps(const Request& changed) const {
    return Finder(changed, /*advises=*/false).Run().size() < Finder(r_, /*advises=*/false).Run().size();
  }

  static std::string Advice(absl::string_view field, const std::string& nearest) {
    return nearest.empty() ? "" : absl::StrCat("; the nearest ", field, nearest);
  }

  // The fewest parts of the model with which everything is met: fewer groups see other sequences then.
  std::string CutThatHelps() const {
    if (!advises_ || r_.spec == nullptr) return "";
    const std::vector<Request> cuts = PossibleCuts(r_);
    const auto best = std::min_element(cuts.begin(), cuts.end(), [](const Request& a, const Request& b) {
      return *a.pp * *a.tp < *b.pp * *b.tp;
    });
    if (best == cuts.end()) return "";
    std::vector<std::string> settings;
    if (!r_.tp.has_value() && *best->tp > 1) settings.push_back(absl::StrCat("parallel.tp = ", *best->tp));
    if (!r_.pp.has_value() && *best->pp > 1) settings.push_back(absl::StrCat("parallel.pp = ", *best->pp));
    return absl::StrCat("; or cut the model: ", absl::StrJoin(settings, ", "));
  }

  // Batches next to the one that was asked for.
  std::string NearestBatches() const {
    if (!advises_) return "";
    // What each worker gets is a multiple of the micro-batch, too.
    const int64_t step = workers_ * std::clamp<int64_t>(r_.micro_batch.value_or(1), 1, kMaxWorkers);
    const auto first_that_helps = [&](int64_t batch, int64_t by) -> std::optional<int64_t> {
      for (int64_t tries = 0; tries < kMostTries && batch > 0; ++tries, batch += by) {
        Request changed = r_;
        changed.batch_sequences = batch;
        const bool can_be_cut = r_.micro_batch.has_value() || r_.spec == nullptr ||
                                LeastMicroBatch(*r_.spec, batch / workers_).has_value();
        if (can_be_cut && Helps(changed)) return batch;
      }
      return std::nullopt;
    };
    const int64_t below = r_.batch_sequences / step * step;
    return Nearest(first_that_helps(below, -step), first_that_helps(below + step, step));
  }

  // Divisors of `whole` next to `wanted`, as values of `field`.
  std::string NearestDivisors(int64_t whole, int64_t wanted, std::optional<int64_t> Request::*field) const {
    if (!advises_) return "";
    const auto helps = [&](int64_t value) {
      Request changed = r_;
      changed.*field = value;
      return whole % value == 0 && Helps(changed);
    };
    const auto first_that_helps = [&](int64_t value, int64_t by, int64_t last) -> std::optional<int64_t> {
      for (int64_t tries = 0; tries < kMostTries && value >= 1 && value <= whole; ++tries, value += by) {
        if (helps(value)) return value;
      }
      return helps(last) ? std::optional<int64_t>(last) : std::nullopt;
    };
    const int64_t start = std::clamp<int64_t>(wanted, 1, whole);
    if (start != wanted && helps(start)) return Nearest(start, std::nullopt);
    return Nearest(start > 1 ? first_that_helps(start - 1, -1, 1) : std::nullopt,
                   start < whole ? first_that_helps(start + 1, 1, whole) : std::nullopt);
  }

  const Request& r_;
  const int64_t workers_;  // groups that see other sequences
  const bool advises_;
  std::vector<Violation> found_;
};

}  // namespace

std::optional<int64_t> LeastMicroBatch(const model::Architecture& spec, int64_t share) {
  const int64_t most = kMaxBlockRuns / model::NumBlocks(spec);
  const int64_t least = share / most + (share % most != 0 ? 1 : 0);
  // Of a batch that no step can hold there is no end of sizes to try.
  for (int64_t size = least; size < 2 * least && size < least + kMostTries; ++size) {
    if (share % size == 0) return size;
  }
  return std::nullopt;
}

absl::string_view RecomputeName(Recompute recompute) {
  return kRecomputeNames[static_cast<size_t>(recompute)];
}

std::optional<Recompute> ParseRecompute(absl::string_view name) {
  const auto* const found = std::find(std::begin(kRecomputeNames), std::end(kRecomputeNames), name);
  if (found == std::end(kRecomputeNames)) return std::nullopt;
  return static_cast<Recompute>(found - std::begin(kRecomputeNames));
}

std::vector<int64_t> RecomputedLayers(const std::vector<int64_t>& asked,
                                      const std::vector<int64_t>& stage_layers) {
  if (asked.empty()) return {};
  std::vector<int64_t> layers = asked;
  if (layers.size() == 1) layers.resize(stage_layers.size(), asked[0]);
  for (size_t s = 0; s < layers.size(); ++s) layers[s] = std::min(layers[s], stage_layers[s]);
  return layers == stage_layers ? std::vector<int64_t>() : layers;
}

absl::string_view StrategyName(int zero_stage) {
  constexpr absl::string_view kNames[] = {"DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3"};
  return kNames[zero_stage];
}

std::vector<int64_t> BalancedStageLayers(int64_t layers, int64_t num_stages, double embedding, double head) {
  std::vector<int64_t> counts(static_cast<size_t>(num_stages), 0);
  std::vector<double> work(counts.size(), 0);
  work.front() += embedding;
  work.back() += head;
  // Those in the middle, the first, the last.
  std::vector<size_t> stages(counts.size());
  std::iota(stages.begin(), stages.end(), 0);
  if (stages.size() > 2) std::rotate(stages.begin(), stages.begin() + 1, stages.end() - 1);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const size_t stage = *std::min_element(stages.begin(), stages.end(),
                                           [&](size_t a, size_t b) { return work[a] < work[b]; });
    ++counts[stage];
    ++work[stage];
  }
  return counts;
}

std::vector<int64_t> EvenStageLayers(int64_t layers, int64_t num_stages) {
  return BalancedStageLayers(layers, num_stages, 0, 0);
}

std::vector<int> StageBegins(const std::vector<int64_t>& stage_layers) {
  std::vector<int> begins = {0};
  int block = 1;  // the embedding is before the layers
  for (const int64_t layers : stage_layers) begins.push_back(block += static_cast<int>(layers));
  ++begins.back();  // and the head behind
  return begins;
}

std::string Layout::ToString() const {
  std::string text = absl::StrCat(StrategyName(zero_stage), " ", mesh.ToString());
  if (!pipeline.order.empty()) absl::StrAppend(&text, " schedule=", pipeline.order);
  if (pipeline.virtual_stages > 1) absl::StrAppend(&text, " virtual_stages=", pipeline.virtual_stages);
  if (mesh.tp > 1 && !sequence_parallel) absl::StrAppend(&text, " sequence_parallel=false");
  absl::StrAppend(&text, " micro_batch=", micro_batch, " recompute=", RecomputeName(recompute));
  if (!recomputed_layers.empty())
    absl::StrAppend(&text, " recomputed_layers=", absl::StrJoin(recomputed_layers, ","));
  return text;
}

std::vector<Violation> FindViolations(const Request& request) {
  std::vector<Violation> found = Finder(request).Run();
  if (found.empty() || request.spec == nullptr || request.batch_sequences < 1) return found;
  if (request.pp.value_or(1) < 1 || request.tp.value_or(1) < 1) return found;
  const bool may_be_cut = !request.pp.has_value() || !request.tp.has_value();
  const bool lacks_sequences = request.batch_sequences < request.data_workers();
  const bool lacks_degrees = request.dp_replicate.has_value() && request.dp_shard.has_value() &&
                             *request.dp_replicate * *request.dp_shard < request.data_workers();
  if (may_be_cut && (lacks_sequences || lacks_degrees) && !PossibleCuts(request).empty()) return {};
  return found;
}

std::vector<Request> PossibleCuts(const Request& request) {
  const auto degrees = [](const std::optional<int64_t>& asked, int64_t whole, int64_t most) {
    std::vector<int64_t> divisors;
    for (int64_t degree = 1; degree <= std::min(whole, most); ++degree) {
      if (whole % degree == 0) divisors.push_back(degree);
    }
    return asked.has_value() ? std::vector<int64_t>{*asked} : divisors;
  };
  std::vector<Request> cuts;
  for (const int64_t tp : degrees(request.tp, request.devices_per_node, AttentionOf(*request.spec).heads)) {
    if (tp < 1) continue;
    for (const int64_t pp : degrees(request.pp, request.num_workers() / tp, NumLayers(*request.spec))) {
      Request cut = request;
      cut.pp = pp;
      cut.tp = tp;
      if (Finder(cut, /*advises=*/false).Run().empty()) cuts.push_back(std::move(cut));
    }
  }
  return cuts;
}

}  // namespace trainctl::layout
