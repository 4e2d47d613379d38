#include "recipe/checks.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/wildcard.h"
#include "cluster/catalogue.h"
#include "model/config_json.h"
#include "optim/optimizer.h"
#include "recipe/hosts.h"
#include "recipe/timeouts.h"
#include "recipe/values.h"
#include "schedule/layout_step.h"
#include "schedule/pipeline_file.h"
#include "schedule/step.h"

namespace trainctl::recipe {
namespace {

using Origins = std::map<std::string, std::string>;

class Checker {
 public:
  Checker(const Recipe& recipe, const Origins& origin, Issues& issues, Issues& missing)
      : recipe_(recipe), origin_(origin), issues_(issues), missing_(missing) {}

  void Run() {
    CheckSupport();
    CheckRequired();
    CheckNamedSteps("metrics.trace_steps", recipe_.metrics.trace_steps);
    CheckNamedSteps("metrics.profile_steps", recipe_.metrics.profile_steps);
    CheckModel();
    CheckData();
    CheckDevice(/*is_ours=*/true);
    CheckLayout();
    CheckTokens();
    CheckNumerics();
    CheckOptimizer();
    CheckBackend();
    CheckRest();
  }

  // The pricing of other trainers looks at the rest: it knows more models and layouts.
  void RunForWhatIf() {
    if (!issues_.IsBadBelow("model")) {
      if (const absl::Status status = model::Validate(recipe_.model.spec); !status.ok()) {
        FailModel(status.message());
      }
    }
    CheckDevice(/*is_ours=*/false);
    CheckOptimizerOfWhatIf();
    CheckNumDevices();
    CheckTokens();
    CheckRest();
  }

 private:
  bool Usable(std::initializer_list<absl::string_view> paths) const {
    return std::none_of(paths.begin(), paths.end(),
                        [&](absl::string_view path) { return issues_.IsBad(path); });
  }

  bool IsGiven(absl::string_view path) const {
    const auto it = origin_.find(std::string(path));
    return it != origin_.end() && it->second != "default";
  }

  // Where the first of `paths` that was given stands.
  template <typename Paths>
  std::string PlaceOf(const Paths& paths) const {
    for (const auto& path : paths) {
      if (IsGiven(path)) return origin_.at(std::string(path));
    }
    return "";
  }

  void Fail(std::initializer_list<absl::string_view> paths, absl::string_view message) {
    issues_.Add(PlaceOf(paths), message);
  }

  // What the schema knows and this version does not run, wherever it was stated.
  void CheckSupport() {
    const Recipe defaults;
    for (const Field& field : GetSchema().fields()) {
      if (field.unsupported.empty() || issues_.IsBad(field.name)) continue;
      const std::optional<Value> value = field.get(recipe_, 0);
      if (!value.has_value()) continue;
      for (const Unsupported& unsupported : field.unsupported) {
        if (!Matches(unsupported, *value, *field.get(defaults, 0))) continue;
        Fail({field.name}, absl::StrCat(field.name, " = ", ToTomlText(field, *value), ": ", unsupported.why));
        issues_.MarkBad(field.name);
        break;
      }
    }
  }

  static bool Matches(const Unsupported& unsupported, const Value& value, const Value& by_default) {
    if (unsupported.value == "*") return value != by_default;
    if (unsupported.value == ">1") {
      const auto* number = std::get_if<int64_t>(&value);
      return number != nullptr && *number > 1;
    }
    return value == Value(unsupported.value);
  }

  // Loading a file has its own words for these; a stored recipe may lack them.
  void CheckRequired() {
    if (recipe_.train.steps < 1 && Usable({"train.steps"})) Missing("train.steps");
    if (recipe_.train.batch_sequences < 1 && Usable({"train.batch_sequences"})) {
      Missing("train.batch_sequences");
    }
    if (recipe_.data.train.empty() && !issues_.IsBadBelow("data.train")) Missing("data.train");
  }

  // Steps are counted as in metrics.jsonl, from 1.
  void CheckNamedSteps(absl::string_view path, const std::vector<int64_t>& steps) {
    if (!Usable({path, "train.steps"})) return;
    std::set<int64_t> seen;
    for (const int64_t step : steps) {
      if (!seen.insert(step).second) Fail({path}, absl::StrCat(path, ": step ", step, " is there twice"));
      if (step <= recipe_.train.steps) continue;
      Fail({path}, absl::StrCat(path, ": step ", step, " is beyond train.steps (", recipe_.train.steps, ")"));
    }
  }

  void Missing(absl::string_view path) {
    missing_.Add("", absl::StrCat(path, " is missing"));
    issues_.MarkBad(path);
  }

