#include "published/read_row.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/names.h"
#include "base/status.h"
#include "model/parameters.h"
#include "published/known_models.h"
#include "published/recompute_modules.h"

namespace trainctl::published {
namespace {

using model::Attention;
using model::Mlp;

constexpr double kMostSequences = 1e9;
constexpr double kMostToCount = 1e9;
constexpr int64_t kMicroBatchesPerStage = 4;  // of a pipeline whose batch is not stated

// One row while it is read: its cells, and the assumptions made so far.
class RowReader {
 public:
  RowReader(const RowCells& cells, const RowColumns& columns) : cells_(cells), columns_(columns) {}

  PublishedRun Read() {
    PublishedRun run;
    run.id = Cell("id");
    run.source = Cell("source");
    run.measured_memory_gib = Number("peak_mem_gib");
    run.has_time = Number("tokens_per_sec_per_gpu") > 0;
    run.outcome = Outcome(run.has_time);
    if (columns_.framework == nullptr) {
      run.reason = "framework is not stated";
      return run;
    }
    framework_ = columns_.framework.get();
    run.framework = columns_.framework;
    const bool decimal = columns_.figures.decimal_units.value_or(framework_->reports_decimal_units);
    if (decimal && run.measured_memory_gib > 0) {
      run.measured_memory_gib *= 1e9 / (1024.0 * 1024 * 1024);
      Assume(absl::StrCat("measured in units of 1e9 bytes (", framework_->name, ")"));
    }
    run.metric = columns_.figures.metric.value_or(framework_->metric);
    absl::StatusOr<frameworks::Workload> workload = ReadWorkload();
    if (!workload.ok()) {
      run.reason = std::string(workload.status().message());
      return run;
    }
    const double tokens_per_second =
        Number("tokens_per_sec_per_gpu") * static_cast<double>(workload->mesh.world_size());
    if (tokens_per_second > 0) {
      run.measured_step_seconds = static_cast<double>(workload->global_batch) *
                                  static_cast<double>(workload->seq_len) / tokens_per_second;
    }
    run.workload = *std::move(workload);
    run.reason = absl::StrJoin(assumptions_, "; ");
    run.configuration = Configuration(*run.workload);
    return run;
  }

 private:
  std::string Cell(const std::string& column) const {
    const auto it = cells_.find(column);
    return it == cells_.end() ? "" : it->second;
  }
  bool Has(const std::string& column) const { return !Cell(column).empty(); }
  // 0 where the cell is empty; that it is a number has been checked.
  double Number(const std::string& column) const {
    double value = 0;
    return absl::SimpleAtod(Cell(column), &value) ? value : 0;
  }
  int64_t Count(const std::string& column) const {
    return static_cast<int64_t>(std::llround(Number(column)));
  }
  void Assume(std::string text) { assumptions_.push_back(std::move(text)); }
  static absl::Status Unknown(absl::string_view what) { return BadDataError(what); }

  bool Is(absl::string_view framework) const { return framework == framework_->name; }
  bool IsMegatronCore() const { return Is("megatron-core") || Is("megatron-bridge"); }

  RunOutcome Outcome(bool has_time) const {
    if (columns_.figures.outcome.has_value()) return *columns_.figures.outcome;
    return has_time || Has("peak_mem_gib") ? RunOutcome::kRan : RunOutcome::kUnknown;
  }

  absl::StatusOr<frameworks::Workload> ReadWorkload() {
    frameworks::Workload w;
    w.framework = framework_;
    TRAINCTL_RETURN_IF_ERROR(ReadMachine(w));
    TRAINCTL_RETURN_IF_ERROR(ReadModel(w));
    TRAINCTL_RETURN_IF_ERROR(ReadPrecision(w));
    TRAINCTL_RETURN_IF_ERROR(ReadMesh(w));
    TRAINCTL_RETURN_IF_ERROR(ReadBatch(w));
    TRAINCTL_RETURN_IF_ERROR(ReadRecompute(w));
    SettingTarget target{.workload = &w};
    for (const SettingValue& value : columns_.settings) value.Apply(target);
    TRAINCTL_RETURN_IF_ERROR(frameworks::Validate(w));
    return w;
  }

