// Every setting of a run: its name, its values, what it means and what it is unless stated. A row here is all
// that a new one needs.

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

// In the order of their enumerations.
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

// A switch of the framework.
template <auto kMember, auto kChoices = nullptr>
Setting Framework(const char* name, const char* meaning, SettingKind kind = KindOf<kMember>()) {
  Setting setting{.name = name, .kind = kind, .scope = kFramework, .meaning = meaning};
  setting.apply = Put<kMember>;
  setting.of_framework = OfFramework<kMember, kChoices>;
  if constexpr (std::is_enum_v<typename MemberOf<decltype(kMember)>::Value>) setting.choices = kChoices();
  return setting;
}

// A switch of the job, the same unstated under every framework.
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

// A switch of the job that is the framework's `kOther` unstated.
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
      "What `peak_mem_gib` counts: tensors, what the caching allocator holds, what the driver shows, or "
      "tensors up to the end of the first step alone",
      [](const SettingValue& v, SettingTarget& t) {
        t.figures->metric = static_cast<frameworks::MemoryMetric>(v.number);
      },
      "");
  figure.of_framework = [](const FrameworkProfile& f) {
    return std::string(kFigureNames[static_cast<size_t>(f.metric)]);
  };
  Setting unit = Special(
      "memory_unit", kChoice, kFigures, kUnits, "The unit of `peak_mem_gib`: 2^30 or 1e9 bytes",
      [](const SettingValue& v, SettingTarget& t) { t.figures->decimal_units = v.number != 0; }, "");
  unit.of_framework = [](const FrameworkProfile& f) {
    return std::string(kUnits[f.reports_decimal_units ? 1 : 0]);
  };
  return {figure, unit,
          Special(
              "outcome", kChoice, kFigures, kOutcomes, "Whether the job fitted its devices",
              [](const SettingValue& v, SettingTarget& t) {
                t.figures->outcome = static_cast<RunOutcome>(v.number);
              },
              "ran, where a figure was measured"),
          Special(
              "node", kNode, kFigures, {}, "The machine around the devices, of docs/catalogue.md",
              [](const SettingValue& v, SettingTarget& t) { t.figures->node = v.node; },
              "the device's usual one"),
          Special(
              "variant", kText, kFigures, {},
              "Rows that are alike but for this are not repeats of one configuration: a release, a cluster",
              [](const SettingValue&, SettingTarget&) {}, "")};
}

std::vector<Setting> LayoutSettings() {
  Setting etp = Special(
      "expert_tensor_parallel", kPositive, kWorkload, {}, "Ranks that share each expert",
      [](const SettingValue& v, SettingTarget& t) { t.workload->mesh.etp = static_cast<int64_t>(v.number); },
      "1");
  Setting schedule = Special(
      "schedule", kChoice, kWorkload, Schedules(), "The pipeline's schedule",
      [](const SettingValue& v, SettingTarget& t) {
        t.workload->pipeline = static_cast<schedule::PipelineKind>(v.number);
      },
      "1f1b; interleaved-1f1b with virtual stages");
  schedule.choices_elsewhere = "[as in recipes](recipe.md#parallel)";
  Setting stages = Special(
      "stage_layers", kList, kWorkload, {}, "Layers of each stage, in the order of the model",
      [](const SettingValue& v, SettingTarget& t) { t.workload->stage_layers = v.list; },
      "even, as far as they are");
  Setting embedding =
      JobOrFramework<&Workload::embedding_is_layer, &FrameworkProfile::embedding_counts_as_layer>(
          "embedding_is_layer", "Embedding and head count as layers when layers are cut into stages");
  return {
      etp,
      JobOrFramework<&Workload::sequence_parallel, &FrameworkProfile::sequence_parallel>(
          "sequence_parallel", "With tensor parallelism norms and residuals are cut too"),
      JobOrFramework<&Workload::overlap_tensor_parallel, &FrameworkProfile::overlap_tensor_parallel>(
          "overlap_tensor_parallel", "Its exchanges run beside the products, in pieces"),
      schedule,
      stages,
      embedding,
      Framework<&FrameworkProfile::fills_stages>(
          "fills_stages", "An uneven cut gives each stage the most, the last one the rest"),
      Job<&Workload::context, Contexts>("context", "How context-parallel ranks see each other's keys",
                                        "ring"),
      Job<&Workload::expert_dispatch, Dispatches>(
          "expert_dispatch",
          "How tokens reach experts: a copy to each, or one to each node (DeepEP, HybridEP)", "all-to-all"),
      Job<&Workload::overlap_experts>("overlap_experts",
                                      "That exchange runs beside another micro-batch's passes"),
      Job<&Workload::drops_tokens>("drops_tokens", "Experts get a fixed number of tokens")};
}