  void CheckModel() {
    if (issues_.IsBadBelow("model")) return;
    const model::ModelSpec& spec = recipe_.model.spec;
    if (const absl::Status status = model::CheckTrainable(spec); !status.ok()) {
      FailModel(absl::StrCat(status.message(), WhatElseOf(spec, status)));
      return;
    }
    if (recipe_.data.tokenizer == "byte" && spec.vocab < 256) {
      Fail({"model.vocab", "model.preset", "model.from"},
           absl::StrCat("model.vocab (", spec.vocab,
                        ") is below the 256 tokens of data.tokenizer = \"byte\""));
    }
    const std::string& end = recipe_.data.end_of_document;
    if (recipe_.data.tokenizer == "byte" && end != "auto") {
      Fail({"data.end_of_document"},
           absl::StrCat(
               "data.end_of_document = ", QuoteToml(end),
               ": bytes have token 256 for it, if model.vocab is above 256; leave it \"auto\", or give "
               "data.tokenizer"));
    }
    if (Usable({"data.seq_len"}) && recipe_.data.seq_len > spec.max_position) {
      Fail({"data.seq_len", "model.max_position"},
           absl::StrCat("data.seq_len (", recipe_.data.seq_len, ") is above model.max_position (",
                        spec.max_position,
                        "); shorten it or set model.max_position = ", recipe_.data.seq_len));
    }
    if (recipe_.model.weights == "from" && recipe_.model.from.empty()) {
      Fail({"model.weights"}, "model.weights = \"from\" needs model.from, the folder with the weights");
    }
    if (Usable({"optimizer.no_decay"})) CheckNoDecay(spec);
  }

  // At the stated dimension that the message is about, else at the choice of the model.
  void FailModel(absl::string_view message) {
    for (const auto& [path, where] : origin_) {
      const bool is_stated = where != "default" && !absl::EndsWith(where, ")");
      if (absl::StartsWith(path, "model.") && is_stated && absl::StrContains(message, path)) {
        return issues_.Add(where, message);
      }
    }
    Fail({"model.preset", "model.from", "model.family"}, message);
  }

  void CheckNoDecay(const model::ModelSpec& spec) {
    const std::vector<std::string> standard = OptimizerConfig().no_decay;
    std::vector<model::Parameter> inventory;
    for (const std::string& pattern : recipe_.optimizer.no_decay) {
      if (std::count(standard.begin(), standard.end(), pattern) > 0) continue;
      if (inventory.empty()) inventory = model::Inventory(spec);
      const bool matches = std::any_of(inventory.begin(), inventory.end(), [&](const model::Parameter& p) {
        return MatchesWildcard(pattern, p.name);
      });
      if (matches) continue;
      Fail({"optimizer.no_decay"}, absl::StrCat("optimizer.no_decay: ", QuoteToml(pattern),
                                                " matches no parameter; their names are like ",
                                                inventory[inventory.size() / 2].name));
    }
  }

  void CheckData() {
    const DataConfig& data = recipe_.data;
    size_t num_weights = 0;
    size_t without = 0;
    for (size_t i = 0; i < data.train.size(); ++i) {
      if (data.train[i].weight.has_value()) {
        ++num_weights;
      } else {
        without = i;
      }
    }
    if (num_weights > 0 && num_weights < data.train.size() && !issues_.IsBadBelow("data.train")) {
      Fail({absl::StrCat("data.train[", without, "].files")},
           absl::StrCat("data.train[", without,
                        "] has no weight but another source has; give a weight to all sources or to none"));
    }
    CheckNames("data.train", data.train);
    CheckNames("data.eval", data.eval);
    CheckKeepBest();
    size_t num_holdouts = 0;
    for (size_t i = 0; i < data.eval.size(); ++i) {
      if (data.eval[i].holdout <= 0) continue;
      const std::string path = absl::StrCat("data.eval[", i, "].holdout");
      if (++num_holdouts > 1) Fail({path}, absl::StrCat(path, ": only one evaluation set can be a holdout"));
    }
    if (recipe_.train.eval_every > 0 && data.eval.empty() && !issues_.IsBadBelow("data.eval")) {
      Fail({"train.eval_every"}, absl::StrCat("train.eval_every = ", recipe_.train.eval_every,
                                              " but there is no [[data.eval]] to evaluate on"));
    }
  }

  // The names are those that data/batch_source.h gives the sets.
  void CheckKeepBest() {
    const std::string& wanted = recipe_.checkpoint.keep_best;
    if (wanted.empty()) return;
    std::vector<std::string> names;
    bool has_holdout = false;
    for (size_t i = 0; i < recipe_.data.eval.size(); ++i) {
      const DataSource& set = recipe_.data.eval[i];
      names.push_back(set.name.empty() ? absl::StrCat("data.eval[", i, "]") : set.name);
      has_holdout |= set.holdout > 0;
    }
    const auto holds_out = [](const DataSource& source) { return source.holdout > 0; };
    if (!has_holdout && std::any_of(recipe_.data.train.begin(), recipe_.data.train.end(), holds_out))
      names.emplace_back("held-out");
    if (std::count(names.begin(), names.end(), wanted) > 0) return;
    Fail({"checkpoint.keep_best"},
         absl::StrCat("checkpoint.keep_best = ", QuoteToml(wanted), ": there is no such evaluation set; ",
                      names.empty() ? "the recipe has none (data.eval, data.train holdout)"
                                    : absl::StrCat("the recipe has ", absl::StrJoin(names, ", "))));
  }

  void CheckNames(absl::string_view list, const std::vector<DataSource>& sources) {
    for (size_t i = 0; i < sources.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (sources[i].name != sources[j].name) continue;
        const std::string path = absl::StrCat(list, "[", i, "].name");
        Fail(
            {path, absl::StrCat(list, "[", j, "].name")},
            absl::StrCat(path, ": ", QuoteToml(sources[i].name), " is also the name of ", list, "[", j, "]"));
      }
    }
  }

