#include "recipe/notes.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace trainctl::recipe {
namespace {

// A field that makes no difference if `is_idle`.
struct IdleField {
  absl::string_view path;
  bool is_idle;
  absl::string_view why;
};

// Whether files of the source are text rather than tokens.
bool HasText(const DataSource& data) {
  return std::any_of(data.files.begin(), data.files.end(), [](const std::string& file) {
    return !absl::EndsWith(file, ".bin") && !absl::EndsWith(file, ".idx");
  });
}

bool HasPrompts(const std::vector<DataSource>& sources) {
  return std::any_of(sources.begin(), sources.end(),
                     [](const DataSource& data) { return !data.prompt_field.empty(); });
}

class NoteFinder {
 public:
  NoteFinder(const Recipe& recipe, const Origins& origins)
      : recipe_(recipe),
        origins_(origins),
        is_cpu_(recipe.cluster.device == "cpu"),
        is_ours_(recipe.plan.framework == PlanConfig().framework) {}

  std::vector<std::string> Run() {
    AddOptimizerNotes();
    AddComputeNotes();
    AddClusterNotes();
    AddPlanNotes();
    AddLaunchNotes();
    AddModelNotes();
    AddPackingNotes();
    AddSourcesNotes("data.train", recipe_.data.train);
    AddSourcesNotes("data.eval", recipe_.data.eval);
    return std::move(notes_);
  }

 private:
  void AddIdle(std::initializer_list<IdleField> fields) {
    for (const IdleField& field : fields) {
      if (!field.is_idle || !IsGiven(origins_, field.path)) continue;
      notes_.push_back(absl::StrCat(origins_.at(std::string(field.path)), ": ", field.path,
                                    " has no effect: ", field.why));
    }
  }

  // Several fields that are idle for the same reason.
  void AddIdle(std::initializer_list<absl::string_view> paths, bool is_idle, absl::string_view why) {
    for (const absl::string_view path : paths) AddIdle({{path, is_idle, why}});
  }

  bool IsDefault(const std::string& path) const {
    return origins_.contains(path) && origins_.at(path) == "default";
  }

  void AddOptimizerNotes() {
    const OptimizerConfig& optimizer = recipe_.optimizer;
    const bool is_constant = optimizer.lr_schedule == "constant";
    AddIdle({
        {"optimizer.decay_fraction", optimizer.lr_schedule != "wsd", "optimizer.lr_schedule is not \"wsd\""},
        {"optimizer.min_lr", is_constant, "optimizer.lr_schedule is \"constant\""},
        {"optimizer.decay_steps", is_constant, "optimizer.lr_schedule is \"constant\""},
    });
    if (!is_constant && optimizer.min_lr == 0 && optimizer.decay_steps.has_value() &&
        *optimizer.decay_steps < recipe_.train.steps) {
      notes_.push_back(
          absl::StrCat("the learning rate is 0 starting at step ", *optimizer.decay_steps + 1,
                       ", so later steps change nothing: the decay ends at step ", *optimizer.decay_steps,
                       " (optimizer.decay_steps) of ", recipe_.train.steps,
                       " (train.steps) at optimizer.min_lr = 0; --set optimizer.decay_steps=auto "
                       "extends it to the last step"));
    }
    AddIdle({{"optimizer.no_decay", optimizer.weight_decay == 0, "optimizer.weight_decay is 0"},
             {"train.eval_batches", recipe_.data.eval.empty(), "there is no [[data.eval]]"}});
  }

  void AddComputeNotes() {
    const RunConfig& run = recipe_.run;
    const std::optional<int64_t>& zero_stage = recipe_.parallel.zero_stage;
    const bool has_cudnn = AttentionOf(recipe_.model.spec).head_dim <= 128 && recipe_.data.seq_len % 64 == 0;
    AddIdle({
        {"run.deterministic", is_cpu_ && run.deterministic, "CPU runs are always deterministic"},
        {"run.check_kernels", is_cpu_ && run.check_kernels,
         "on a CPU, each operator finishes before the next one starts"},
        {"run.attention", is_cpu_, "there is only one CPU attention kernel"},
        {"run.attention", !is_cpu_ && recipe_.data.packing != "continuous",
         "packed documents always use flash attention"},
        {"run.attention", !is_cpu_ && recipe_.train.precision == "fp32", "neither kernel supports fp32"},
        {"run.attention", !is_cpu_ && run.attention == "cudnn" && !has_cudnn,
         "cuDNN supports only head dimensions up to 128 and sequence lengths that are multiples of 64; flash "
         "attention is used instead"},
        {"run.graphs", is_cpu_, "only GPUs use graphs"},
        {"parallel.prefetch", zero_stage.has_value() && *zero_stage < 2,
         "with parallel.zero_stage 0 or 1, blocks are not moved during compute"},
    });
  }