std::vector<Setting> RecomputeSettings() {
  return {
      Job<&Workload::recomputed_layers>("recomputed_layers",
                                        "With recompute full: layers of each pipeline rank, the rest "
                                        "keep their activations",
                                        "all"),
      JobOrFramework<&Workload::stops_recompute_early, &FrameworkProfile::stops_recompute_early>(
          "stops_recompute_early", "Full recompute ends when all that the backward needs is there"),
      Job<&Workload::recompute_attention>("recompute_attention",
                                          "Selection by operators does not know the attention kernel"),
      Framework<&FrameworkProfile::selects_operators>("selects_operators",
                                                      "Selective recompute works by operator"),
      Framework<&FrameworkProfile::selects_modules>("selects_modules", "Selective recompute names modules"),
      Job<&Workload::activations_on_host>("activations_on_host",
                                          "Kept activations wait in host memory for the backward"),
      Job<&Workload::offloaded_layers>("offloaded_layers", "The same of so many layers of each pipeline rank",
                                       "0"),
      Job<&Workload::optimizer_on_host>("optimizer_on_host",
                                        "Master copy and moments live and are updated in host memory")};
}

std::vector<Setting> LossSettings() {
  Setting row_bytes = JobOrFramework<&Workload::logit_row_bytes, &FrameworkProfile::logit_row_bytes>(
      "logit_row_bytes", "Of these, by kernels that go over a row twice; stated with logit_moved_bytes");
  row_bytes.kind = kAmount;
  row_bytes.needs = "logit_moved_bytes";
  return {Job<&Workload::loss_chunks>("loss_chunks",
                                      "Logits are formed so many times, for a part of the "
                                      "tokens each",
                                      "1", kPositive),
          JobOrFramework<&Workload::logit_bytes, &FrameworkProfile::logit_bytes>(
              "logit_bytes", "Bytes per logit at the peak of the loss"),
          Framework<&FrameworkProfile::kept_logit_bytes>(
              "kept_logit_bytes", "Of these, what a loss in chunks keeps for all tokens"),
          JobOrFramework<&Workload::logit_moved_bytes, &FrameworkProfile::logit_moved_bytes>(
              "logit_moved_bytes", "Bytes per logit that the loss reads and writes, backward included"),
          row_bytes,
          Framework<&FrameworkProfile::vocab_multiple>("vocab_multiple",
                                                       "The vocabulary is padded to it times tp", kPositive)};
}

std::vector<Setting> PrecisionSettings() {
  Setting transposed = Job<&Workload::transposed_weights>("transposed_weights",
                                                          "Of these a transposed copy is kept beside them");
  transposed.needs = "weights_in_fp8";
  return {Framework<&FrameworkProfile::weight_bytes>("weight_bytes",
                                                     "Bytes per parameter of the copy for products"),
          JobOrFramework<&Workload::gradient_bytes, &FrameworkProfile::gradient_bytes>("gradient_bytes",
                                                                                       "Bytes per gradient"),
          Framework<&FrameworkProfile::bf16_gradient_bytes>(
              "bf16_gradient_bytes", "The same where bf16 has another optimizer; 0: as the others"),
          JobOrFramework<&Workload::optimizer_bytes, &FrameworkProfile::optimizer_bytes>(
              "optimizer_bytes", "Bytes per parameter of master copy and moments"),
          Job<&Workload::half_moments>("half_moments",
                                       "Moments in half precision, which the update unpacks to fp32"),
          JobOrFramework<&Workload::exchanged_gradient_bytes, &FrameworkProfile::exchanged_gradient_bytes>(
              "exchanged_gradient_bytes", "Bytes per gradient on the wire; 0 by framework: as they are kept"),
          Job<&Workload::weights_in_fp8>("weights_in_fp8",
                                         "Matrices are kept in low precision alone, and gathered so"),
          transposed,
          Job<&Workload::gathers_fp8>("gathers_fp8", "Matrices are brought to FP8 before they are gathered"),
          Job<&Workload::half_weight_gradients>(
              "half_weight_gradients", "With low precision: products for gradients of weights are not of it"),
          JobOrFramework<&Workload::quantize_bytes, &FrameworkProfile::quantize_bytes>(
              "quantize_bytes", "Bytes moved to bring an element of an operand to low precision"),
          JobOrFramework<&Workload::quantize_weight_bytes, &FrameworkProfile::quantize_weight_bytes>(
              "quantize_weight_bytes", "The same of a weight; 0 by framework: as an operand"),
          Framework<&FrameworkProfile::quantizes_weights>("quantizes_weights",
                                                          "For every micro-batch, not once a step"),
          Framework<&FrameworkProfile::largest_bytes>(
              "largest_bytes", "Read to find the largest value, where one scale serves a whole operand"),
          Framework<&FrameworkProfile::fp8_saves_inputs>("fp8_saves_inputs",
                                                         "A linear layer keeps its input as FP8"),
          Job<&Workload::fp8_attention>("fp8_attention", "Scores and values too are products of FP8")};
}

