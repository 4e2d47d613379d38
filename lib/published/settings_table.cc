// The table of all settings of a measured run: name, allowed values, meaning and default. To add a setting,
// add a row here.

#include <array>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "published/settings.h"
#include "schedule/pipeline.h"

namespace trainctl::published {
namespace {

using frameworks::FrameworkProfile;
using frameworks::Workload;
using enum SettingKind;
using enum SettingScope;

// Names of the enumerators, in the order of their declaration.
constexpr const char* kAttentions[] = {"scores", "flash1", "flash2", "vendor"};
constexpr const char* kNorms[] = {"library", "plain", "compiled"};
constexpr const char* kRotaries[] = {"none", "fused", "complex"};
constexpr const char* kContexts[] = {"ring", "all-gather", "all-to-all"};
constexpr const char* kDispatches[] = {"all-to-all", "node-aware"};
constexpr const char* kFigureNames[] = {"allocated", "reserved", "device", "first-step"};
constexpr const char* kUnits[] = {"GiB", "GB"};
constexpr const char* kOutcomes[] = {"unknown", "ran", "out-of-memory"};

absl::Span<const char* const> Schedules() {
  static const auto* const names = [] {
    auto* list = new std::array<const char*, schedule::kNumPipelineKinds>();
    for (int k = 0; k < schedule::kNumPipelineKinds; ++k) {
      (*list)[static_cast<size_t>(k)] =
          schedule::PipelineKindName(static_cast<schedule::PipelineKind>(k)).data();
    }
    return list;
  }();
  return *names;
}

template <typename T>
struct Unwrapped {
  using Type = T;
};
template <typename T>
struct Unwrapped<std::optional<T>> {
  using Type = T;
};

template <typename Pointer>
struct MemberOf;
template <typename C, typename V>
struct MemberOf<V C::*> {
  using Class = C;
  using Value = typename Unwrapped<V>::Type;
  static constexpr bool kIsOptional = !std::is_same_v<V, Value>;
};

std::string Shown(double value) { return absl::StrFormat("%.12g", value); }

template <typename Value>
std::string TextOf(const Value& value, absl::Span<const char* const> choices) {
  if constexpr (std::is_same_v<Value, bool>) {
    return value ? "yes" : "no";
  } else if constexpr (std::is_enum_v<Value>) {
    return choices[static_cast<size_t>(value)];
  } else if constexpr (std::is_integral_v<Value>) {
    return absl::StrCat(value);
  } else {
    return Shown(value);
  }
}

template <auto kMember>
void Put(const SettingValue& value, SettingTarget& target) {
  using Member = MemberOf<decltype(kMember)>;
  const auto typed = static_cast<typename Member::Value>(value.number);
  if constexpr (std::is_same_v<typename Member::Class, Workload>) {
    target.workload->*kMember = typed;
  } else {
    target.framework->*kMember = typed;
  }
}

template <auto kMember, auto kChoices = nullptr>
std::string OfFramework(const FrameworkProfile& framework) {
  using Value = typename MemberOf<decltype(kMember)>::Value;
  if constexpr (std::is_enum_v<Value>) return kChoices()[static_cast<size_t>(framework.*kMember)];
  return TextOf(framework.*kMember, {});
}

template <auto kMember, auto kChoices = nullptr>
std::string OfWorkload(const Workload& workload) {
  using Member = MemberOf<decltype(kMember)>;
  static const Workload kUnstated;
  if (workload.*kMember == kUnstated.*kMember) return "";
  absl::Span<const char* const> choices;
  if constexpr (std::is_enum_v<typename Member::Value>) choices = kChoices();
  if constexpr (Member::kIsOptional) {
    return TextOf(*(workload.*kMember), choices);
  } else {
    return TextOf(workload.*kMember, choices);
  }
}

absl::Span<const char* const> Attentions() { return kAttentions; }
absl::Span<const char* const> Norms() { return kNorms; }
absl::Span<const char* const> Rotaries() { return kRotaries; }
absl::Span<const char* const> Contexts() { return kContexts; }
absl::Span<const char* const> Dispatches() { return kDispatches; }

template <auto kMember>
constexpr SettingKind KindOf() {
  using Value = typename MemberOf<decltype(kMember)>::Value;
  if (std::is_same_v<Value, bool>) return kSwitch;
  if (std::is_enum_v<Value>) return kChoice;
  return std::is_integral_v<Value> ? kCount : kAmount;
}

// A setting of the framework.
template <auto kMember, auto kChoices = nullptr>
Setting Framework(const char* name, const char* meaning, SettingKind kind = KindOf<kMember>()) {
  Setting setting{.name = name, .kind = kind, .scope = kFramework, .meaning = meaning};
  setting.apply = Put<kMember>;
  setting.of_framework = OfFramework<kMember, kChoices>;
  if constexpr (std::is_enum_v<typename MemberOf<decltype(kMember)>::Value>) setting.choices = kChoices();
  return setting;
}

// A setting of the job with the same default under every framework.
template <auto kMember, auto kChoices = nullptr>
Setting Job(const char* name, const char* meaning, const char* otherwise = "no",
            SettingKind kind = KindOf<kMember>()) {
  Setting setting{.name = name, .kind = kind, .meaning = meaning};
  setting.apply = Put<kMember>;
  setting.otherwise = otherwise;
  setting.of_workload = OfWorkload<kMember, kChoices>;
  if constexpr (std::is_enum_v<typename MemberOf<decltype(kMember)>::Value>) setting.choices = kChoices();
  return setting;
}

// A setting of the job whose default is the framework's `kOther`.
template <auto kMember, auto kOther>
Setting JobOrFramework(const char* name, const char* meaning) {
  Setting setting = Job<kMember>(name, meaning);
  if (setting.kind == kAmount) setting.kind = kSize;
  setting.of_framework = OfFramework<kOther>;
  return setting;
}

Setting Special(const char* name, SettingKind kind, SettingScope scope, absl::Span<const char* const> choices,
                const char* meaning, void (*apply)(const SettingValue&, SettingTarget&),
                const char* otherwise) {
  Setting setting{.name = name, .kind = kind, .scope = scope, .choices = choices, .meaning = meaning};
  setting.apply = apply;
  setting.otherwise = otherwise;
  return setting;
}

std::vector<Setting> FigureSettings() {
  Setting figure = Special(
      "memory_figure", kChoice, kFigures, kFigureNames,
      "What `peak_mem_gib` measures: tensors, memory reserved by the caching allocator, memory in use "
      "according to the driver, or tensors until the end of the first step",
      [](const SettingValue& v, SettingTarget& t) {
        t.figures->metric = static_cast<frameworks::MemoryMetric>(v.number);
      },
      "");
  figure.of_framework = [](const FrameworkProfile& f) {
    return std::string(kFigureNames[static_cast<size_t>(f.metric)]);
  };
  Setting unit = Special(
      "memory_unit", kChoice, kFigures, kUnits, "Unit of `peak_mem_gib`: 2^30 or 1e9 bytes",
      [](const SettingValue& v, SettingTarget& t) { t.figures->decimal_units = v.number != 0; }, "");
  unit.of_framework = [](const FrameworkProfile& f) {
    return std::string(kUnits[f.reports_decimal_units ? 1 : 0]);
  };
  return {figure, unit,
          Special(
              "outcome", kChoice, kFigures, kOutcomes, "Whether the job fit in device memory",
              [](const SettingValue& v, SettingTarget& t) {
                t.figures->outcome = static_cast<RunOutcome>(v.number);
              },
              "ran if a figure was measured"),
          Special(
              "node", kNode, kFigures, {},
              "The machine that contains the devices, by its name in docs/reference/catalogue.md",
              [](const SettingValue& v, SettingTarget& t) { t.figures->node = v.node; },
              "the most common one for the device"),
          Special(
              "variant", kText, kFigures, {},
              "Distinguishes otherwise identical rows, for example by release or cluster, so they do not "
              "count as repeats of one configuration",
              [](const SettingValue&, SettingTarget&) {}, "")};
}

std::vector<Setting> LayoutSettings() {
  Setting etp = Special(
      "expert_tensor_parallel", kPositive, kWorkload, {}, "Number of ranks that share each expert",
      [](const SettingValue& v, SettingTarget& t) { t.workload->mesh.etp = static_cast<int64_t>(v.number); },
      "1");
  Setting schedule = Special(
      "schedule", kChoice, kWorkload, Schedules(), "Pipeline schedule",
      [](const SettingValue& v, SettingTarget& t) {
        t.workload->pipeline = static_cast<schedule::PipelineKind>(v.number);
      },
      "1f1b, or interleaved-1f1b with virtual stages");
  schedule.choices_elsewhere = "[as in a recipe](recipe.md#parallel)";
  Setting stages = Special(
      "stage_layers", kList, kWorkload, {}, "Number of layers in each stage, in model order",
      [](const SettingValue& v, SettingTarget& t) { t.workload->stage_layers = v.list; },
      "as even as possible");
  Setting embedding =
      JobOrFramework<&Workload::embedding_is_layer, &FrameworkProfile::embedding_counts_as_layer>(
          "embedding_is_layer",
          "The embedding and the head each count as a layer when layers are assigned to stages");
  return {etp,
          JobOrFramework<&Workload::sequence_parallel, &FrameworkProfile::sequence_parallel>(
              "sequence_parallel", "Tensor parallelism also shards norms and residuals"),
          JobOrFramework<&Workload::overlap_tensor_parallel, &FrameworkProfile::overlap_tensor_parallel>(
              "overlap_tensor_parallel",
              "Tensor-parallel communication is split into pieces and overlaps with matrix products"),
          schedule,
          stages,
          embedding,
          Framework<&FrameworkProfile::fills_stages>("fills_stages",
                                                     "If layers do not divide evenly, every stage gets the "
                                                     "rounded-up number and the last one gets the rest"),
          Job<&Workload::context, Contexts>("context", "How context-parallel ranks exchange keys and values",
                                            "ring"),
          Job<&Workload::expert_dispatch, Dispatches>(
              "expert_dispatch",
              "How tokens are sent to experts: one copy per expert, or one copy per node that is forwarded "
              "within the node (DeepEP, HybridEP)",
              "all-to-all"),
          Job<&Workload::overlap_experts>(
              "overlap_experts",
              "Token exchanges between experts overlap with the passes of another micro-batch"),
          Job<&Workload::drops_tokens>("drops_tokens", "Each expert processes a fixed number of tokens")};
}

std::vector<Setting> RecomputeSettings() {
  return {
      Job<&Workload::recomputed_layers>("recomputed_layers",
                                        "Number of layers per pipeline rank that full recompute covers; the "
                                        "other layers keep their activations",
                                        "all"),
      JobOrFramework<&Workload::stops_recompute_early, &FrameworkProfile::stops_recompute_early>(
          "stops_recompute_early",
          "Full recompute stops as soon as the backward pass has everything it needs"),
      Job<&Workload::recompute_attention>("recompute_attention",
                                          "Per-operator recompute does not recognize the attention kernel "
                                          "and therefore recomputes attention"),
      Framework<&FrameworkProfile::selects_operators>("selects_operators",
                                                      "Selective recompute chooses individual operators"),
      Framework<&FrameworkProfile::selects_modules>("selects_modules",
                                                    "Selective recompute chooses modules by name"),
      Job<&Workload::activations_on_host>(
          "activations_on_host", "Saved activations are offloaded to host memory until the backward pass"),
      Job<&Workload::offloaded_layers>(
          "offloaded_layers",
          "Number of layers per pipeline rank whose saved activations are offloaded to host memory", "0"),
      Job<&Workload::optimizer_on_host>(
          "optimizer_on_host", "The master weights and moments stay in host memory and are updated there")};
}

std::vector<Setting> LossSettings() {
  Setting row_bytes = JobOrFramework<&Workload::logit_row_bytes, &FrameworkProfile::logit_row_bytes>(
      "logit_row_bytes",
      "The part of `logit_moved_bytes` due to kernels that pass over each row twice; requires "
      "`logit_moved_bytes`");
  row_bytes.kind = kAmount;
  row_bytes.needs = "logit_moved_bytes";
  return {Job<&Workload::loss_chunks>(
              "loss_chunks", "Number of token chunks for which logits are computed one after another", "1",
              kPositive),
          JobOrFramework<&Workload::logit_bytes, &FrameworkProfile::logit_bytes>(
              "logit_bytes", "Bytes per logit at the peak of the loss"),
          Framework<&FrameworkProfile::kept_logit_bytes>(
              "kept_logit_bytes", "The part of `logit_bytes` that a chunked loss retains for all tokens"),
          JobOrFramework<&Workload::logit_moved_bytes, &FrameworkProfile::logit_moved_bytes>(
              "logit_moved_bytes",
              "Bytes per logit that the loss reads and writes in the forward and backward passes"),
          row_bytes,
          Framework<&FrameworkProfile::vocab_multiple>(
              "vocab_multiple", "The vocabulary is padded to a multiple of this number times tp", kPositive)};
}

std::vector<Setting> PrecisionSettings() {
  Setting transposed = Job<&Workload::transposed_weights>(
      "transposed_weights",
      "A transposed copy of each low-precision weight matrix is kept as well; requires `weights_in_fp8`");
  transposed.needs = "weights_in_fp8";
  return {
      Framework<&FrameworkProfile::weight_bytes>(
          "weight_bytes", "Bytes per parameter of the weights used in matrix products"),
      JobOrFramework<&Workload::gradient_bytes, &FrameworkProfile::gradient_bytes>("gradient_bytes",
                                                                                   "Bytes per gradient"),
      Framework<&FrameworkProfile::bf16_gradient_bytes>(
          "bf16_gradient_bytes",
          "Bytes per gradient if the framework uses a different optimizer for bf16; 0 means the same as "
          "`gradient_bytes`"),
      JobOrFramework<&Workload::optimizer_bytes, &FrameworkProfile::optimizer_bytes>(
          "optimizer_bytes", "Bytes per parameter of the master weights and moments"),
      Job<&Workload::half_moments>(
          "half_moments", "Moments are stored in half precision and unpacked to fp32 for the update"),
      JobOrFramework<&Workload::exchanged_gradient_bytes, &FrameworkProfile::exchanged_gradient_bytes>(
          "exchanged_gradient_bytes",
          "Bytes per gradient sent over the network; a default of 0 means the same as `gradient_bytes`"),
      Job<&Workload::weights_in_fp8>("weights_in_fp8",
                                     "Weight matrices are stored and gathered only in low precision"),
      transposed,
      Job<&Workload::gathers_fp8>("gathers_fp8",
                                  "Weight matrices are converted to FP8 before they are gathered"),
      Job<&Workload::half_weight_gradients>(
          "half_weight_gradients", "In low precision, weight gradients are still computed in half precision"),
      JobOrFramework<&Workload::quantize_bytes, &FrameworkProfile::quantize_bytes>(
          "quantize_bytes", "Bytes moved to convert one element of an operand to low precision"),
      JobOrFramework<&Workload::quantize_weight_bytes, &FrameworkProfile::quantize_weight_bytes>(
          "quantize_weight_bytes",
          "Bytes moved to convert one weight to low precision; a default of 0 means the same as "
          "`quantize_bytes`"),
      Framework<&FrameworkProfile::quantizes_weights>(
          "quantizes_weights", "Weights are converted for every micro-batch instead of once per step"),
      Framework<&FrameworkProfile::largest_bytes>(
          "largest_bytes",
          "Bytes read per element to find the largest value when one scale covers a whole operand"),
      Framework<&FrameworkProfile::fp8_saves_inputs>("fp8_saves_inputs",
                                                     "Linear layers save their input in FP8"),
      Job<&Workload::fp8_attention>("fp8_attention", "The two matrix products of attention also run in FP8")};
}

std::vector<Setting> KernelSettings() {
  Setting compiled = JobOrFramework<&Workload::fused_elementwise, &FrameworkProfile::fused_activation>(
      "compiled", "A compiler fuses norms and activations");
  compiled.of_framework = nullptr;
  compiled.otherwise = "no, but saved activations depend on `fused_activation`";
  return {
      Framework<&FrameworkProfile::attention, Attentions>("attention", "Attention kernel"),
      Framework<&FrameworkProfile::norm, Norms>("norm", "Implementation of the norms"),
      Framework<&FrameworkProfile::norm_forward_bytes>(
          "norm_forward_bytes", "Bytes moved per element by the forward pass of a norm"),
      Framework<&FrameworkProfile::norm_backward_bytes>(
          "norm_backward_bytes", "Bytes moved per element by the backward pass of a norm"),
      Job<&Workload::fused_norms>(
          "fused_norms", "Each norm is a single kernel, regardless of the framework's implementation"),
      Framework<&FrameworkProfile::rotary, Rotaries>("rotary",
                                                     "Rotary position embedding of queries and keys"),
      Framework<&FrameworkProfile::stretched_rotary_apart>(
          "stretched_rotary_apart", "Scaled rotary embeddings (YaRN) run as one kernel per operation"),
      compiled,
      Framework<&FrameworkProfile::fused_activation>(
          "fused_activation",
          "A gated MLP runs its activation and the product with the gate as a single kernel"),
      Framework<&FrameworkProfile::fused_residual>("fused_residual",
                                                   "Bias, dropout and residual addition are a single kernel"),
      Framework<&FrameworkProfile::joined_gradients>(
          "joined_gradients", "Additions per layer that sum the input gradients of several matrix products"),
      Framework<&FrameworkProfile::score_bias_bytes>(
          "score_bias_bytes", "Bytes moved per attention score to add a position bias"),
      Job<&Workload::fused_experts>(
          "fused_experts",
          "In low precision, activations and conversions are fused into the experts' matrix products"),
      Framework<&FrameworkProfile::expert_streams>(
          "expert_streams",
          "Number of experts' matrix products that run concurrently, each as its own launch; 0 means that "
          "one launch covers all experts",
          kCount),
      Framework<&FrameworkProfile::expert_extras_apart>(
          "expert_extras_apart", "Clamps, biases and padding of experts are separate kernels"),
      Framework<&FrameworkProfile::expert_layer_kernels>(
          "expert_layer_kernels", "Number of small kernels per layer for routing and counting"),
      Framework<&FrameworkProfile::waits_for_counts>(
          "waits_for_counts", "The host waits until each expert's token count is available"),
      JobOrFramework<&Workload::launches_operators, &FrameworkProfile::launches_operators>(
          "launches_operators",
          "The host launches operators one by one; otherwise they are compiled or captured in a graph"),
      Framework<&FrameworkProfile::blocking_launches>("blocking_launches",
                                                      "The host waits for every kernel to finish")};
}

std::vector<Setting> UpdateSettings() {
  Setting dropout = Special(
      "dropout", kSwitch, kWorkload, {}, "Dropout follows attention and the MLP",
      [](const SettingValue& v, SettingTarget& t) { t.workload->model.dropout = v.number != 0; }, "no");
  dropout.of_workload = [](const Workload& w) { return std::string(w.model.dropout ? "yes" : ""); };
  return {
      dropout,
      Job<&Workload::frozen>("adapters_only", "Only adapters are trained; all other weights are frozen"),
      Job<&Workload::optimizer_in_backward>(
          "optimizer_in_backward", "Each gradient is applied and freed as soon as it has been computed"),
      Framework<&FrameworkProfile::update_moved_bytes>(
          "update_moved_bytes",
          "Bytes per parameter that an update by separate kernels moves; 0 means that one fused kernel "
          "updates everything"),
      Framework<&FrameworkProfile::update_kernels>("update_kernels",
                                                   "Number of kernels that the update launches per tensor"),
      Framework<&FrameworkProfile::accumulates_in_product>(
          "accumulates_in_product", "Matrix products add weight gradients directly to the fp32 gradients"),
      Framework<&FrameworkProfile::bf16_added_gradient_bytes>(
          "bf16_added_gradient_bytes",
          "Bytes moved per weight to accumulate its gradient if the framework uses a different optimizer for "
          "bf16"),
      Framework<&FrameworkProfile::gradient_twice>(
          "gradient_twice",
          "A new weight gradient occupies separate memory until it is added to the accumulated one"),
      Framework<&FrameworkProfile::gradients_stay>(
          "gradients_stay", "Gradient buffers are allocated at startup and never freed")};
}

std::vector<Setting> ExchangeSettings() {
  return {
      Framework<&FrameworkProfile::overlap_data_parallel>(
          "overlap_data_parallel", "Gradient reductions overlap with the backward pass"),
      Framework<&FrameworkProfile::owners_broadcast>("owners_broadcast",
                                                     "With ZeRO-1 and ZeRO-2, gradients are all-reduced, and "
                                                     "each owner broadcasts whole tensors after the update"),
      Framework<&FrameworkProfile::gathers_by_block>(
          "gathers_by_block", "ZeRO-2 also gathers parameters block by block during the forward pass"),
      Framework<&FrameworkProfile::whole_gradients_in_pipeline>(
          "whole_gradients_in_pipeline",
          "In a pipeline, ZeRO-2 and ZeRO-3 accumulate unsharded gradients and scatter them once per step"),
      Framework<&FrameworkProfile::copies_gathered_blocks>(
          "copies_gathered_blocks", "Each gathered block is copied into its parameters"),
      Framework<&FrameworkProfile::gathers_in_own_pool>(
          "gathers_in_own_pool", "Gathered blocks use a memory pool that nothing else can use"),
      Framework<&FrameworkProfile::flat_gradients>("flat_gradients",
                                                   "The gradients of a block are concatenated, cast to the "
                                                   "type of the reduction, and divided in place"),
      Framework<&FrameworkProfile::bucket_copy_bytes>(
          "bucket_copy_bytes",
          "Bytes moved per gradient to copy it into a bucket, divide it there, and copy it back"),
      Framework<&FrameworkProfile::overlap_bucket_elements>(
          "overlap_bucket_elements",
          "Number of gradients per bucket when reductions overlap with the backward pass; 0 means Megatron's "
          "default",
          kCount),
      Framework<&FrameworkProfile::bucket_elements>(
          "bucket_elements", "Number of elements in the buffers used to exchange gradients and parameters",
          kCount)};
}

std::vector<Setting> BufferSettings() {
  return {
      Framework<&FrameworkProfile::half_shards>(
          "half_shards", "With full sharding, a half-precision shard is kept in addition to the fp32 one"),
      Framework<&FrameworkProfile::weight_gradient_buffer>(
          "weight_gradient_buffer", "Each distinct weight shape has its own bf16 buffer"),
      Framework<&FrameworkProfile::step_bytes>(
          "step_bytes", "Temporary bytes per updated parameter while the optimizer runs"),
      Framework<&FrameworkProfile::flat_step_bytes>("flat_step_bytes",
                                                    "Temporary bytes per updated parameter in blocks too "
                                                    "large to reuse the memory of freed activations"),
      Framework<&FrameworkProfile::reduced_copy_elements>(
          "reduced_copy_elements", "Number of gradients that are copied to one flat buffer for a reduction",
          kCount),
      Framework<&FrameworkProfile::bf16_reduced_copy_bytes>(
          "bf16_reduced_copy_bytes",
          "Bytes per gradient of the copy that holds all gradients for the reduction, if the framework uses "
          "a different optimizer for bf16"),
      Framework<&FrameworkProfile::embedding_norm>("embedding_norm", "The embedding is followed by a norm"),
      Framework<&FrameworkProfile::expandable_segments>("expandable_segments",
                                                        "The caching allocator uses expandable segments"),
      Framework<&FrameworkProfile::context_bytes>("context_bytes",
                                                  "Bytes of the CUDA context, including loaded kernels"),
      Framework<&FrameworkProfile::workspace_bytes>("workspace_bytes",
                                                    "Bytes of workspaces outside the caching allocator"),
      Framework<&FrameworkProfile::nccl_channels>("nccl_channels", "Number of NCCL channels within a node",
                                                  kPositive),
      Framework<&FrameworkProfile::nccl_connects_all>(
          "nccl_connects_all", "NCCL connects its trees at initialization, not on first use"),
      Framework<&FrameworkProfile::tensor_groups>(
          "tensor_groups", "Number of communicators over the tensor-parallel ranks", kCount),
      Framework<&FrameworkProfile::data_groups>(
          "data_groups", "Number of communicators over the data-parallel ranks", kCount),
      Framework<&FrameworkProfile::world_groups>("world_groups", "Number of communicators over all ranks",
                                                 kCount)};
}

std::vector<Setting> MakeSettings() {
  const std::pair<const char*, std::vector<Setting>> sections[] = {
      {"Figures and machine", FigureSettings()},
      {"Layout", LayoutSettings()},
      {"Recompute and offload", RecomputeSettings()},
      {"Loss", LossSettings()},
      {"Precision and states", PrecisionSettings()},
      {"Kernels", KernelSettings()},
      {"Gradients and update", UpdateSettings()},
      {"Data parallelism", ExchangeSettings()},
      {"Buffers", BufferSettings()},
  };
  std::vector<Setting> all;
  for (const auto& [section, settings] : sections) {
    for (Setting setting : settings) {
      setting.section = section;
      all.push_back(setting);
    }
  }
  return all;
}

}  // namespace

absl::Span<const Setting> Settings() {
  static const auto* const settings = new std::vector<Setting>(MakeSettings());
  return *settings;
}

}  // namespace trainctl::published
