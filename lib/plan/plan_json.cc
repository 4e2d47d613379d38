// plan.json: what MakePlan decided, for the workers and for people.

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json.h"
#include "base/status.h"
#include "cluster/machine.h"
#include "optim/optimizer.h"
#include "plan/plan.h"

namespace trainctl::plan {
namespace {

constexpr char kSchemaPrefix[] = "trainctl.plan.v";
constexpr int kSchemaVersion = 1;

Json ToJson(const layout::Layout& layout) {
  Json json = {{"strategy", std::string(layout::StrategyName(layout.zero_stage))},
               {"zero_stage", layout.zero_stage},
               {"mesh",
                {{"pp", layout.mesh.pp},
                 {"dp_replicate", layout.mesh.dp_replicate},
                 {"dp_shard", layout.mesh.dp_shard},
                 {"cp", layout.mesh.cp},
                 {"tp", layout.mesh.tp}}},
               {"micro_batch", layout.micro_batch},
               {"accumulation", layout.num_micro_batches},
               {"recompute", std::string(layout::RecomputeName(layout.recompute))}};
  if (!layout.recomputed_layers.empty()) json["recomputed_layers"] = layout.recomputed_layers;
  if (layout.mesh.tp > 1) json["sequence_parallel"] = layout.sequence_parallel;
  if (layout.mesh.pp > 1) {
    json["pipeline"] = {{"schedule", layout.pipeline.order},
                        {"virtual_stages", layout.pipeline.virtual_stages},
                        {"stage_layers", layout.pipeline.stage_layers}};
    if (layout.pipeline.HasOwnPasses()) json["pipeline"]["passes"] = layout.pipeline.passes;
  }
  return json;
}

Json ToJson(const simulate::MemoryReport& memory) {
  Json json = {{"peak_bytes", memory.peak_bytes}};
  for (int i = 0; i < schedule::kNumCategories; ++i) {
    const auto category = static_cast<schedule::Category>(i);
    json[absl::StrCat(schedule::CategoryName(category), "_bytes")] = memory.at_peak[static_cast<size_t>(i)];
  }
  json["peak_instruction"] = memory.peak_instruction;
  json["peak_where"] = memory.peak_where;
  return json;
}

Json ToJson(const Candidate& candidate) {
  return {{"layout", ToJson(candidate.layout)},
          {"memory", ToJson(candidate.memory)},
          {"estimated_step_seconds", candidate.step_seconds},
          {"sent_bytes_per_step", candidate.sent_bytes},
          {"fits", candidate.fits},
          {"chosen", candidate.chosen},
          {"reason", candidate.reason}};
}

// Of a device, under these names.
constexpr std::pair<const char*, double simulate::ShapeScales::*> kScales[] = {
    {"products_scale", &simulate::ShapeScales::products},
    {"attention_scale", &simulate::ShapeScales::attention},
    {"attention_backward_scale", &simulate::ShapeScales::attention_backward}};

Json ToJson(const simulate::Rates& rates) {
  Json json = {{"measured", rates.measured}, {"overlap", rates.overlap}};
  for (int i = 0; i < simulate::kNumResources; ++i) {
    const auto resource = static_cast<simulate::Resource>(i);
    json[absl::StrCat(simulate::ResourceName(resource), "_seconds")] = rates[resource];
  }
  if (rates.machine != nullptr) {
    json["machine"] = cluster::ToJson(rates.machine->stated);
    json["vendor_attention"] = rates.attention == simulate::FusedAttention::kVendor;
    if (rates.measured) {
      for (const auto& [name, scale] : kScales) json[name] = rates.scales.*scale;
    }
  }
  return json;
}

// What the plan depends on: nothing that names the machine.
Json ToJson(const cluster::Host& host) {
  return {{"cpu", host.cpu},
          {"allowed_cores", host.allowed_cores},
          {"memory_available_bytes", host.memory_available_bytes},
          {"native_bf16", host.native_bf16},
          {"accelerator", host.accelerator},
          {"accelerator_memory_bytes", host.accelerator_memory_bytes}};
}

// Reads fields of one object; the first mistake sticks.
class Reader {
 public:
  Reader(const Json& object, std::string what) : object_(object), what_(std::move(what)) {
    if (!object.is_object()) status_ = BadDataError(absl::StrCat(what_, ": must be an object"));
  }