  void CheckTokens() {
    if (!Usable({"train.batch_sequences", "train.batch_tokens", "data.seq_len"})) return;
    constexpr double kMaxTokens = 4e18;
    const TrainConfig& train = recipe_.train;
    const double tokens = static_cast<double>(train.steps) * static_cast<double>(train.batch_sequences) *
                          static_cast<double>(recipe_.data.seq_len);
    if (Usable({"train.steps"}) && tokens > kMaxTokens) {
      Fail({"train.steps"},
           absl::StrCat("the run would have ", tokens, " tokens (train.steps x ",
                        "train.batch_sequences x data.seq_len); at most 4e18 can be counted"));
    }
  }

  // A name of the catalogue, in a node that has it.
  void CheckDevice(bool is_ours) {
    const ClusterConfig& cluster = recipe_.cluster;
    if (issues_.IsBad("cluster.device")) return;
    if (cluster.device == "cpu" || cluster.device == kCudaDevice) {
      if (is_ours && cluster.node.has_value() && cluster.device == kCudaDevice) {
        return FailDevice("cluster.node",
                          "it goes with an accelerator by name, and cluster.device is \"cuda\"");
      }
      if (is_ours) return;
      return Fail({"cluster.device", "plan.framework"},
                  absl::StrCat("plan.framework = ", QuoteToml(recipe_.plan.framework),
                               " needs an accelerator by name in cluster.device "
                               "(docs/reference/catalogue.md), such as \"h100\""));
    }
    const absl::StatusOr<cluster::DeviceMatch> match = cluster::FindDevice(cluster.device);
    if (!match.ok()) {
      return FailDevice("cluster.device", absl::StrCat(match.status().message(),
                                                       "; \"cpu\" and \"cuda\" are what this machine has"));
    }
    const cluster::Device& device = *match->device;
    if (is_ours && absl::string_view(device.vendor) != "nvidia") {
      return FailDevice("cluster.device",
                        absl::StrCat(device.name,
                                     ": this version trains on NVIDIA's devices and on CPUs; `trainctl "
                                     "plan --as FRAMEWORK` prices other trainers' runs on others"));
    }
    if (is_ours && !device.has_bf16 && recipe_.train.precision == "bf16" && Usable({"train.precision"})) {
      Fail({"train.precision", "cluster.device"}, absl::StrCat("train.precision = \"bf16\": ", device.name,
                                                               " has no bf16; use \"fp32\" or \"auto\""));
    }
    if (!cluster.node.has_value() || issues_.IsBad("cluster.node")) return;
    const absl::StatusOr<const cluster::Node*> node = cluster::FindNode(*cluster.node);
    if (!node.ok()) return FailDevice("cluster.node", node.status().message());
    if ((*node)->device != &device) {
      FailDevice("cluster.node", absl::StrCat((*node)->name, " has ", (*node)->device->name, ", not the ",
                                              device.name, " of cluster.device"));
    }
  }

  void CheckNumDevices() {
    const ClusterConfig& cluster = recipe_.cluster;
    if (cluster.nodes <= layout::kMaxWorkers / cluster.devices_per_node) return;
    Fail({"cluster.nodes"}, absl::StrCat("cluster.nodes ", cluster.nodes, " x cluster.devices_per_node ",
                                         cluster.devices_per_node, " is more than the ", layout::kMaxWorkers,
                                         " devices that a plan can have"));
  }

  void FailDevice(absl::string_view path, absl::string_view message) {
    Fail({path}, absl::StrCat(path, ": ", message));
    issues_.MarkBad(path);
  }

  // Degrees, batch and size, whose constraints lib/layout has.
  void CheckLayout() {
    if (!Usable({"cluster.nodes", "cluster.devices_per_node", "train.batch_sequences", "train.batch_tokens",
                 "data.seq_len", "parallel.dp_replicate", "parallel.dp_shard", "parallel.zero_stage",
                 "parallel.recompute", "parallel.recomputed_layers", "train.micro_batch", "parallel.pp",
                 "parallel.schedule", "parallel.schedule_file", "parallel.passes", "parallel.virtual_stages",
                 "parallel.stage_layers", "parallel.tp", "parallel.sequence_parallel"}) ||
        issues_.IsBadBelow("model")) {
      return;
    }
    if (!recipe_.parallel.passes.empty() && !CheckPasses()) return;
    const layout::Request request = LayoutRequest(recipe_);
    const std::vector<layout::Violation> violations = layout::FindViolations(request);
    for (const layout::Violation& violation : violations) {
      issues_.Add(PlaceOf(violation.fields), violation.message);
    }
    if (violations.empty() && request.pp.value_or(1) > 1 && request.passes.empty()) CheckPipeline(request);
  }

