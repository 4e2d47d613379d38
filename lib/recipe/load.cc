#include "recipe/load.h"

#include <algorithm>
#include <initializer_list>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/folder_paths.h"
#include "base/status.h"
#include "cluster/catalogue.h"
#include "layout/layout.h"
#include "recipe/checks.h"
#include "recipe/derive.h"
#include "recipe/epochs.h"
#include "recipe/hosts.h"
#include "recipe/layers.h"
#include "recipe/model_folder.h"
#include "recipe/notes.h"
#include "recipe/resolve_model.h"
#include "recipe/schedule_file.h"
#include "recipe/toml_reader.h"
#include "recipe/values.h"

namespace trainctl::recipe {
namespace {

constexpr int64_t kDefaultBatchTokens = 262144;

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
    base_origin_ = ResolveModel(draft_, access_, what_, issues_, loaded_);
    ApplyEntries();
    ApplyOptimizerDefaults(recipe(), [&](absl::string_view path) { return draft_.Find(path) != nullptr; });
    CheckWeights();
    ResolveTokenizer();
    ResolveSeqLen();
    ResolveDevicesPerNode();
    ResolveRoot();
    CheckHostsFile();
    ResolveScheduleFile();
    ResolveSources();
    ResolveBatch();
    ResolveSteps();
    FillOrigins();
    return std::move(loaded_);
  }

 private:
  Recipe& recipe() { return loaded_.recipe; }

  std::string Where(absl::string_view path) const { return draft_.OriginOf(path, what_); }

  bool IsAnyBad(std::initializer_list<absl::string_view> paths) const {
    return std::any_of(paths.begin(), paths.end(),
                       [&](absl::string_view path) { return issues_.IsBad(path); });
  }

  void ResizeLists() {
    for (const char* list : {"data.train", "data.eval"}) {
      Schema::ResizeList(recipe(), list, draft_.ListSize(list));
    }
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
    missing_.Add(Where("model.weights"), absl::StrCat("model.weights: no such checkpoint folder: ", weights));
  }

  // Pretrained weights are fed with the ids that they know.
  void ResolveTokenizer() {
    const ModelConfig& model = recipe().model;
    if (draft_.Find("data.tokenizer") != nullptr || model.weights != "from" || model.from.empty()) return;
    const std::string file = TokenizerOfFolder(model.from, access_);
    if (file.empty()) return;
    recipe().data.tokenizer = file;
    loaded_.origin["data.tokenizer"] = absl::StrCat(Where("model.from"), " (model.from)");
  }