  template <typename T>
  void Int(const char* key, T* value, int64_t minimum) {
    if (!status_.ok()) return;
    const absl::StatusOr<int64_t> number = JsonInt(object_, key, what_);
    if (!number.ok()) {
      status_ = number.status();
    } else if (*number < minimum || *number > int64_t{std::numeric_limits<T>::max()}) {
      status_ = BadDataError(absl::StrCat(what_, ": field '", key, "' is out of range: ", *number));
    } else {
      *value = static_cast<T>(*number);
    }
  }
  void Double(const char* key, double* value) { Take(JsonDouble, key, value); }
  void Bool(const char* key, bool* value) { Take(JsonBool, key, value); }
  void String(const char* key, std::string* value) { Take(JsonString, key, value); }

  // An empty object, and an error, when it is missing.
  const Json& Object(const char* key) {
    static const Json* const empty = new Json(Json::object());
    if (!status_.ok()) return *empty;
    const auto it = object_.find(key);
    if (it != object_.end()) return *it;
    status_ = BadDataError(absl::StrCat(what_, ": field '", key, "' is missing"));
    return *empty;
  }

  const std::string& what() const { return what_; }
  const absl::Status& status() const { return status_; }
  void Fail(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }

 private:
  template <typename T>
  void Take(absl::StatusOr<T> (*read)(const Json&, absl::string_view, absl::string_view), const char* key,
            T* value) {
    if (!status_.ok()) return;
    absl::StatusOr<T> result = read(object_, key, what_);
    if (result.ok()) {
      *value = *std::move(result);
    } else {
      status_ = result.status();
    }
  }