  // An order of the recipe's own: what it is of, and that it comes to an end. False: something is wrong.
  bool CheckPasses() {
    const ParallelConfig& p = recipe_.parallel;
    const auto fail = [&](const auto&... words) {
      Fail({"parallel.passes", "parallel.schedule_file"}, absl::StrCat("parallel.passes: ", words...));
      return false;
    };
    if (p.virtual_stages.has_value())
      return fail("they say how many stages each rank has; take parallel.virtual_stages out");
    const absl::StatusOr<schedule::PipelineSchedule> order = schedule::ReadPasses(p.passes);
    if (!order.ok()) return fail(order.status().message());
    const schedule::PipelinePlacement& place = order->placement;
    if (place.num_ranks == 1) return fail("they are of one rank, which is no pipeline; take them out");
    if (p.pp.value_or(1) != place.num_ranks) {
      return fail("they have ", place.num_ranks, " lines, one for each rank, and parallel.pp is ",
                  p.pp.value_or(1), "; set parallel.pp = ", place.num_ranks);
    }
    if (place.num_stages % place.num_ranks != 0) {
      return fail("they have ", place.num_stages, " stages, not as many for each of ", place.num_ranks,
                  " ranks");
    }
    const absl::StatusOr<schedule::Step> step = schedule::ExpandOrder(*order);
    if (!step.ok()) return fail(step.status().message());
    const absl::Status proven = schedule::Check(*step).status();
    if (!proven.ok())
      return fail("they come to no end (class: the line, from 0; block: the stage): ", proven.message());
    return CheckMicroBatches(place.num_micro_batches, fail);
  }

  template <typename Fail>
  bool CheckMicroBatches(int64_t num_micro_batches, const Fail& fail) const {
    const std::optional<int64_t> size = recipe_.train.micro_batch;
    const int64_t data_workers = LayoutRequest(recipe_).data_workers();
    const int64_t least = data_workers * num_micro_batches * size.value_or(1);
    const int64_t batch = recipe_.train.batch_sequences;
    if (data_workers < 1 || (size ? batch == least : batch % least == 0)) return true;
    const int64_t nearest = size ? least : std::max<int64_t>(1, batch / least) * least;
    return fail("they are of ", num_micro_batches, " micro-batches", size ? " of " : "",
                size ? absl::StrCat(*size) : "", " for each of ", data_workers,
                " data-parallel worker(s), and train.batch_sequences is ", batch,
                "; set train.batch_sequences = ", nearest);
  }

  // Which orders take which shapes is known to lib/schedule. With micro-batches of any size there are at most
  // as many as a worker has sequences.
  void CheckPipeline(const layout::Request& request) {
    layout::Layout layout;
    layout.mesh.pp = *request.pp;
    layout.pipeline.order = request.pipeline_order.value_or("1f1b");
    layout.pipeline.virtual_stages = request.virtual_stages.value_or(1);
    layout.num_micro_batches =
        request.batch_sequences / request.data_workers() / request.micro_batch.value_or(1);
    const absl::Status possible = schedule::CheckPipelineLayout(layout);
    if (possible.ok()) return;
    Fail({"parallel.schedule", "parallel.virtual_stages", "train.micro_batch", "parallel.pp"},
         absl::StrCat("parallel.pp = ", *request.pp, " with ", layout.num_micro_batches, " micro-batches",
                      request.micro_batch.has_value() ? "" : " at most", ": ", possible.message()));
  }

  // What another optimizer reads and this one does not: stated, it would change nothing.
  void CheckOptimizerFields() {
    const optim::Optimizer* optimizer = optim::Find(recipe_.optimizer.name);
    if (optimizer == nullptr || !Usable({"optimizer.name"})) return;
    std::map<absl::string_view, std::vector<absl::string_view>> readers;
    for (const optim::Optimizer* other : optim::All()) {
      for (const absl::string_view field : other->fields) readers[field].push_back(other->name);
    }
    for (const auto& [field, names] : readers) {
      const std::string path = absl::StrCat("optimizer.", field);
      if (optimizer->Reads(field) || !IsGiven(path)) continue;
      Fail({path},
           absl::StrCat(path, ": ", optimizer->name, " (optimizer.name) does not read it, ",
                        absl::StrJoin(names, " and "), names.size() > 1 ? " do" : " does", "; take it out"));
    }
  }

  // Of other trainers one optimizer is priced, with the bytes that each of them keeps.
  void CheckOptimizerOfWhatIf() {
    CheckOptimizerFields();
    if (!Usable({"optimizer.name"}) || recipe_.optimizer.name == optim::kAdamW.name) return;
    Fail({"optimizer.name"}, absl::StrCat("optimizer.name = ", QuoteToml(recipe_.optimizer.name),
                                          ": what-ifs of other trainers (plan.framework) are of adamw"));
  }

  void CheckNumerics() {
    if (recipe_.run.attention == "cudnn" && recipe_.run.deterministic &&
        Usable({"run.attention", "run.deterministic"})) {
      Fail({"run.attention", "run.deterministic"},
           "run.attention = \"cudnn\": its gradients differ in their last bits from run to run, and "
           "run.deterministic is true; set run.attention = \"flash\"");
    }
    const TrainConfig& train = recipe_.train;
    if (train.master_dtype == "bf16" && train.precision != "bf16" &&
        Usable({"train.master_dtype", "train.precision"})) {
      Fail({"train.master_dtype", "train.precision"},
           absl::StrCat(
               "train.master_dtype = \"bf16\" keeps the weights in bf16 alone, and train.precision is ",
               QuoteToml(train.precision), "; set train.precision = \"bf16\""));
    }
  }