std::vector<Setting> KernelSettings() {
  Setting compiled = JobOrFramework<&Workload::fused_elementwise, &FrameworkProfile::fused_activation>(
      "compiled", "A compiler joins norms and activations");
  compiled.of_framework = nullptr;
  compiled.otherwise = "no; what is kept follows fused_activation";
  return {
      Framework<&FrameworkProfile::attention, Attentions>("attention", "The kernel of attention"),
      Framework<&FrameworkProfile::norm, Norms>("norm", "Whose kernels norms are"),
      Framework<&FrameworkProfile::norm_forward_bytes>("norm_forward_bytes",
                                                       "Bytes that a norm moves of an element, forward"),
      Framework<&FrameworkProfile::norm_backward_bytes>("norm_backward_bytes", "The same, backward"),
      Job<&Workload::fused_norms>("fused_norms", "Each a kernel, whatever the framework's are"),
      Framework<&FrameworkProfile::rotary, Rotaries>("rotary", "Rotary embeddings of queries and keys"),
      Framework<&FrameworkProfile::stretched_rotary_apart>(
          "stretched_rotary_apart", "With stretched positions: a kernel for each step"),
      compiled,
      Framework<&FrameworkProfile::fused_activation>("fused_activation",
                                                     "The gate's activation and product are one kernel"),
      Framework<&FrameworkProfile::fused_residual>("fused_residual",
                                                   "Bias, dropout and residual are one kernel"),
      Framework<&FrameworkProfile::joined_gradients>(
          "joined_gradients", "Gradients of an input that several products make: additions in a layer"),
      Framework<&FrameworkProfile::score_bias_bytes>(
          "score_bias_bytes", "Moved per score where a bias of the positions is added to it"),
      Job<&Workload::fused_experts>(
          "fused_experts", "With low precision: activation and casts happen inside experts' products"),
      Framework<&FrameworkProfile::expert_streams>(
          "expert_streams", "Products of experts that run side by side, each a launch; 0: all in one",
          kCount),
      Framework<&FrameworkProfile::expert_extras_apart>(
          "expert_extras_apart", "Clamps, biases and padding of experts are kernels of their own"),
      Framework<&FrameworkProfile::expert_layer_kernels>("expert_layer_kernels",
                                                         "Small kernels of a layer's routing and counting"),
      Framework<&FrameworkProfile::waits_for_counts>(
          "waits_for_counts", "The host waits until it knows how many tokens each expert gets"),
      JobOrFramework<&Workload::launches_operators, &FrameworkProfile::launches_operators>(
          "launches_operators", "The host launches operators one by one; else they are compiled, or graphs"),
      Framework<&FrameworkProfile::blocking_launches>("blocking_launches",
                                                      "The host waits for every kernel")};
}

std::vector<Setting> UpdateSettings() {
  Setting dropout = Special(
      "dropout", kSwitch, kWorkload, {}, "After attention and after the MLP",
      [](const SettingValue& v, SettingTarget& t) { t.workload->model.dropout = v.number != 0; }, "no");
  dropout.of_workload = [](const Workload& w) { return std::string(w.model.dropout ? "yes" : ""); };
  return {
      dropout,
      Job<&Workload::frozen>("adapters_only", "Adapters alone are trained: nothing of the rest is updated"),
      Job<&Workload::optimizer_in_backward>("optimizer_in_backward",
                                            "A gradient is applied and dropped as soon as it is there"),
      Framework<&FrameworkProfile::update_moved_bytes>(
          "update_moved_bytes",
          "Bytes that the update moves of a parameter, kernel by kernel; 0: one kernel for all"),
      Framework<&FrameworkProfile::update_kernels>("update_kernels", "Kernels launched for each tensor"),
      Framework<&FrameworkProfile::accumulates_in_product>(
          "accumulates_in_product", "Products add gradients of weights to fp32 ones themselves"),
      Framework<&FrameworkProfile::bf16_added_gradient_bytes>(
          "bf16_added_gradient_bytes",
          "Moved per weight to add a gradient, where bf16 has another optimizer"),
      Framework<&FrameworkProfile::gradient_twice>(
          "gradient_twice", "A weight's gradient is formed beside the one that it is added to"),
      Framework<&FrameworkProfile::gradients_stay>("gradients_stay",
                                                   "Buffers of gradients are there from the start")};
}