  const Json& object_;
  std::string what_;
  absl::Status status_;
};

// Of each stage.
absl::Status ReadLayers(Reader& reader, const char* key, std::vector<int64_t>* layers) {
  const Json& list = reader.Object(key);
  TRAINCTL_RETURN_IF_ERROR(reader.status());
  for (const Json& count : list) {
    if (!count.is_number_integer() || count.get<int64_t>() < 0 || count.get<int64_t>() > (1 << 20))
      return BadDataError(absl::StrCat(reader.what(), ": field '", key, "' must hold numbers of layers"));
    layers->push_back(count.get<int64_t>());
  }
  return absl::OkStatus();
}

absl::Status FromJson(const Json& json, const std::string& what, layout::Pipeline* pipeline) {
  Reader reader(json, what);
  reader.String("schedule", &pipeline->order);
  int stages = 1;
  reader.Int("virtual_stages", &stages, 1);
  pipeline->virtual_stages = stages;
  TRAINCTL_RETURN_IF_ERROR(ReadLayers(reader, "stage_layers", &pipeline->stage_layers));
  if (!json.contains("passes")) return absl::OkStatus();
  const Json& passes = reader.Object("passes");
  TRAINCTL_RETURN_IF_ERROR(reader.status());
  for (const Json& line : passes) {
    if (!line.is_string()) return BadDataError(absl::StrCat(what, ": field 'passes' must hold texts"));
    pipeline->passes.push_back(line.get<std::string>());
  }
  return absl::OkStatus();
}

absl::Status FromJson(const Json& json, const std::string& what, layout::Layout* layout) {
  Reader reader(json, what);
  reader.Int("zero_stage", &layout->zero_stage, 0);
  reader.Int("micro_batch", &layout->micro_batch, 1);
  int accumulation = 1;
  reader.Int("accumulation", &accumulation, 1);
  layout->num_micro_batches = accumulation;
  std::string recompute;
  reader.String("recompute", &recompute);
  Reader mesh(reader.Object("mesh"), what + ": mesh");
  const auto degree = [&mesh](const char* key) {
    int value = 1;  // so that the product below does not overflow
    mesh.Int(key, &value, 1);
    return value;
  };
  layout->mesh = {.pp = degree("pp"),
                  .dp_replicate = degree("dp_replicate"),
                  .dp_shard = degree("dp_shard"),
                  .cp = degree("cp"),
                  .tp = degree("tp")};
  TRAINCTL_RETURN_IF_ERROR(reader.status());
  TRAINCTL_RETURN_IF_ERROR(mesh.status());
  const layout::Mesh& m = layout->mesh;
  if (m.cp != 1 || m.pp > layout::kMaxWorkers || m.tp > layout::kMaxWorkers / m.pp ||
      m.data_degree() > layout::kMaxWorkers / (m.pp * m.tp)) {
    return BadDataError(
        absl::StrCat(what, ": mesh ", layout->mesh.ToString(), " is not one of this version"));
  }
  if (m.tp > 1) reader.Bool("sequence_parallel", &layout->sequence_parallel);
  if (layout->mesh.pp > 1) {
    TRAINCTL_RETURN_IF_ERROR(
        FromJson(reader.Object("pipeline"), absl::StrCat(what, ": pipeline"), &layout->pipeline));
    TRAINCTL_RETURN_IF_ERROR(reader.status());
    const int64_t stages = layout->mesh.pp * layout->pipeline.virtual_stages;
    if (static_cast<int64_t>(layout->pipeline.stage_layers.size()) != stages)
      return BadDataError(absl::StrCat(what, ": field 'stage_layers' is not of ", stages, " stages"));
  }
  if (layout->micro_batch > (1 << 24) || layout->num_micro_batches > (1 << 20)) {
    return BadDataError(absl::StrCat(what, ": field 'micro_batch' or 'accumulation' is out of range: ",
                                     layout->micro_batch, ", ", layout->num_micro_batches));
  }
  if (layout->zero_stage > 3) {
    return BadDataError(absl::StrCat(what, ": field 'zero_stage' is out of range: ", layout->zero_stage));
  }
  const std::optional<layout::Recompute> known = layout::ParseRecompute(recompute);
  if (!known.has_value()) {
    return BadDataError(absl::StrCat(what, ": field 'recompute' is \"", recompute,
                                     "\", not none, selective, attention or full"));
  }
  layout->recompute = *known;
  if (!json.contains("recomputed_layers")) return absl::OkStatus();
  TRAINCTL_RETURN_IF_ERROR(ReadLayers(reader, "recomputed_layers", &layout->recomputed_layers));
  const int64_t stages = layout->mesh.pp * layout->pipeline.virtual_stages;
  const int64_t named = static_cast<int64_t>(layout->recomputed_layers.size());
  if (layout->recompute != layout::Recompute::kFull || named != stages) {
    return BadDataError(absl::StrCat(what, ": field 'recomputed_layers' is of ", named,
                                     " stages with recompute ", recompute, ", not of ", stages,
                                     " with full"));
  }
  return absl::OkStatus();
}

absl::Status FromJson(const Json& json, const std::string& what, simulate::Rates* rates) {
  Reader reader(json, what);
  reader.Bool("measured", &rates->measured);
  reader.Bool("overlap", &rates->overlap);
  for (int i = 0; i < simulate::kNumResources; ++i) {
    const auto resource = static_cast<simulate::Resource>(i);
    const std::string key = absl::StrCat(simulate::ResourceName(resource), "_seconds");
    // Plans of versions that priced such an exchange as a collective.
    if (resource == simulate::Resource::kTensorExchanges && !json.contains(key)) {
      (*rates)[resource] = (*rates)[simulate::Resource::kCollectives];
      continue;
    }
    reader.Double(key.c_str(), &(*rates)[resource]);
  }
  TRAINCTL_RETURN_IF_ERROR(reader.status());
  const auto machine = json.find("machine");
  if (machine == json.end()) return absl::OkStatus();
  const std::string where = absl::StrCat(what, ": machine");
  TRAINCTL_ASSIGN_OR_RETURN(const cluster::StatedMachine stated,
                            cluster::StatedMachineFromJson(*machine, where));
  absl::StatusOr<std::shared_ptr<const cluster::Machine>> found = cluster::MachineOf(stated);
  if (!found.ok()) return BadDataError(absl::StrCat(where, ": ", found.status().message()));
  rates->machine = *std::move(found);
  bool vendor_attention = false;
  if (json.contains("vendor_attention")) reader.Bool("vendor_attention", &vendor_attention);
  rates->attention = vendor_attention ? simulate::FusedAttention::kVendor : simulate::FusedAttention::kFlash2;
  if (rates->measured) {
    for (const auto& [name, scale] : kScales) reader.Double(name, &(rates->scales.*scale));
  }
  return reader.status();
}

absl::Status FromJson(const Json& json, const std::string& what, cluster::Host* host) {
  Reader reader(json, what);
  reader.String("cpu", &host->cpu);
  reader.Int("allowed_cores", &host->allowed_cores, 1);
  reader.Int("memory_available_bytes", &host->memory_available_bytes, 0);
  reader.Bool("native_bf16", &host->native_bf16);
  reader.String("accelerator", &host->accelerator);
  reader.Int("accelerator_memory_bytes", &host->accelerator_memory_bytes, 0);
  return reader.status();
}

absl::Status FromJson(const Json& json, const std::string& what, simulate::MemoryReport* memory) {
  Reader reader(json, what);
  reader.Int("peak_bytes", &memory->peak_bytes, 0);
  for (int i = 0; i < schedule::kNumCategories; ++i) {
    const std::string key =
        absl::StrCat(schedule::CategoryName(static_cast<schedule::Category>(i)), "_bytes");
    reader.Int(key.c_str(), &memory->at_peak[static_cast<size_t>(i)], 0);
  }
  reader.Int("peak_instruction", &memory->peak_instruction, -1);
  reader.String("peak_where", &memory->peak_where);
  return reader.status();
}

absl::Status FromJson(const Json& json, const std::string& what, Candidate* candidate) {
  Reader reader(json, what);
  TRAINCTL_RETURN_IF_ERROR(FromJson(reader.Object("layout"), what + ": layout", &candidate->layout));
  TRAINCTL_RETURN_IF_ERROR(FromJson(reader.Object("memory"), what + ": memory", &candidate->memory));
  reader.Double("estimated_step_seconds", &candidate->step_seconds);
  reader.Int("sent_bytes_per_step", &candidate->sent_bytes, 0);
  reader.Bool("fits", &candidate->fits);
  reader.Bool("chosen", &candidate->chosen);
  reader.String("reason", &candidate->reason);
  return reader.status();
}

absl::Status CheckSchema(const Json& json, const std::string& what) {
  if (!json.is_object()) return BadDataError(absl::StrCat(what, ": must be an object"));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string schema, JsonString(json, "schema", what));
  int version = 0;
  if (!absl::StartsWith(schema, kSchemaPrefix) ||
      !absl::SimpleAtoi(absl::string_view(schema).substr(sizeof(kSchemaPrefix) - 1), &version) ||
      version < 1) {
    return BadDataError(absl::StrCat(what, ": schema is \"", schema, "\", not \"", kPlanSchema, "\""));
  }
  if (version > kSchemaVersion) {
    return BadDataError(absl::StrCat(what, ": written by a newer trainctl (", schema,
                                     "; this one reads up to ", kPlanSchema, "); use that version"));
  }
  return absl::OkStatus();
}

absl::Status ReadWork(Reader& reader, Plan* plan) {
  const Json& by_name = reader.Object("work");
  TRAINCTL_RETURN_IF_ERROR(reader.status());
  if (!by_name.is_object()) return BadDataError(absl::StrCat(reader.what(), ": 'work' must be an object"));
  for (const auto& [name, json] : by_name.items()) {
    Reader work(json, absl::StrCat(reader.what(), ": work of '", name, "'"));
    work.Int("launches", &plan->work[name].launches, 0);
    work.Int("moved_bytes", &plan->work[name].moved_bytes, 0);
    TRAINCTL_RETURN_IF_ERROR(work.status());
  }
  return absl::OkStatus();
}

// The members of SearchCounts, by their names in JSON.
constexpr std::pair<const char*, int64_t SearchCounts::*> kSearchCounts[] = {
    {"strategies", &SearchCounts::strategies}, {"bounded", &SearchCounts::bounded},
    {"pruned", &SearchCounts::pruned},         {"folded", &SearchCounts::folded},
    {"whole", &SearchCounts::whole},           {"tried", &SearchCounts::tried}};

absl::Status ReadSearch(const Json& json, const std::string& what, SearchCounts* search) {
  Reader reader(json, what);
  for (const auto& [name, member] : kSearchCounts) reader.Int(name, &(search->*member), 0);
  return reader.status();
}

absl::Status ReadLists(Reader& reader, Plan* plan) {
  const Json& candidates = reader.Object("candidates");
  const Json& notes = reader.Object("notes");
  TRAINCTL_RETURN_IF_ERROR(reader.status());
  if (!candidates.is_array() || !notes.is_array()) {
    return BadDataError(absl::StrCat(reader.what(), ": 'candidates' and 'notes' must be lists"));
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    Candidate candidate;
    TRAINCTL_RETURN_IF_ERROR(
        FromJson(candidates[i], absl::StrCat(reader.what(), ": candidates[", i, "]"), &candidate));
    plan->candidates.push_back(std::move(candidate));
  }
  for (const Json& note : notes) {
    if (!note.is_string()) return BadDataError(absl::StrCat(reader.what(), ": 'notes' must hold strings"));
    plan->notes.push_back(note.get<std::string>());
  }
  return absl::OkStatus();
}

// Element types that this version trains with. Earlier plans state that of computing alone.
absl::Status ReadTypes(const Json& json, const std::string& where, schedule::Types& types) {
  struct Field {
    const char* name;
    DType* type;
    std::vector<DType> known;
  };
  for (const Field& field : {Field{"compute_dtype", &types.compute, {DType::kF32, DType::kBF16}},
                             Field{"master_dtype", &types.master, {DType::kF32, DType::kBF16}},
                             Field{"gradient_dtype", &types.gradient, {DType::kF32}},
                             Field{"sum_dtype", &types.sum, {DType::kF32}}}) {
    if (field.type != &types.compute && !json.contains(field.name)) continue;
    std::string text;
    Reader reader(json, where);
    reader.String(field.name, &text);
    TRAINCTL_RETURN_IF_ERROR(reader.status());
    const absl::StatusOr<DType> parsed = ParseDType(text);
    if (parsed.ok() && std::count(field.known.begin(), field.known.end(), *parsed) > 0) {
      *field.type = *parsed;
      continue;
    }
    return BadDataError(absl::StrCat(where, ": field '", field.name, "' is \"", text, "\", not ",
                                     absl::StrJoin(field.known, " or ", [](std::string* out, DType type) {
                                       absl::StrAppend(out, DTypeName(type));
                                     })));
  }
  if (types.master == DType::kBF16 && types.compute != DType::kBF16)
    return BadDataError(absl::StrCat(where, ": master_dtype is BF16 and compute_dtype is not"));
  return absl::OkStatus();
}

}  // namespace