  // The default is for models that can see as many tokens.
  void ResolveSeqLen() {
    const int64_t longest = recipe().model.spec.max_position;
    if (draft_.Find("data.seq_len") != nullptr || issues_.IsBadBelow("model")) return;
    if (longest < 1 || longest >= recipe().data.seq_len) return;
    recipe().data.seq_len = longest;
    loaded_.origin["data.seq_len"] = absl::StrCat(base_origin_, ", the most that the model supports");
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
        absl::StrCat(Where("cluster.device"), " (the number that ", node->name, " contains)");
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
      missing_.Add(what_, "no training data; add at least one [[data.train]] entry with `files`");
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
    if (patterns.empty()) issues_.Add(Where(path), absl::StrCat(path, ": must not be empty"));
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

  void ResolveBatch() {
    TrainConfig& train = recipe().train;
    const int64_t seq_len = recipe().data.seq_len;
    const Entry* tokens = draft_.Find("train.batch_tokens");
    if (tokens != nullptr && !issues_.IsBad("data.seq_len")) {
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
  }

  void ResolveSteps() {
    TrainConfig& train = recipe().train;
    if (const Entry* tokens = draft_.Find("train.tokens"); tokens != nullptr) {
      train.steps = StepsForTokens(recipe(), std::get<int64_t>(tokens->value));
      loaded_.origin["train.steps"] = absl::StrCat(tokens->origin, " (train.tokens)");
      if (IsAnyBad({"data.seq_len", "train.batch_tokens", "train.batch_sequences"})) {
        issues_.MarkBad("train.steps");
      }
    } else if (const Entry* epochs = draft_.Find("train.epochs"); epochs != nullptr) {
      loaded_.origin["train.steps"] = absl::StrCat(epochs->origin, " (train.epochs)");
      issues_.MarkBad("train.steps");  // until ResolveLength
    } else if (draft_.Find("train.steps") == nullptr) {
      if (!IsAnyBad({"train.steps", "train.tokens", "train.epochs", "train"})) {
        missing_.Add(what_, "the run has no length; set train.steps, train.tokens or train.epochs");
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
  std::string base_origin_;  // where the dimensions come from that no layer sets
};

// What "auto" has found are devices of this machine, so a run here has no more than the environment shows.
void CheckFoundDevices(const Draft& draft, const Recipe& recipe, Issues& issues) {
  constexpr absl::string_view kPath = "cluster.devices_per_node";
  const std::optional<FoundDevice>& found = draft.found_device();
  const Entry* stated = draft.Find(kPath);
  if (!found.has_value() || found->hidden.empty() || found->device == "cpu" || stated == nullptr) return;
  if (recipe.cluster.devices_per_node <= found->devices_per_node) return;
  if (recipe.launch.backend != "local" || recipe.cluster.nodes > 1) return;
  issues.Add(stated->origin,
             absl::StrCat(kPath, " = ", recipe.cluster.devices_per_node, ": ", found->hidden,
                          ". Each worker needs its own GPU; lower the number, or make more GPUs visible"));
}

// Sets the length of the run from train.epochs, and checks the fields that depend on it.
absl::Status ResolveLength(const Access& access, absl::string_view what, LoadedRecipe& loaded) {
  Recipe& recipe = loaded.recipe;
  if (!recipe.train.epochs.has_value()) return absl::OkStatus();
  const std::string origin = loaded.origin.at("train.epochs");
  if (loaded.purpose == Purpose::kWhatIf) {
    loaded.notes.push_back(absl::StrCat(origin,
                                        ": train.epochs: estimates of other trainers read no data, so the "
                                        "length of the run is unknown; set train.steps or train.tokens"));
    return absl::OkStatus();
  }
  absl::Status status = Annotate(ResolveEpochs(access, recipe), origin);
  if (!status.ok() && loaded.purpose == Purpose::kPlan) {
    loaded.unknown_length = std::move(status);
    return absl::OkStatus();
  }
  TRAINCTL_RETURN_IF_ERROR(status);
  Issues issues, lacks;
  CheckRecipe(recipe, loaded.origin, issues, lacks, loaded.purpose);
  return issues.ToStatus(what);
}

absl::StatusOr<LoadedRecipe> Finish(const Draft& draft, const Access& access, absl::string_view what,
                                    Issues& issues, Purpose purpose) {
  Issues lacks;
  Issues& missing = purpose == Purpose::kTrain ? issues : lacks;
  LoadedRecipe loaded = Resolver(draft, access, what, issues, missing, purpose).Run();
  CheckRecipe(loaded.recipe, loaded.origin, issues, missing, purpose);
  CheckFoundDevices(draft, loaded.recipe, issues);
  TRAINCTL_RETURN_IF_ERROR(issues.ToStatus(what));
  TRAINCTL_RETURN_IF_ERROR(ResolveLength(access, what, loaded));
  ResolveCheckpoint(loaded.recipe);
  if (purpose == Purpose::kPlan) loaded.missing = lacks.messages();
  const std::vector<std::string> notes = FindNotes(loaded.recipe, loaded.origin);
  loaded.notes.insert(loaded.notes.end(), notes.begin(), notes.end());
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

}  // namespace

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
    return UsageError(
        absl::StrCat(path, " is empty; a recipe must specify at least a model, data and train.steps"));
  }
  // Without the values of a file that could not be read every check would complain about them.
  if (draft.has_unread_file()) return issues.ToStatus(path);
  return Finish(draft, access, path, issues, purpose);
}

}  // namespace trainctl::recipe