  void CheckOptimizer() {
    CheckOptimizerFields();
    const OptimizerConfig& optimizer = recipe_.optimizer;
    if (optimizer.eps > 0 && static_cast<float>(optimizer.eps) == 0 && Usable({"optimizer.eps"})) {
      Fail({"optimizer.eps"},
           absl::StrCat("optimizer.eps: ", FormatDouble(optimizer.eps),
                        " is zero in fp32, in which updates are computed; give 1e-38 or more"));
    }
    if (Usable({"optimizer.lr", "optimizer.min_lr"}) && optimizer.min_lr > optimizer.lr) {
      Fail({"optimizer.min_lr", "optimizer.lr"},
           absl::StrCat("optimizer.min_lr (", FormatDouble(optimizer.min_lr), ") is above optimizer.lr (",
                        FormatDouble(optimizer.lr), "); set optimizer.min_lr = ", FormatDouble(optimizer.lr),
                        " or less"));
    }
    const bool is_constant = optimizer.lr_schedule == "constant";
    if (is_constant || !Usable({"optimizer.warmup_steps", "optimizer.decay_steps", "train.steps",
                                "optimizer.lr_schedule", "optimizer.decay_fraction"})) {
      return;
    }
    const int64_t decay_steps = optimizer.decay_steps.value_or(recipe_.train.steps);
    const char* source = optimizer.decay_steps.has_value() ? "optimizer.decay_steps" : "train.steps";
    const double share = optimizer.lr_schedule == "wsd" ? 1 - optimizer.decay_fraction : 1;
    const double start = share * static_cast<double>(decay_steps);
    const bool is_wsd = optimizer.lr_schedule == "wsd";
    const auto warmup = static_cast<double>(optimizer.warmup_steps);
    if (optimizer.warmup_steps > 0 && (is_wsd ? warmup > start : warmup >= start)) {
      Fail(
          {"optimizer.warmup_steps", source},
          absl::StrCat(
              "optimizer.warmup_steps (", optimizer.warmup_steps, ") leaves no step for the ",
              optimizer.lr_schedule, " decay, which ends at step ", decay_steps, " (", source,
              is_wsd ? absl::StrCat(") and takes the last ", FormatDouble(optimizer.decay_fraction), " of it")
                     : ")",
              "; set optimizer.warmup_steps = ",
              static_cast<int64_t>(is_wsd ? std::floor(start) : std::ceil(start) - 1), " or fewer"));
    }
  }

  void CheckBackend() {
    if (!Usable({"launch.backend"})) return;
    if (recipe_.launch.backend == "ssh") CheckSsh();
    if (recipe_.launch.backend == "slurm") CheckSlurm();
    if (recipe_.launch.backend == "kubernetes") CheckKubernetes();
    CheckTimeouts();
    if (recipe_.launch.backend == "local" && Usable({"cluster.nodes"}) && recipe_.cluster.nodes > 1) {
      Lack("cluster.nodes",
           absl::StrCat("cluster.nodes = ", recipe_.cluster.nodes,
                        " but launch.backend = \"local\" starts workers on this machine only; set "
                        "cluster.nodes = 1, or launch.backend to \"ssh\" with the machines in "
                        "launch.ssh.hosts, to \"slurm\" where there is Slurm, or to \"kubernetes\""));
    }
    // A stored recipe may keep them from a launch of another backend: there they were not given.
    RefuseElsewhere(
        "ssh", {"launch.ssh.hosts", "launch.ssh.hosts_file", "launch.ssh.options", "launch.ssh.program"});
    RefuseElsewhere("slurm",
                    {"launch.slurm.submit_options", "launch.slurm.save_before", "launch.slurm.step_options"});
    RefuseElsewhere("kubernetes",
                    {"launch.kubernetes.name", "launch.kubernetes.namespace", "launch.kubernetes.image",
                     "launch.kubernetes.claim", "launch.kubernetes.mount", "launch.kubernetes.user"});
  }

  void RefuseElsewhere(absl::string_view backend, std::initializer_list<absl::string_view> paths) {
    if (recipe_.launch.backend == backend) return;
    for (const absl::string_view path : paths) {
      if (!IsGiven(path)) continue;
      Fail({path},
           absl::StrCat(path, " is read with launch.backend = ", QuoteToml(backend), " alone, and it is ",
                        QuoteToml(recipe_.launch.backend), "; set launch.backend = ", QuoteToml(backend),
                        ", or take the table out (--set launch.", backend, "=default)"));
    }
  }

  // What a run needs and a plan does not.
  void Lack(absl::string_view path, absl::string_view message) {
    missing_.Add(PlaceOf(std::initializer_list<absl::string_view>{path}), message);
  }

  void CheckSsh() {
    const SshConfig& ssh = recipe_.launch.ssh;
    if (const absl::Status status = CheckSshOptions(ssh.options); !status.ok()) {
      Fail({"launch.ssh.options"}, status.message());
    }
    if (!Usable({"launch.ssh.hosts", "launch.ssh.hosts_file"})) return;
    if (ssh.hosts.empty() == ssh.hosts_file.empty()) {
      if (ssh.hosts.empty()) {
        return Lack("launch.backend",
                    "launch.backend = \"ssh\" needs the machines: give launch.ssh.hosts = [\"node0\", "
                    "\"node1\"] or launch.ssh.hosts_file");
      }
      return Fail({"launch.ssh.hosts", "launch.ssh.hosts_file"},
                  "launch.ssh.hosts and launch.ssh.hosts_file exclude each other; give one of them");
    }
    if (ssh.hosts.empty()) return;  // the file is looked at where files are read
    if (const absl::Status status = CheckHosts(ssh.hosts, "launch.ssh.hosts"); !status.ok()) {
      return Fail({"launch.ssh.hosts"}, status.message());
    }
    if (!Usable({"cluster.nodes"})) return;
    const absl::Status status = CheckEnoughHosts(ssh.hosts, recipe_.cluster.nodes, "launch.ssh.hosts");
    if (!status.ok()) Lack("launch.ssh.hosts", status.message());
  }