Json PlanToJsonObject(const Plan& plan) {
  Json json = {{"schema", kPlanSchema},
               {"layout", ToJson(plan.layout)},
               {"step_hash", plan.step_hash},
               {"seq_len", plan.setting.seq_len},
               {"compute_dtype", std::string(DTypeName(plan.setting.types.compute))},
               {"master_dtype", std::string(DTypeName(plan.setting.types.master))},
               {"gradient_dtype", std::string(DTypeName(plan.setting.types.gradient))},
               {"sum_dtype", std::string(DTypeName(plan.setting.types.sum))},
               {"prefetch", plan.setting.prefetch},
               {"checkpoint_copy", plan.setting.checkpoint_copy},
               {"workspace_bytes", plan.setting.workspace_bytes},
               {"optimizer", std::string(plan.setting.optimizer->name)},
               {"threads_per_worker", plan.threads_per_worker},
               {"nodes", plan.nodes},
               {"devices_per_node", plan.devices_per_node},
               {"device", plan.device},
               {"hardware", plan.hardware},
               {"host", ToJson(plan.host)},
               {"num_parameters", plan.num_parameters},
               {"flops_per_token", plan.flops_per_token},
               {"peak_flops", plan.peak_flops},
               {"rates", ToJson(plan.rates)},
               {"memory_limit_bytes", plan.memory_limit_bytes},
               {"predicted", ToJson(plan.predicted)},
               {"notes", plan.notes},
               {"candidates", Json::array()}};
  for (const auto& [name, member] : kSearchCounts) json["search"][name] = plan.search.*member;
  for (const Candidate& candidate : plan.candidates) json["candidates"].push_back(ToJson(candidate));
  if (plan.shares_devices) json["shares_devices"] = true;
  for (const auto& [name, work] : plan.work)
    json["work"][name] = {{"launches", work.launches}, {"moved_bytes", work.moved_bytes}};
  return json;
}

