#include "recipe/load.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/lfs_pointer.h"
#include "base/shell_quote.h"
#include "base/status.h"
#include "cluster/catalogue.h"
#include "layout/layout.h"
#include "model/config_json.h"
#include "recipe/checks.h"
#include "recipe/derive.h"
#include "recipe/hosts.h"
#include "recipe/schedule_file.h"
#include "recipe/toml_reader.h"
#include "recipe/values.h"

namespace trainctl::recipe {
namespace {

constexpr int64_t kDefaultBatchTokens = 262144;
constexpr int64_t kMaxConfigBytes = 16 << 20;

// Turns merged entries into a Recipe: what a field stands for, not whether the fields agree.
class Resolver {
 public:
  Resolver(const Draft& draft, const Access& access, absl::string_view what, Issues& issues, Issues& missing,
           Purpose purpose)
      : draft_(draft),
        access_(access),
        what_(what),
        issues_(issues),
        missing_(missing),
        is_what_if_(purpose == Purpose::kWhatIf) {
    loaded_.purpose = purpose;
  }

  LoadedRecipe Run() {
    ResizeLists();
    ResolveModel();
    ApplyEntries();
    ApplyOptimizerDefaults(recipe(), [&](absl::string_view path) { return draft_.Find(path) != nullptr; });
    CheckWeights();
    ResolveTokenizer();
    ResolveDevicesPerNode();
    ResolveRoot();
    CheckHostsFile();
    ResolveScheduleFile();
    ResolveSources();
    ResolveBatchAndLength();
    ResolveCheckpoint(recipe());
    FillOrigins();
    return std::move(loaded_);
  }

 private:
  Recipe& recipe() { return loaded_.recipe; }

  std::string Where(absl::string_view path) const {
    const Entry* entry = draft_.Find(path);
    return entry == nullptr ? std::string(what_) : entry->origin;
  }

  void ResizeLists() {
    for (const char* list : {"data.train", "data.eval"}) {
      Schema::ResizeList(recipe(), list, draft_.ListSize(list));
    }
  }

  const std::string* Text(absl::string_view path) const {
    const Entry* entry = draft_.Find(path);
    return entry == nullptr ? nullptr : std::get_if<std::string>(&entry->value);
  }

  // The spec of the preset or folder; the dimensions beside it are applied on top.
  void ResolveModel() {
    model::ModelSpec& spec = recipe().model.spec;
    if (const std::string* preset = Text("model.preset")) {
      SetBase("model.preset", model::Preset(*preset));
    } else if (const std::string* folder = Text("model.from")) {
      const std::string config = absl::StrCat(*folder, "/config.json");
      const absl::StatusOr<std::string> text = access_.read_file(config);
      const absl::Status pointer = text.ok() ? RefuseLfsPointer(*text, config) : absl::OkStatus();
      if (!pointer.ok()) {
        issues_.AddBadData(Where("model.from"), absl::StrCat("model.from: ", pointer.message()));
        issues_.MarkBad("model.spec");
        return;
      }
      SetBase("model.from", text.ok() ? ReadModel(*text, config) : SayingHowToFetch(*folder, text.status()));
    } else if (issues_.IsBad("model.family")) {
      issues_.MarkBad("model.spec");
    } else if (Text("model.family") != nullptr) {
      for (const char* name : {"layers", "hidden", "heads", "ffn", "vocab"}) {
        const std::string path = absl::StrCat("model.", name);
        if (draft_.Find(path) != nullptr || issues_.IsBad(path)) continue;
        issues_.Add(Where("model.family"),
                    absl::StrCat(path, " is missing; model.family has no sizes of its own"));
        issues_.MarkBad(path);
      }
    } else {
      if (!issues_.IsBad("model.preset") && !issues_.IsBad("model.from") && !issues_.IsBad("model.family") &&
          !issues_.IsBad("model")) {
        issues_.Add(what_, absl::StrCat("the model is missing: give model.preset (", PresetList(),
                                        "), model.from (a Hugging Face folder) or model.family"));
      }
      issues_.MarkBad("model.spec");
    }
    const model::ModelSpec base = spec;
    for (const auto& [path, entry] : draft_.entries()) {
      if (absl::StartsWith(path, "model.") && entry.field->set) entry.field->set(recipe(), 0, entry.value);
    }
    DeriveHeads(base, spec);
  }