  void CheckSlurm() {
    if (!Usable({"launch.slurm.submit_options"})) return;
    const absl::Status status = cluster::CheckSubmitOptions(recipe_.launch.slurm.submit_options);
    if (!status.ok()) Fail({"launch.slurm.submit_options"}, status.message());
  }

  void CheckKubernetes() {
    const cluster::KubernetesConfig& config = recipe_.launch.kubernetes;
    const auto check = [&](const char* path, const absl::Status& status) {
      if (Usable({path}) && !status.ok()) Fail({path}, status.message());
    };
    check("launch.kubernetes.name", cluster::CheckKubernetesName(config.name, recipe_.cluster.nodes));
    check("launch.kubernetes.namespace", cluster::CheckKubernetesNamespace(config.name_space));
    check("launch.kubernetes.image", cluster::CheckKubernetesImage(config.image));
    check("launch.kubernetes.claim", cluster::CheckKubernetesClaim(config.claim));
    check("launch.kubernetes.mount", cluster::CheckKubernetesMount(config.mount));
    std::string lacks;
    for (const auto& [field, value] : {std::pair{"name", &config.name}, std::pair{"image", &config.image},
                                       std::pair{"claim", &config.claim}}) {
      if (value->empty()) absl::StrAppend(&lacks, lacks.empty() ? "" : ", ", "launch.kubernetes.", field);
    }
    if (lacks.empty()) return;
    Lack("launch.backend",
         absl::StrCat("launch.backend = \"kubernetes\" needs ", lacks,
                      ": what the job is called, the container image and the PersistentVolumeClaim"));
  }

  void CheckTimeouts() {
    for (const WrongOrder& wrong : FindWrongOrders(recipe_.launch)) {
      const auto is_bad = [&](const std::string& path) { return issues_.IsBad(path); };
      if (std::none_of(wrong.paths.begin(), wrong.paths.end(), is_bad)) {
        issues_.Add(PlaceOf(wrong.paths), wrong.message);
      }
    }
  }

  void CheckRest() {
    for (const auto& [name, value] : recipe_.launch.env) {
      const std::string path = absl::StrCat("launch.env.", name);
      if (!IsVariableName(name)) {
        Fail({path}, absl::StrCat("launch.env: ", QuoteToml(name), " cannot be the name of a variable"));
      } else if (IsReserved(name)) {
        Fail({path},
             absl::StrCat(path, ": trainctl sets this variable itself",
                          absl::EndsWith(name, "_NUM_THREADS") ? "; use cluster.threads_per_worker" : ""));
      }
    }
    CheckPassedEnv();
    CheckInterface();
    const std::string& name = recipe_.run.name;
    if (name.find('/') != std::string::npos || absl::StartsWith(name, ".") || name.size() > 100) {
      Fail({"run.name"},
           absl::StrCat("run.name: ", QuoteToml(name), " cannot be the name of a folder: at most 100 ",
                        "bytes, no '/', no leading '.'"));
    }
  }

  void CheckPassedEnv() {
    std::set<absl::string_view> seen;
    for (const std::string& name : recipe_.launch.pass_env) {
      const auto fail = [&](absl::string_view why) {
        Fail({"launch.pass_env"}, absl::StrCat("launch.pass_env: ", QuoteToml(name), " ", why));
      };
      if (!IsVariableName(name)) {
        fail("cannot be the name of a variable");
      } else if (IsReserved(name)) {
        fail("is a variable that trainctl sets itself");
      } else if (recipe_.launch.env.count(name) > 0) {
        fail(absl::StrCat("has its value in launch.env.", name, "; take one of them out"));
      } else if (!seen.insert(name).second) {
        fail("is there twice");
      }
    }
  }

  void CheckInterface() {
    if (!recipe_.launch.interface.has_value()) return;
    const std::string& name = *recipe_.launch.interface;
    const bool is_plain = std::all_of(name.begin(), name.end(),
                                      [](unsigned char c) { return absl::ascii_isgraph(c) && c != ','; });
    if (is_plain && name.size() <= 64 && !absl::StartsWith(name, "-")) return;
    Fail({"launch.interface"},
         absl::StrCat("launch.interface: ", QuoteToml(name),
                      " cannot be the name of a network interface, an address or a range such as "
                      "\"10.0.0.0/8\""));
  }

  static bool IsVariableName(absl::string_view name) {
    const auto is_word = [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
    };
    return !name.empty() && std::all_of(name.begin(), name.end(), is_word) &&
           !absl::ascii_isdigit(static_cast<unsigned char>(name[0]));
  }

  static bool IsReserved(absl::string_view name) {
    constexpr absl::string_view kReserved[] = {
        "RANK",           "WORLD_SIZE",  "LOCAL_RANK",  "LOCAL_WORLD_SIZE",     "NODE_RANK",
        "GROUP_RANK",     "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS",
        "MKL_NUM_THREADS"};
    return absl::StartsWith(name, "TRAINCTL_") ||
           std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved);
  }