std::string PlanToJson(const Plan& plan) { return FormatJson(PlanToJsonObject(plan), 2) + "\n"; }

absl::StatusOr<Plan> PlanFromJson(absl::string_view text, absl::string_view what) {
  TRAINCTL_ASSIGN_OR_RETURN(const Json json, ParseJson(text, what));
  const std::string where(what);
  TRAINCTL_RETURN_IF_ERROR(CheckSchema(json, where));
  Plan plan;
  Reader reader(json, where);
  TRAINCTL_RETURN_IF_ERROR(FromJson(reader.Object("layout"), where + ": layout", &plan.layout));
  TRAINCTL_RETURN_IF_ERROR(FromJson(reader.Object("predicted"), where + ": predicted", &plan.predicted));
  TRAINCTL_RETURN_IF_ERROR(FromJson(reader.Object("rates"), where + ": rates", &plan.rates));
  // Plans of earlier versions have no hash; their steps cannot be compared.
  if (json.contains("step_hash")) reader.String("step_hash", &plan.step_hash);
  reader.Int("seq_len", &plan.setting.seq_len, 1);
  reader.Bool("prefetch", &plan.setting.prefetch);
  if (json.contains("checkpoint_copy")) reader.Bool("checkpoint_copy", &plan.setting.checkpoint_copy);
  if (json.contains("workspace_bytes")) reader.Int("workspace_bytes", &plan.setting.workspace_bytes, 0);
  // Earlier versions had AdamW alone.
  std::string optimizer(optim::kAdamW.name);
  if (json.contains("optimizer")) reader.String("optimizer", &optimizer);
  reader.Int("threads_per_worker", &plan.threads_per_worker, 1);
  if (json.contains("nodes")) reader.Int("nodes", &plan.nodes, 1);
  if (json.contains("devices_per_node")) reader.Int("devices_per_node", &plan.devices_per_node, 1);
  reader.String("device", &plan.device);
  plan.setting.on_device = plan.device != "cpu";
  plan.setting.threads = plan.setting.on_device ? 1 : plan.threads_per_worker;
  if (json.contains("host")) {
    TRAINCTL_RETURN_IF_ERROR(reader.status());
    TRAINCTL_RETURN_IF_ERROR(FromJson(reader.Object("host"), where + ": host", &plan.host));
  }
  if (json.contains("shares_devices")) reader.Bool("shares_devices", &plan.shares_devices);
  if (json.contains("hardware")) reader.String("hardware", &plan.hardware);
  reader.Int("num_parameters", &plan.num_parameters, 1);
  reader.Double("flops_per_token", &plan.flops_per_token);
  if (json.contains("peak_flops")) reader.Double("peak_flops", &plan.peak_flops);
  reader.Int("memory_limit_bytes", &plan.memory_limit_bytes, 0);
  TRAINCTL_RETURN_IF_ERROR(ReadLists(reader, &plan));
  if (json.contains("work")) TRAINCTL_RETURN_IF_ERROR(ReadWork(reader, &plan));
  if (json.contains("search"))
    TRAINCTL_RETURN_IF_ERROR(ReadSearch(reader.Object("search"), where + ": search", &plan.search));
  TRAINCTL_RETURN_IF_ERROR(reader.status());
  TRAINCTL_RETURN_IF_ERROR(ReadTypes(json, where, plan.setting.types));
  plan.setting.optimizer = optim::Find(optimizer);
  if (plan.setting.optimizer == nullptr) {
    return BadDataError(absl::StrCat(where, ": field 'optimizer' is \"", optimizer, "\", not ",
                                     absl::StrJoin(optim::Names(), ", ")));
  }
  return plan;
}

}  // namespace trainctl::plan