  void AddClusterNotes() {
    AddIdle({"cluster.node", "cluster.memory", "cluster.memory_bandwidth", "cluster.half_flops",
             "cluster.fp8_flops", "cluster.scale_up_bandwidth", "cluster.scale_out_bandwidth", "cluster.nics",
             "cluster.host_memory"},
            is_cpu_, "it applies to accelerators, but cluster.device is \"cpu\"");
  }

  void AddPlanNotes() {
    AddIdle(
        {"plan.objective", "plan.price_per_gpu_hour", "plan.deadline", "plan.gpu_mtbf", "plan.restart_time"},
        is_ours_, "it applies only to estimates of other trainers (plan.framework)");
    AddIdle({
        {"train.master_dtype", !is_ours_,
         "plan.framework is another trainer, which has its own master weights"},
        {"cluster.threads_per_worker", !is_ours_, "plan.framework is another trainer"},
    });
  }

  void AddLaunchNotes() {
    AddIdle({"launch.coordinator_timeout", "launch.interface", "launch.pass_env"},
            recipe_.launch.backend == "local",
            "launch.backend = \"local\" starts workers only on this machine");
  }

  void AddModelNotes() {
    const ModelConfig& model = recipe_.model;
    if (is_ours_ && !model.from.empty() && IsDefault("model.weights")) {
      notes_.push_back(absl::StrCat(
          "model.weights = random (the default): training starts from random weights and reads only "
          "config.json from ",
          model.from, "; to start from the weights in that folder, set model.weights = \"from\""));
    }
    const std::vector<DataSource>& sources = recipe_.data.train;
    if (is_ours_ && model.weights == "from" && recipe_.data.tokenizer == "byte" &&
        std::any_of(sources.begin(), sources.end(), HasText)) {
      notes_.push_back(absl::StrCat(
          "data.tokenizer is \"byte\", so the weights of ", model.from,
          " receive the bytes of the text as tokens, which is correct only for a model trained on bytes; ",
          IsDefault("data.tokenizer") ? "its folder has no tokenizer.json or tokenizer.model"
                                      : "remove data.tokenizer to use the model's own tokenizer"));
    }
    // The folder's own value was not asked for.
    const auto init_std = origins_.find("model.init_std");
    const bool is_inherited = init_std != origins_.end() && absl::EndsWith(init_std->second, ")");
    AddIdle(
        {{"model.init_std", model.weights != "random" && !is_inherited, "model.weights is not \"random\""}});
  }

  void AddPackingNotes() {
    const std::string& packing = recipe_.data.packing;
    const bool has_prompts = HasPrompts(recipe_.data.train) || HasPrompts(recipe_.data.eval);
    AddIdle({{"data.long_documents", packing != "whole" && (packing != "auto" || !has_prompts),
              "data.packing does not keep documents whole"}});
    if (has_prompts && packing != "auto" && packing != "whole") {
      notes_.push_back(absl::StrCat(
          "data.packing = \"", packing,
          "\" splits documents at the end of a sequence, so some completions are trained without the part of "
          "their prompt that falls in the previous sequence; \"auto\" keeps documents whole"));
    }
  }

  void AddSourcesNotes(absl::string_view list, const std::vector<DataSource>& sources) {
    for (size_t i = 0; i < sources.size(); ++i) {
      const std::string path = absl::StrCat(list, "[", i, "].");
      const std::string& kind = sources[i].kind;
      AddIdle({absl::StrCat(path, "text_field"), absl::StrCat(path, "prompt_field")},
              kind == "text" || kind == "indexed", "the source is not jsonl or parquet");
      AddIdle({{absl::StrCat(path, "kind"), sources[i].holdout > 0 && list == "data.eval",
                "a holdout has the same kind as its source"}});
    }
    AddIdle({{absl::StrCat(list, "[0].weight"), sources.size() == 1, "there is only one source"}});
  }

  const Recipe& recipe_;
  const Origins& origins_;
  const bool is_cpu_;
  const bool is_ours_;
  std::vector<std::string> notes_;
};

}  // namespace

std::vector<std::string> FindNotes(const Recipe& recipe, const Origins& origins) {
  return NoteFinder(recipe, origins).Run();
}

}  // namespace trainctl::recipe