  // A what-if takes every model that can be described, the trainer what it runs exactly.
  absl::StatusOr<model::ModelSpec> ReadModel(absl::string_view config_json, absl::string_view what) const {
    TRAINCTL_ASSIGN_OR_RETURN(const model::ConfigModel model, model::ReadConfigJson(config_json, what));
    if (is_what_if_) return model.spec;
    absl::StatusOr<model::ModelSpec> trained = model::FromHuggingFaceConfig(config_json, what);
    if (trained.ok()) return trained;
    return absl::Status(trained.status().code(),
                        absl::StrCat(trained.status().message(), WhatElseOf(model.spec, trained.status())));
  }

  // "Qwen/Qwen2.5-0.5B" is how the Hub names a model, and not a folder here.
  absl::Status SayingHowToFetch(const std::string& folder, const absl::Status& status) const {
    if (!absl::StartsWith(folder, access_.working_dir + "/") || access_.is_folder(folder)) return status;
    const std::string name = folder.substr(access_.working_dir.size() + 1);
    if (std::count(name.begin(), name.end(), '/') != 1 || absl::StartsWith(name, ".")) return status;
    const std::string quoted = ShellQuote(name);
    return absl::Status(
        status.code(),
        absl::StrCat(status.message(), "; to fetch this model from the Hugging Face Hub: hf download ",
                     quoted, " --local-dir ", quoted));
  }

  static std::string PresetList() {
    const std::vector<std::string> names = model::PresetNames();
    return absl::StrJoin(names, ", ");
  }

  void SetBase(absl::string_view path, const absl::StatusOr<model::ModelSpec>& base) {
    if (base.ok()) {
      recipe().model.spec = *base;
      base_origin_ = absl::StrCat(Where(path), " (", path, ")");
      return;
    }
    const absl::string_view message = base.status().message();
    const std::string text =
        absl::StartsWith(message, path) ? std::string(message) : absl::StrCat(path, ": ", message);
    issues_.Add(Where(path), text);
    issues_.MarkBad("model.spec");
  }

  // Head sizes follow hidden and heads unless they are stated or were the base's own choice.
  void DeriveHeads(const model::ModelSpec& base, model::ModelSpec& spec) {
    const bool has_heads = draft_.Find("model.heads") != nullptr;
    const bool has_hidden = draft_.Find("model.hidden") != nullptr;
    if (draft_.Find("model.kv_heads") == nullptr && has_heads && base.kv_heads == base.heads) {
      spec.kv_heads = spec.heads;
      loaded_.origin["model.kv_heads"] = absl::StrCat(Where("model.heads"), " (= model.heads)");
    }
    const bool own_size = base.head_dim * base.heads != base.hidden || base.latent.has_value();
    if (draft_.Find("model.head_dim") != nullptr || own_size || (!has_heads && !has_hidden)) return;
    if (spec.heads <= 0 || spec.hidden <= 0) return;
    const std::string where = Where(has_hidden ? "model.hidden" : "model.heads");
    if (spec.hidden % spec.heads != 0) {
      issues_.Add(where, absl::StrCat("model.hidden (", spec.hidden, ") is not a multiple of model.heads (",
                                      spec.heads, "); change one of them or give model.head_dim"));
      issues_.MarkBad("model.spec");
      return;
    }
    spec.head_dim = spec.hidden / spec.heads;
    loaded_.origin["model.head_dim"] = absl::StrCat(where, " (model.hidden / model.heads)");
  }

  void ApplyEntries() {
    for (const auto& [path, entry] : draft_.entries()) {
      if (absl::StartsWith(path, "model.") || !entry.field->set) continue;
      if (entry.field->kind == Kind::kStringMap) {
        StringMap map = std::get<StringMap>(*entry.field->get(recipe(), 0));
        map.merge(StringMap(std::get<StringMap>(entry.value)));
        entry.field->set(recipe(), 0, Value(std::move(map)));
        loaded_.origin[path] = entry.origin;
      } else {
        entry.field->set(recipe(), entry.index, entry.value);
      }
    }
  }

  void CheckWeights() {
    const std::string& weights = recipe().model.weights;
    if (draft_.Find("model.weights") == nullptr || weights == "random" || weights == "from") return;
    if (access_.is_folder(weights)) return;
    missing_.Add(Where("model.weights"),
                 absl::StrCat("model.weights: there is no checkpoint folder ", weights));
  }

  // Pretrained weights are fed with the ids that they know.
  void ResolveTokenizer() {
    const ModelConfig& model = recipe().model;
    if (draft_.Find("data.tokenizer") != nullptr || model.weights != "from" || model.from.empty()) return;
    for (const char* name : {"/tokenizer.json", "/tokenizer.model"}) {
      const std::string path = model.from + name;
      if (!access_.is_file || !access_.is_file(path)) continue;
      recipe().data.tokenizer = path;
      loaded_.origin["data.tokenizer"] = absl::StrCat(Where("model.from"), " (model.from)");
      return;
    }
  }