  absl::Status ReadMachine(frameworks::Workload& w) {
    if (!Has("gpu_type")) return Unknown("gpu_type is not stated");
    TRAINCTL_ASSIGN_OR_RETURN(const cluster::DeviceMatch match, cluster::FindDevice(Cell("gpu_type")));
    w.device = match.device;
    if (!match.assumption.empty()) Assume(match.assumption);
    w.node = &cluster::DefaultNodeFor(*w.device);
    if (columns_.figures.node != nullptr) w.node = columns_.figures.node;
    return absl::OkStatus();
  }

  absl::Status ReadModel(frameworks::Workload& w) {
    const std::string name = Cell("model");
    const ModelConfig& config = columns_.model_config;
    if (!config.whole.has_value() && absl::StrContains(absl::AsciiStrToLower(name), "nemotron")) {
      return Unknown("layers that are not attention and MLP (Mamba) are not priced");
    }
    if (!Has("seq_len")) return Unknown("seq_len is not stated");
    w.seq_len = Count("seq_len");
    model::Architecture& a = w.model;
    const model::NamedModel* known = config.whole.has_value() ? nullptr : FindKnownModel(name);
    const bool is_known = known != nullptr || config.whole.has_value();
    if (config.whole.has_value()) {
      a = *config.whole;
    } else if (known != nullptr) {
      a = known->spec;
      if (!Has("ffn") || FindExperts(a) != nullptr || !Has("heads"))
        Assume(absl::StrCat("model from ", known->source));
    }
    if (Has("layers")) {
      TRAINCTL_RETURN_IF_ERROR(model::CheckNumLayers(std::max<int64_t>(1, Count("layers"))));
      SetNumLayers(a, Count("layers"));
    }
    if (Has("hidden")) a.hidden = Count("hidden");
    if (Has("vocab")) a.vocab = Count("vocab");
    if (Has("heads")) SetEach(a, &Attention::heads, Count("heads"));
    if (Has("kv_heads")) SetEach(a, &Attention::kv_heads, Count("kv_heads"));
    if (Has("ffn") && (!is_known || FindExperts(a) == nullptr)) SetEach(a, &Mlp::ffn, Count("ffn"));
    for (const auto& [field, value] : config.fields) Assume(absl::StrCat(field, " = ", value));
    // Which layer is which depends on their number, so both are applied once more when it is known.
    const auto apply = [&] {
      if (config.whole.has_value()) return;
      ApplyFamily(name, w.seq_len, a);
      config.Apply(a);
    };
    apply();
    if (a.hidden <= 0) return Unknown("hidden is not stated");
    if (a.vocab <= 0) return Unknown("vocab is not stated");
    FillHeads(a);
    const Attention& attention = AttentionOf(a);
    if (attention.heads <= 0) return Unknown("heads is not stated");
    if (attention.kv_heads <= 0) SetEach(a, &Attention::kv_heads, attention.heads);
    if ((!is_known && !config.StatesHeadDim()) || attention.head_dim <= 0) {
      const bool is_qwen3 = absl::StrContains(NormalName(name), "qwen3");
      SetEach(a, &Attention::head_dim, is_qwen3 ? 128 : a.hidden / attention.heads);
    }
    FillFfn(a);
    if (NumLayers(a) > 0) return absl::OkStatus();
    TRAINCTL_RETURN_IF_ERROR(FillLayers(a));
    apply();
    return absl::OkStatus();
  }

  void FillHeads(model::Architecture& a) {
    if (AttentionOf(a).heads > 0) return;
    // The largest multiple of 32 that divides the width and leaves a head of at least 128.
    for (int64_t heads = a.hidden / 128 / 32 * 32; heads > 0; heads -= 32) {
      if (a.hidden % heads != 0) continue;
      SetEach(a, &Attention::heads, heads);
      Assume(absl::StrCat("heads = ", heads));
      return;
    }
  }

  void FillFfn(model::Architecture& a) {
    const Mlp& mlp = MlpOf(a);
    if (mlp.ffn > 0 || (FindExperts(a) != nullptr && NumDenseLayers(a) == 0)) return;
    SetEach(a, &Mlp::ffn, mlp.gated ? (a.hidden * 8 / 3 + 255) / 256 * 256 : 4 * a.hidden);
    Assume(
        absl::StrCat("ffn = ", mlp.ffn, mlp.gated ? " (8/3 of hidden, rounded up to 256)" : " (4 x hidden)"));
  }