  const Recipe& recipe_;
  const Origins& origin_;
  Issues& issues_;
  Issues& missing_;
};

}  // namespace

void CheckRecipe(const Recipe& recipe, const std::map<std::string, std::string>& origin, Issues& issues,
                 Issues& missing, Purpose purpose) {
  Checker checker(recipe, origin, issues, missing);
  if (purpose == Purpose::kWhatIf) {
    checker.RunForWhatIf();
  } else {
    checker.Run();
  }
}

std::string WhatElseOf(const model::ModelSpec& spec, const absl::Status& refusal) {
  if (refusal.ok() || !model::Validate(spec).ok() || model::WhyNotTrainable(spec).empty()) return "";
  return absl::StrCat(". What trains is model_type ", absl::StrJoin(model::TrainedModelTypes(), " or "),
                      "; this one can be planned as another trainer would run it: trainctl plan RECIPE --as "
                      "megatron-core --set cluster.device=h100 (plan.framework and an accelerator by name)");
}

layout::Request LayoutRequest(const Recipe& recipe) {
  layout::Request request;
  request.spec = &recipe.model.spec;
  request.nodes = recipe.cluster.nodes;
  request.devices_per_node = recipe.cluster.devices_per_node;
  request.batch_sequences = recipe.train.batch_sequences;
  request.seq_len = recipe.data.seq_len;
  request.dp_replicate = recipe.parallel.dp_replicate;
  request.dp_shard = recipe.parallel.dp_shard;
  request.zero_stage = recipe.parallel.zero_stage;
  request.micro_batch = recipe.train.micro_batch;
  request.pp = recipe.parallel.pp;
  request.tp = recipe.parallel.tp;
  request.sequence_parallel = recipe.parallel.sequence_parallel;
  request.pipeline_order = recipe.parallel.schedule;
  request.virtual_stages = recipe.parallel.virtual_stages;
  if (const auto kind = schedule::ParsePipelineKind(request.pipeline_order.value_or(""));
      kind.ok() && request.pp.value_or(1) > 1 && !request.virtual_stages.has_value())
    request.virtual_stages = schedule::LimitsOf(*kind).min_virtual_stages;
  request.stage_layers = recipe.parallel.stage_layers;
  request.passes = recipe.parallel.passes;
  if (const auto order = schedule::ReadPasses(request.passes); !request.passes.empty() && order.ok()) {
    const schedule::PipelinePlacement& place = order->placement;
    request.virtual_stages = place.num_stages / place.num_ranks;
    const int64_t sequences = request.batch_sequences / std::max<int64_t>(1, request.data_workers());
    if (!request.micro_batch) request.micro_batch = std::max<int64_t>(1, sequences / place.num_micro_batches);
  }
  if (recipe.parallel.recompute.has_value())
    request.recompute = layout::ParseRecompute(*recipe.parallel.recompute);
  request.recomputed_layers = recipe.parallel.recomputed_layers;
  // Their number says what is done with them.
  if (request.recomputed_layers.has_value() && !request.recompute.has_value())
    request.recompute = layout::Recompute::kFull;
  return request;
}