  // An accelerator of the catalogue comes in nodes.
  void ResolveDevicesPerNode() {
    ClusterConfig& cluster = recipe().cluster;
    if (draft_.Find("cluster.devices_per_node") != nullptr || cluster.device == "cpu" ||
        cluster.device == kCudaDevice) {
      return;
    }
    const absl::StatusOr<cluster::DeviceMatch> match = cluster::FindDevice(cluster.device);
    if (!match.ok()) return;
    const cluster::Node* node = &cluster::DefaultNodeFor(*match->device);
    if (cluster.node.has_value()) {
      const absl::StatusOr<const cluster::Node*> stated = cluster::FindNode(*cluster.node);
      if (stated.ok()) node = *stated;
    }
    cluster.devices_per_node = node->gpus;
    loaded_.origin["cluster.devices_per_node"] =
        absl::StrCat(Where("cluster.device"), " (as many as ", node->name, " has)");
  }

  // The default is relative too.
  void ResolveRoot() { recipe().run.root = AbsolutePath(recipe().run.root, access_.working_dir); }

  void CheckHostsFile() {
    constexpr absl::string_view kPath = "launch.ssh.hosts_file";
    const LaunchConfig& launch = recipe().launch;
    const bool is_read = launch.backend == "ssh" && !launch.ssh.hosts_file.empty() && !issues_.IsBad(kPath);
    if (!is_read || is_what_if_) return;
    const std::string& file = launch.ssh.hosts_file;
    const absl::StatusOr<std::string> text = access_.read_file(file);
    if (!text.ok()) {
      missing_.Add(Where(kPath), absl::StrCat(kPath, ": ", text.status().message()));
      return;
    }
    const absl::StatusOr<std::vector<std::string>> hosts = ParseHostsFile(*text, file);
    if (!hosts.ok()) return issues_.Add(hosts.status());
    if (issues_.IsBad("cluster.nodes")) return;
    const absl::Status enough = CheckEnoughHosts(*hosts, recipe().cluster.nodes, file);
    if (!enough.ok()) missing_.Add(Where(kPath), enough.message());
  }

  void ResolveScheduleFile() {
    constexpr absl::string_view kPath = "parallel.schedule_file";
    if (recipe().parallel.schedule_file.empty() || issues_.IsBad(kPath)) return;
    const absl::Status status = ReadScheduleFile(access_, recipe());
    if (status.ok()) {
      loaded_.origin["parallel.passes"] = absl::StrCat(Where(kPath), " (", kPath, ")");
      return;
    }
    issues_.Add(Where(kPath), absl::StrCat(kPath, ": ", status.message()));
    issues_.MarkBad(kPath);
  }

  void ResolveSources() {
    DataConfig& data = recipe().data;
    if (data.train.empty() && !issues_.IsBadBelow("data.train")) {
      missing_.Add(what_, "the data is missing: give at least one [[data.train]] with files");
      issues_.MarkBad("data.train");
    }
    for (size_t i = 0; i < data.train.size(); ++i) ResolveSource("data.train", "train", i, data.train[i]);
    for (size_t i = 0; i < data.eval.size(); ++i) ResolveSource("data.eval", "eval", i, data.eval[i]);
    DeriveHoldout(recipe());
  }

  void ResolveSource(const std::string& list, const std::string& prefix, size_t index, DataSource& source) {
    const std::string path = absl::StrCat(list, "[", index, "]");
    if (source.name.empty()) source.name = absl::StrCat(prefix, "-", index);
    const std::string files = absl::StrCat(path, ".files");
    if (draft_.Find(files) == nullptr) {
      if (source.holdout > 0 || issues_.IsBadBelow(path) || issues_.IsBadBelow(absl::StrCat(list, "[].")))
        return;
      issues_.Add(draft_.EntryOrigin(list, index),
                  absl::StrCat(files, list == "data.eval" ? " or holdout" : "", " is missing"));
      return;
    }
    if (!is_what_if_) source.files = Expand(files, source.files);
  }