  absl::Status FillLayers(model::Architecture& a) {
    if (!Has("n_params_b")) return Unknown("layers is not stated");
    SetNumLayers(a, 1);
    TRAINCTL_RETURN_IF_ERROR(Validate(a));
    const double outside = static_cast<double>(EmbeddingParameters(a) + HeadParameters(a));
    const double layer = static_cast<double>(ParametersOfLayer(a, 0).total());
    const double layers = std::round((Number("n_params_b") * 1e9 - outside) / layer);
    const auto count = static_cast<int64_t>(std::clamp(layers, 1.0, kMostToCount));
    TRAINCTL_RETURN_IF_ERROR(model::CheckNumLayers(count));
    SetNumLayers(a, count);
    Assume(absl::StrCat("layers = ", NumLayers(a), " (from the number of parameters)"));
    return absl::OkStatus();
  }

  absl::Status ReadPrecision(frameworks::Workload& w) {
    std::string precision = absl::AsciiStrToLower(Cell("precision"));
    if (precision.empty()) {
      precision = framework_->default_precision;
      Assume(absl::StrCat("precision = ", precision, " (", framework_->name, ")"));
    }
    const std::pair<const char*, frameworks::Precision> names[] = {
        {"fp32", frameworks::Precision::kFp32},   {"fp16", frameworks::Precision::kFp16},
        {"bf16", frameworks::Precision::kBf16},   {"fp8", frameworks::Precision::kFp8},
        {"mxfp8", frameworks::Precision::kMxfp8}, {"nvfp4", frameworks::Precision::kNvfp4}};
    for (const auto& [name, value] : names) {
      if (precision == name) {
        w.precision = value;
        return absl::OkStatus();
      }
    }
    return Unknown(absl::StrCat("precision '", precision, "' is not known"));
  }

  // "fsdp2(32)", "zero1 (8-GPU subgroup)": the first number that is not part of a name.
  static int64_t GroupIn(const std::string& text) {
    const size_t open = text.find('(');
    return open == std::string::npos ? 0 : std::atoll(text.c_str() + open + 1);
  }

  absl::Status ReadMesh(frameworks::Workload& w) {
    if (!Has("n_gpus")) return Unknown("n_gpus is not stated");
    const int64_t gpus = Count("n_gpus");
    if (gpus <= 0) return Unknown(absl::StrCat("n_gpus is ", gpus));
    if (gpus > 1 && !Has("tp")) return Unknown("tp is not stated");
    if (gpus > 1 && !Has("pp")) return Unknown("pp is not stated");
    const auto degree = [&](const char* column) { return std::max<int64_t>(1, Count(column)); };
    w.mesh.tp = degree("tp");
    w.mesh.pp = degree("pp");
    w.virtual_stages = degree("vpp");
    w.mesh.cp = degree("cp");
    w.mesh.ep = degree("ep");
    const double ranks =
        static_cast<double>(w.mesh.tp) * static_cast<double>(w.mesh.pp) * static_cast<double>(w.mesh.cp);
    const int64_t model_parallel = ranks > static_cast<double>(gpus) ? 0 : w.mesh.tp * w.mesh.pp * w.mesh.cp;
    if (model_parallel == 0 || gpus % model_parallel != 0) {
      return Unknown(absl::StrCat("tp ", w.mesh.tp, " x pp ", w.mesh.pp, " x cp ", w.mesh.cp,
                                  " does not divide ", gpus, " GPUs"));
    }
    const int64_t dp = gpus / model_parallel;
    const std::string how = absl::AsciiStrToLower(Cell("dp_shard"));
    if (absl::StrContains(how, "offload")) return Unknown("offload to the host is not priced");
    if (absl::StrContains(how, "zero3") || absl::StartsWith(how, "fsdp")) {
      w.zero_stage = absl::StrContains(how, "shard_grad_op") ? 2 : 3;
    } else if (absl::StrContains(how, "zero2")) {
      w.zero_stage = 2;
    } else if (absl::StrContains(how, "zero1")) {
      w.zero_stage = 1;
    } else if (how == "none" || absl::StrContains(how, "zero0")) {
      w.zero_stage = 0;
    } else if (IsMegatronCore()) {
      w.zero_stage = 1;
      Assume(absl::StrCat("the distributed optimizer (", framework_->name, ")"));
    }
    const int64_t group = GroupIn(how);
    w.mesh.dp_shard = group > 0 && !absl::StrContains(how, "fsdp=") ? group : dp;
    if (dp % w.mesh.dp_shard != 0) {
      return Unknown(absl::StrCat("a sharding group of ", w.mesh.dp_shard, " does not divide dp ", dp));
    }
    w.mesh.dp_replicate = dp / w.mesh.dp_shard;
    return absl::OkStatus();
  }