std::vector<std::string> FindNotes(const Recipe& recipe, const std::map<std::string, std::string>& origin) {
  std::vector<std::string> notes;
  const auto note = [&](const std::string& path, bool is_idle, absl::string_view why) {
    const auto it = origin.find(path);
    if (!is_idle || it == origin.end() || it->second == "default") return;
    notes.push_back(absl::StrCat(it->second, ": ", path, " makes no difference: ", why));
  };
  const OptimizerConfig& optimizer = recipe.optimizer;
  const bool is_constant = optimizer.lr_schedule == "constant";
  note("optimizer.decay_fraction", optimizer.lr_schedule != "wsd", "optimizer.lr_schedule is not \"wsd\"");
  note("optimizer.min_lr", is_constant, "optimizer.lr_schedule is \"constant\"");
  note("optimizer.decay_steps", is_constant, "optimizer.lr_schedule is \"constant\"");
  if (!is_constant && optimizer.min_lr == 0 && optimizer.decay_steps.has_value() &&
      *optimizer.decay_steps < recipe.train.steps) {
    notes.push_back(absl::StrCat("the learning rate is 0 from step ", *optimizer.decay_steps + 1,
                                 " on, so those steps change nothing: the decay ends at step ",
                                 *optimizer.decay_steps, " (optimizer.decay_steps) of ", recipe.train.steps,
                                 " (train.steps) at optimizer.min_lr = 0; optimizer.decay_steps = \"auto\" "
                                 "stretches it to the last"));
  }
  note("optimizer.no_decay", optimizer.weight_decay == 0, "optimizer.weight_decay is 0");
  note("train.eval_batches", recipe.data.eval.empty(), "there is no [[data.eval]]");
  note("run.deterministic", recipe.run.deterministic && recipe.cluster.device == "cpu",
       "every run on a CPU is deterministic");
  note("run.check_kernels", recipe.run.check_kernels && recipe.cluster.device == "cpu",
       "an operator on a CPU has ended when the next one begins");
  const bool has_cudnn = recipe.model.spec.head_dim <= 128 && recipe.data.seq_len % 64 == 0;
  note("run.attention", recipe.cluster.device == "cpu", "a CPU has one kernel for attention");
  if (recipe.cluster.device != "cpu") {
    note("run.attention", recipe.data.packing != "continuous", "packed documents have flash attention");
    note("run.attention", recipe.train.precision == "fp32", "fp32 has neither kernel");
    note("run.attention", recipe.run.attention == "cudnn" && !has_cudnn,
         "cuDNN serves heads of up to 128 and sequences of a multiple of 64 tokens; flash attention is used");
  }
  note("run.graphs", recipe.cluster.device == "cpu", "a CPU is given its work as it comes");
  note("parallel.prefetch", recipe.parallel.zero_stage.has_value() && *recipe.parallel.zero_stage < 2,
       "parallel.zero_stage 0 and 1 move no block beside the compute");
  const bool is_cpu = recipe.cluster.device == "cpu";
  for (const char* path : {"cluster.node", "cluster.memory", "cluster.memory_bandwidth", "cluster.half_flops",
                           "cluster.fp8_flops", "cluster.scale_up_bandwidth", "cluster.scale_out_bandwidth",
                           "cluster.nics", "cluster.host_memory"}) {
    note(path, is_cpu, "it describes accelerators and cluster.device is \"cpu\"");
  }
  const bool is_ours = recipe.plan.framework == PlanConfig().framework;
  for (const char* path :
       {"plan.objective", "plan.price_per_gpu_hour", "plan.deadline", "plan.gpu_mtbf", "plan.restart_time"}) {
    note(path, is_ours, "it is for what-ifs of other trainers (plan.framework)");
  }
  note("train.master_dtype", !is_ours, "plan.framework is another trainer's, with masters of its own");
  note("cluster.threads_per_worker", !is_ours, "plan.framework is another trainer's");
  if (recipe.launch.backend == "local") {
    for (const char* path : {"launch.coordinator_timeout", "launch.interface", "launch.pass_env"}) {
      note(path, true, "launch.backend = \"local\" starts workers on this machine only");
    }
  }
  const auto weights = origin.find("model.weights");
  if (is_ours && !recipe.model.from.empty() && weights != origin.end() && weights->second == "default") {
    notes.push_back(absl::StrCat(
        "model.weights = random (the default): training starts from random weights, and of ",
        recipe.model.from, " only config.json is read; model.weights = \"from\" starts from its weights"));
  }
  const auto is_text = [](const DataSource& data) {
    return std::any_of(data.files.begin(), data.files.end(), [](const std::string& file) {
      return !absl::EndsWith(file, ".bin") && !absl::EndsWith(file, ".idx");
    });
  };
  if (is_ours && recipe.model.weights == "from" && recipe.data.tokenizer == "byte" &&
      std::any_of(recipe.data.train.begin(), recipe.data.train.end(), is_text)) {
    notes.push_back(absl::StrCat("data.tokenizer is \"byte\", so the weights of ", recipe.model.from,
                                 " see the bytes of the text as their tokens, which is right only for a "
                                 "model that was trained on bytes; ",
                                 origin.contains("data.tokenizer") && origin.at("data.tokenizer") == "default"
                                     ? "its folder has no tokenizer.json or tokenizer.model"
                                     : "without data.tokenizer its own tokenizer is taken"));
  }
  // The folder's own value was not asked for.
  const auto init_std = origin.find("model.init_std");
  const bool is_inherited = init_std != origin.end() && absl::EndsWith(init_std->second, ")");
  note("model.init_std", recipe.model.weights != "random" && !is_inherited,
       "model.weights is not \"random\"");
  const auto has_prompt = [](const DataSource& data) { return !data.prompt_field.empty(); };
  const bool has_prompts = std::any_of(recipe.data.train.begin(), recipe.data.train.end(), has_prompt) ||
                           std::any_of(recipe.data.eval.begin(), recipe.data.eval.end(), has_prompt);
  note("data.long_documents",
       recipe.data.packing != "whole" && (recipe.data.packing != "auto" || !has_prompts),
       "no document is placed whole (data.packing)");
  if (has_prompts && recipe.data.packing != "auto" && recipe.data.packing != "whole") {
    notes.push_back(absl::StrCat("data.packing = \"", recipe.data.packing,
                                 "\" cuts documents where a sequence ends: completions are trained without "
                                 "the part of their prompt that "
                                 "lies in the sequence before; \"auto\" places them whole"));
  }
  const auto source = [&](const std::string& list, const std::vector<DataSource>& sources) {
    for (size_t i = 0; i < sources.size(); ++i) {
      const std::string path = absl::StrCat(list, "[", i, "].");
      const std::string& kind = sources[i].kind;
      const bool no_jsonl = kind == "text" || kind == "indexed";
      note(path + "text_field", no_jsonl, "the source is not jsonl");
      note(path + "prompt_field", no_jsonl, "the source is not jsonl");
      note(path + "kind", sources[i].holdout > 0 && list == "data.eval",
           "a holdout has the kind of its source");
    }
    if (sources.size() == 1) note(list + "[0].weight", true, "there is one source only");
  };
  source("data.train", recipe.data.train);
  source("data.eval", recipe.data.eval);
  return notes;
}

}  // namespace trainctl::recipe