  std::vector<std::string> Expand(const std::string& path, const std::vector<std::string>& patterns) {
    std::vector<std::pair<std::string, std::string>> found;  // file, pattern
    if (patterns.empty()) issues_.Add(Where(path), absl::StrCat(path, ": may not be empty"));
    for (const std::string& pattern : patterns) {
      const absl::StatusOr<std::vector<std::string>> files = access_.expand_glob(pattern);
      if (!files.ok()) {
        missing_.Add(Where(path), absl::StrCat(path, ": ", files.status().message()));
        if (&missing_ != &issues_) found.emplace_back(pattern, pattern);  // planned as it is written
        continue;
      }
      for (const std::string& file : *files) found.emplace_back(file, pattern);
    }
    std::sort(found.begin(), found.end());
    std::vector<std::string> result;
    for (size_t i = 0; i < found.size(); ++i) {
      if (i > 0 && found[i].first == found[i - 1].first) {
        issues_.Add(Where(path), absl::StrCat(path, ": ", found[i].first, " is matched twice, by ",
                                              found[i - 1].second, " and by ", found[i].second));
        break;
      }
      if (!IsValidUtf8(found[i].first)) {
        issues_.Add(Where(path), absl::StrCat(path, ": the name of a file that matches ", found[i].second,
                                              " is not UTF-8; rename it"));
        break;
      }
      result.push_back(found[i].first);
    }
    return result;
  }

  // What a batch is a multiple of: a micro-batch for each worker. Of what-ifs and of what is wrong: 1.
  int64_t SequencesOfAllWorkers() {
    int64_t sequences = 1;
    for (const int64_t factor : {recipe().cluster.nodes, recipe().cluster.devices_per_node,
                                 recipe().train.micro_batch.value_or(1)}) {
      if (is_what_if_ || factor < 1 || factor > layout::kMaxWorkers / sequences) return 1;
      sequences *= factor;
    }
    return sequences;
  }

  void ResolveBatchAndLength() {
    TrainConfig& train = recipe().train;
    const int64_t seq_len = recipe().data.seq_len;
    const bool bad_seq_len = issues_.IsBad("data.seq_len");
    if (const Entry* tokens = draft_.Find("train.batch_tokens"); tokens != nullptr && !bad_seq_len) {
      const int64_t batch_tokens = std::get<int64_t>(tokens->value);
      if (batch_tokens % seq_len != 0) {
        const int64_t unit = seq_len * SequencesOfAllWorkers();
        const int64_t below = batch_tokens / unit * unit;
        issues_.Add(
            tokens->origin,
            absl::StrCat("train.batch_tokens (", batch_tokens, ") is not a multiple of data.seq_len (",
                         seq_len, ")", unit > seq_len ? " for every worker" : "", "; the nearest ",
                         below > 0 ? absl::StrCat("are ", below, " and ") : "is ", below + unit));
        issues_.MarkBad("train.batch_tokens");
      }
      train.batch_sequences = std::max<int64_t>(1, batch_tokens / seq_len);
      loaded_.origin["train.batch_sequences"] = absl::StrCat(tokens->origin, " (train.batch_tokens)");
    } else if (draft_.Find("train.batch_sequences") == nullptr) {
      train.batch_sequences = std::max<int64_t>(1, kDefaultBatchTokens / seq_len);
    }
    const bool bad_batch = issues_.IsBad("train.batch_tokens") || issues_.IsBad("train.batch_sequences");
    if (const Entry* tokens = draft_.Find("train.tokens"); tokens != nullptr) {
      train.steps = StepsForTokens(recipe(), std::get<int64_t>(tokens->value));
      loaded_.origin["train.steps"] = absl::StrCat(tokens->origin, " (train.tokens)");
      if (bad_seq_len || bad_batch) issues_.MarkBad("train.steps");
    } else if (draft_.Find("train.steps") == nullptr) {
      if (!issues_.IsBad("train.steps") && !issues_.IsBad("train.tokens") && !issues_.IsBad("train")) {
        missing_.Add(what_, "the length of the run is missing: give train.steps or train.tokens");
      }
      issues_.MarkBad("train.steps");
    }
  }

  void FillOrigins() {
    for (const auto& [path, entry] : draft_.entries()) loaded_.stated.insert(path);
    for (const Field& field : GetSchema().fields()) {
      if (!field.get || field.kind == Kind::kStringMap) continue;
      const size_t count = field.in_list() ? draft_.ListSize(field.list_name()) : 1;
      for (size_t i = 0; i < count; ++i) {
        const std::string path = field.PathAt(i);
        if (loaded_.origin.count(path) > 0) continue;
        const Entry* entry = draft_.Find(path);
        const bool of_spec = absl::StartsWith(path, "model.") && path != "model.preset" &&
                             path != "model.from" && path != "model.weights";
        loaded_.origin[path] = entry != nullptr ? entry->origin : of_spec ? base_origin_ : "default";
      }
    }
  }