std::vector<Setting> ExchangeSettings() {
  return {
      Framework<&FrameworkProfile::overlap_data_parallel>("overlap_data_parallel",
                                                          "Reductions of gradients run beside the backward"),
      Framework<&FrameworkProfile::owners_broadcast>(
          "owners_broadcast", "ZeRO-1 and 2: gradients are all-reduced, owners broadcast whole tensors"),
      Framework<&FrameworkProfile::gathers_by_block>("gathers_by_block",
                                                     "ZeRO-2 too gathers block by block beside the forward"),
      Framework<&FrameworkProfile::whole_gradients_in_pipeline>(
          "whole_gradients_in_pipeline",
          "ZeRO-2 and 3 under a pipeline: gradients are added up whole and scattered once"),
      Framework<&FrameworkProfile::copies_gathered_blocks>("copies_gathered_blocks",
                                                           "A gathered block is copied into its parameters"),
      Framework<&FrameworkProfile::gathers_in_own_pool>(
          "gathers_in_own_pool", "Gathered blocks lie in a pool that nothing else may use"),
      Framework<&FrameworkProfile::flat_gradients>(
          "flat_gradients", "Of a block: joined into one, cast to what is reduced, divided in place"),
      Framework<&FrameworkProfile::bucket_copy_bytes>("bucket_copy_bytes",
                                                      "Moved of a gradient into a bucket, there, and back"),
      Framework<&FrameworkProfile::overlap_bucket_elements>(
          "overlap_bucket_elements", "Gradients of a bucket beside the backward; 0: Megatron's", kCount),
      Framework<&FrameworkProfile::bucket_elements>(
          "bucket_elements", "Elements of the buffers that gradients and parameters pass through", kCount)};
}

std::vector<Setting> BufferSettings() {
  return {
      Framework<&FrameworkProfile::half_shards>(
          "half_shards", "Fully sharded: a half-precision shard is kept beside the fp32 one"),
      Framework<&FrameworkProfile::weight_gradient_buffer>("weight_gradient_buffer",
                                                           "A bf16 buffer for each shape of weight"),
      Framework<&FrameworkProfile::step_bytes>("step_bytes",
                                               "Per updated parameter while the optimizer runs"),
      Framework<&FrameworkProfile::flat_step_bytes>(
          "flat_step_bytes", "The same in blocks too large for the room that activations leave"),
      Framework<&FrameworkProfile::reduced_copy_elements>(
          "reduced_copy_elements", "Gradients that are copied to one flat buffer to be reduced", kCount),
      Framework<&FrameworkProfile::bf16_reduced_copy_bytes>(
          "bf16_reduced_copy_bytes", "With an optimizer for bf16: bytes of each, of all gradients"),
      Framework<&FrameworkProfile::embedding_norm>("embedding_norm", "A norm follows the embedding"),
      Framework<&FrameworkProfile::expandable_segments>("expandable_segments",
                                                        "Asked of the caching allocator"),
      Framework<&FrameworkProfile::context_bytes>("context_bytes", "The CUDA context with its kernels"),
      Framework<&FrameworkProfile::workspace_bytes>("workspace_bytes",
                                                    "Workspaces outside the caching allocator"),
      Framework<&FrameworkProfile::nccl_channels>("nccl_channels", "Of NCCL inside a machine", kPositive),
      Framework<&FrameworkProfile::nccl_connects_all>("nccl_connects_all", "NCCL connects trees too at once"),
      Framework<&FrameworkProfile::tensor_groups>("tensor_groups", "Communicators over tensor-parallel ranks",
                                                  kCount),
      Framework<&FrameworkProfile::data_groups>("data_groups", "Over data-parallel ranks", kCount),
      Framework<&FrameworkProfile::world_groups>("world_groups", "Over all ranks", kCount)};
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