  absl::Status ReadBatch(frameworks::Workload& w) {
    if (!Has("micro_batch")) return Unknown("micro_batch is not stated");
    w.micro_batch = Count("micro_batch");
    if (Has("global_batch_seqs")) {
      w.global_batch = Count("global_batch_seqs");
      return absl::OkStatus();
    }
    // A pipeline is not run with fewer micro-batches than stages; four for each leave a fifth of bubble at
    // most.
    const int64_t accumulation = w.mesh.pp > 1 ? kMicroBatchesPerStage * w.mesh.pp : 1;
    const double sequences = static_cast<double>(w.micro_batch) * static_cast<double>(w.mesh.data_degree()) *
                             static_cast<double>(accumulation);
    if (sequences > kMostSequences) return Unknown("micro_batch and n_gpus make a batch that no run had");
    w.global_batch = w.micro_batch * w.mesh.data_degree() * accumulation;
    Assume(absl::StrCat("global batch = ", w.global_batch, " (", accumulation, " micro-batch a rank)"));
    return absl::OkStatus();
  }

  absl::Status ReadRecompute(frameworks::Workload& w) {
    std::string recompute = absl::AsciiStrToLower(Cell("activation_recompute"));
    if (recompute.empty()) {
      recompute = framework_->default_recompute;
      Assume(absl::StrCat("recompute = ", recompute, " (", framework_->name, ")"));
    }
    if (recompute == "none") {
      w.recompute = frameworks::RecomputeKind::kNone;
    } else if (recompute == "full") {
      w.recompute = frameworks::RecomputeKind::kFull;
    } else if (absl::StartsWith(recompute, "selective")) {
      w.recompute = frameworks::RecomputeKind::kSelective;
      const size_t colon = recompute.find(':');
      if (colon != std::string::npos &&
          !ParseRecomputeModules(recompute.substr(colon + 1), w.recompute_modules)) {
        w.recompute_modules = frameworks::kCoreAttention;
        Assume(absl::StrCat("'", recompute, "' taken as core_attn: it names a module that is not known"));
      }
    } else {
      return Unknown(absl::StrCat("activation_recompute '", recompute, "' is not known"));
    }
    return absl::OkStatus();
  }

  std::string Configuration(const frameworks::Workload& w) const {
    std::vector<std::string> parts = {w.framework->name, w.device->name,    Cell("activation_recompute"),
                                      Cell("dp_shard"),  Cell("precision"), Cell("optimizer"),
                                      Cell("model")};
    const model::Architecture& a = w.model;
    const Attention& attention = AttentionOf(a);
    for (int64_t number : {NumLayers(a), a.hidden, MlpOf(a).ffn, attention.heads, attention.kv_heads, a.vocab,
                           w.seq_len, w.micro_batch, w.global_batch, w.mesh.tp, w.mesh.pp, w.virtual_stages,
                           w.mesh.cp, w.mesh.ep, w.mesh.data_degree(), w.mesh.dp_shard}) {
      parts.push_back(absl::StrCat(number));
    }
    std::vector<std::string> settings;
    for (const SettingValue& value : columns_.settings) {
      settings.push_back(absl::StrCat(value.setting->name, "=", value.text));
    }
    std::sort(settings.begin(), settings.end());
    return absl::StrCat(absl::StrJoin(parts, "|"), "|", Cell("model_config"), "|",
                        absl::StrJoin(settings, ";"));
  }

  const RowCells& cells_;
  const RowColumns& columns_;
  const frameworks::FrameworkProfile* framework_ = nullptr;
  std::vector<std::string> assumptions_;
};

}  // namespace

PublishedRun ReadRow(const RowCells& cells, const RowColumns& columns) {
  return RowReader(cells, columns).Read();
}

}  // namespace trainctl::published