  const Draft& draft_;
  const Access& access_;
  absl::string_view what_;
  Issues& issues_;
  Issues& missing_;
  bool is_what_if_;
  LoadedRecipe loaded_;
  std::string base_origin_ = "default";
};

// What "auto" has found are devices of this machine, so a run here has no more than the environment shows.
void CheckFoundDevices(const Draft& draft, const Recipe& recipe, Issues& issues) {
  constexpr absl::string_view kPath = "cluster.devices_per_node";
  const std::optional<FoundDevice>& found = draft.found_device();
  const Entry* stated = draft.Find(kPath);
  if (!found.has_value() || found->hidden.empty() || found->device == "cpu" || stated == nullptr) return;
  if (recipe.cluster.devices_per_node <= found->devices_per_node) return;
  if (recipe.launch.backend != "local" || recipe.cluster.nodes > 1) return;
  issues.Add(stated->origin, absl::StrCat(kPath, " = ", recipe.cluster.devices_per_node, ": ", found->hidden,
                                          ". Each worker needs its own GPU: lower it, or make more visible"));
}

absl::StatusOr<LoadedRecipe> Finish(const Draft& draft, const Access& access, absl::string_view what,
                                    Issues& issues, Purpose purpose) {
  Issues lacks;
  Issues& missing = purpose == Purpose::kTrain ? issues : lacks;
  LoadedRecipe loaded = Resolver(draft, access, what, issues, missing, purpose).Run();
  CheckRecipe(loaded.recipe, loaded.origin, issues, missing, purpose);
  CheckFoundDevices(draft, loaded.recipe, issues);
  TRAINCTL_RETURN_IF_ERROR(issues.ToStatus(what));
  if (purpose == Purpose::kPlan) loaded.missing = lacks.messages();
  loaded.notes = FindNotes(loaded.recipe, loaded.origin);
  if (draft.found_device().has_value()) {
    const FoundDevice& found = *draft.found_device();
    loaded.notes.insert(loaded.notes.begin(), absl::StrCat("cluster.device = auto: ",
                                                           found.words.empty() ? found.device : found.words));
  }
  return loaded;
}

bool IsOurs(const Draft& draft) {
  const Entry* framework = draft.Find("plan.framework");
  return framework == nullptr || framework->value == Value(PlanConfig().framework);
}

// A name that is wrong is the caller's mistake; a file that cannot be read is the machine's.
absl::StatusOr<std::string> ReadNamedFile(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return UsageError(absl::StrCat("there is no file ", path));
  }
  if (std::filesystem::is_directory(status))
    return UsageError(absl::StrCat(path, " is a folder, not a file"));
  absl::StatusOr<std::string> text = ReadFile(path, kMaxConfigBytes);
  if (ExitCodeFor(text.status()) == ExitCode::kBadData) return UsageError(text.status().message());
  return text;
}

}  // namespace

Access RealAccess() {
  Access access;
  std::error_code error;
  access.working_dir = std::filesystem::current_path(error).string();
  access.environment = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  access.read_file = ReadNamedFile;
  access.expand_glob = ExpandGlob;
  access.is_folder = [](const std::string& path) {
    std::error_code ignored;
    return std::filesystem::is_directory(path, ignored);
  };
  access.is_file = [](const std::string& path) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(path, ignored);
  };
  return access;
}

absl::StatusOr<LoadedRecipe> LoadRecipe(const std::string& path, absl::Span<const std::string> sets,
                                        const Access& access, Purpose purpose) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, access.read_file(path));
  return LoadRecipeText(text, path, sets, access, purpose);
}

absl::StatusOr<LoadedRecipe> LoadRecipeText(absl::string_view text, const std::string& path,
                                            absl::Span<const std::string> sets, const Access& access,
                                            Purpose purpose) {
  Issues issues;
  Draft draft(access, issues);
  draft.AddFile(path, text);
  draft.AddSets(sets);
  draft.ResolveDevice();
  if (purpose == Purpose::kWhatIf && IsOurs(draft)) purpose = Purpose::kPlan;
  if (draft.is_empty() && !draft.has_unread_file() && sets.empty()) {
    return UsageError(absl::StrCat(path, " is empty; a recipe has at least a model, data and train.steps"));
  }
  // Without the values of a file that could not be read every check would complain about them.
  if (draft.has_unread_file()) return issues.ToStatus(path);
  return Finish(draft, access, path, issues, purpose);
}

}  // namespace trainctl::recipe
