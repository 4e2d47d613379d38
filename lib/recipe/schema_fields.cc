// The table: one row for each field of a recipe.

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "model/parameter_names.h"
#include "optim/optimizer.h"
#include "recipe/schema.h"
#include "recipe/schema_builder.h"
#include "recipe/values.h"
#include "schedule/pipeline.h"

namespace trainctl::recipe {
namespace {

constexpr double kMaxCount = 1e18;

void AddRun(Builder& b) {
  b.Add(
       "recipe_version", "Format of the recipe. A newer one than this program knows is refused.",
       [](Recipe & r, size_t) -> auto& { return r.recipe_version; })
      .Range(1, 1);
  b.Add(
      "run.name", "Start of the run folder's name: `<root>/<name>-<UTC yyyymmdd-hhmmss>`.",
      [](Recipe & r, size_t) -> auto& { return r.run.name; });
  b.Add(
       "run.root", "Folder of the run folders, relative to the working directory.",
       [](Recipe & r, size_t) -> auto& { return r.run.root; })
      .Path()
      .FromWorkingDir();
  b.Add(
       "run.seed", "Seed of the initial weights and of the data order.",
       [](Recipe & r, size_t) -> auto& { return r.run.seed; })
      .AtLeast(0);
  b.Add(
      "run.deterministic",
      "Use only algorithms that give the same bits each time. On a CPU every run does, so there it makes "
      "no difference.",
      [](Recipe & r, size_t) -> auto& { return r.run.deterministic; });
  b.Add(
       "run.attention",
       "On a GPU, the kernel for sequences that are one document each (data.packing = \"continuous\"): "
       "cuDNN's or "
       "flash attention. `auto` times both at the first start and keeps the faster one, in attention.json of "
       "the "
       "run folder.",
       [](Recipe & r, size_t) -> auto& { return r.run.attention; })
      .Choices({"auto", "cudnn", "flash"});
  b.Add(
       "run.graphs",
       "On one GPU in bf16, launch a step as a whole, from a graph that is made of the second step and held "
       "against it. Steps with packed documents are launched kernel by kernel.",
       [](Recipe & r, size_t) -> auto& { return r.run.graphs; })
      .Free();
  b.Add(
       "run.check_kernels",
       "On a GPU, wait after each operator, so that the error of a failing kernel names its operator, block "
       "and micro-batch. Slow: for debugging.",
       [](Recipe & r, size_t) -> auto& { return r.run.check_kernels; })
      .Free();
}

void AddModel(Builder& b) {
  b.Add(
       "model.preset", "A built-in model; docs/reference/recipe.md ends with their names.",
       [](Recipe & r, size_t) -> auto& { return r.model.preset; })
      .OmitEmpty()
      .Default("one of preset, from and family is required")
      .Group("model", "preset");
  b.Add(
       "model.from", "A Hugging Face folder whose config.json describes the model.",
       [](Recipe & r, size_t) -> auto& { return r.model.from; })
      .Path()
      .OmitEmpty()
      .Default("one of preset, from and family is required")
      .Group("model", "from");
  b.Add(
       "model.family", "The family of a model that is described by the dimensions below.",
       [](Recipe & r, size_t) -> auto& { return r.model.spec.family; })
      .Choices(model::NamedFamilies())
      .Default("one of preset, from and family is required")
      .Group("model", "family");
  const char* inherited = "that of the preset or folder";
  const auto dimension = [&](const char* name, const char* doc, auto member) {
    return b.Add(name, doc, member).Range(1, 1e9).Default(inherited);
  };
  dimension(
      "model.layers", "Transformer layers.", [](Recipe & r, size_t) -> auto& { return r.model.spec.layers; })
      .AtMost(10000);
  dimension(
      "model.hidden", "Width of the residual stream.",
      [](Recipe & r, size_t) -> auto& { return r.model.spec.hidden; });
  dimension(
      "model.heads", "Query heads.", [](Recipe & r, size_t) -> auto& { return r.model.spec.heads; });
  dimension(
      "model.kv_heads", "Key and value heads; a divisor of heads.",
      [](Recipe & r, size_t) -> auto& { return r.model.spec.kv_heads; })
      .Default("that of the preset or folder; with family: heads");
  dimension(
      "model.head_dim", "Size of one head.",
      [](Recipe & r, size_t) -> auto& { return r.model.spec.head_dim; })
      .Default("hidden / heads, unless the preset or folder has its own");
  dimension(
      "model.ffn", "Inner width of the MLP.", [](Recipe & r, size_t) -> auto& { return r.model.spec.ffn; });
  dimension(
      "model.vocab", "Rows of the embedding.",
      [](Recipe & r, size_t) -> auto& { return r.model.spec.vocab; });
  dimension(
      "model.max_position", "Longest sequence that the model is meant for.",
      [](Recipe & r, size_t) -> auto& { return r.model.spec.max_position; })
      .Unit("tokens");
  b.Add(
       "model.tie_embeddings", "The output projection is the embedding.",
       [](Recipe & r, size_t) -> auto& { return r.model.spec.tie_embeddings; })
      .Default(inherited);
  b.Add(
       "model.qkv_bias", "Biases in the query, key and value projections.",
       [](Recipe & r, size_t) -> auto& { return r.model.spec.qkv_bias; })
      .Default(inherited);
  b.Add(
       "model.attention_out_bias", "A bias in the attention's output projection.",
       [](Recipe & r, size_t) -> auto& { return r.model.spec.attention_out_bias; })
      .Default(inherited);
  b.Add(
       "model.mlp_bias", "Biases in the MLP.",
       [](Recipe & r, size_t) -> auto& { return r.model.spec.mlp_bias; })
      .Default(inherited);
  b.Add(
       "model.norm_eps", "Epsilon of RMSNorm.",
       [](Recipe & r, size_t) -> auto& { return r.model.spec.norm_eps; })
      .Above(0)
      .AtMost(1)
      .Default(inherited);
  b.Add(
       "model.rope_theta", "Base of the rotary position frequencies.",
       [](Recipe & r, size_t) -> auto& { return r.model.spec.rope_theta; })
      .Above(1)
      .AtMost(1e15)
      .Default(inherited);
  b.Add(
       "model.init_std", "Standard deviation of the initial weights.",
       [](Recipe & r, size_t) -> auto& { return r.model.spec.init_std; })
      .AtLeast(0)
      .AtMost(10)
      .Default(inherited);
  b.Add(
       "model.weights",
       "Where the first weights come from: `\"random\"`, `\"from\"` (the folder of model.from, in fp32, bf16 "
       "or "
       "fp16) or the path of a checkpoint folder.",
       [](Recipe & r, size_t) -> auto& { return r.model.weights; })
      .Path({"random", "from"});
  b.AddInput("model.rope_scaling", "`\"none\"` drops the RoPE scaling of the preset or folder.",
             Kind::kString)
      .Choices({"none"})
      .Default(inherited)
      .Group("rope_scaling", "none")
      .Accessors(
          [](const Recipe& r, size_t) -> std::optional<Value> {
            if (r.model.spec.rope_scaling.has_value()) return std::nullopt;
            return Value(std::string("none"));
          },
          [](Recipe& r, size_t, const Value&) { r.model.spec.rope_scaling.reset(); });
  const auto scaling = [&](const char* name, const char* doc, auto member) {
    using T = std::remove_reference_t<decltype(member(std::declval<model::RopeScaling&>()))>;
    return b.AddInput(name, doc, KindOf<T>())
        .Above(0)
        .AtMost(1e9)
        .Default(inherited)
        .Group("rope_scaling", "table")
        .Accessors(
            [member](const Recipe& r, size_t) -> std::optional<Value> {
              if (!r.model.spec.rope_scaling.has_value()) return std::nullopt;
              model::RopeScaling scaling = *r.model.spec.rope_scaling;
              return ToValue(member(scaling));
            },
            [member](Recipe& r, size_t, const Value& value) {
              std::optional<model::RopeScaling>& scaling = r.model.spec.rope_scaling;
              if (!scaling.has_value()) scaling.emplace();
              FromValue(value, member(*scaling));
            });
  };
  scaling(
      "model.rope_scaling.factor", "Llama 3 RoPE scaling: how much the low frequencies are stretched.",
      [](model::RopeScaling & s) -> auto& { return s.factor; });
  scaling(
      "model.rope_scaling.low_freq_factor", "Llama 3 RoPE scaling: start of the blend.",
      [](model::RopeScaling & s) -> auto& { return s.low_freq_factor; });
  scaling(
      "model.rope_scaling.high_freq_factor", "Llama 3 RoPE scaling: end of the blend.",
      [](model::RopeScaling & s) -> auto& { return s.high_freq_factor; });
  scaling(
      "model.rope_scaling.original_max_position", "Llama 3 RoPE scaling: context before the stretch.",
      [](model::RopeScaling & s) -> auto& { return s.original_max_position; })
      .Unit("tokens");
}

void AddSource(Builder& b, const std::string& list, std::vector<DataSource>& (*entries)(Recipe&)) {
  const bool is_train = list == "data.train";
  const auto name = [&](const char* leaf) { return absl::StrCat(list, "[].", leaf); };
  b.Add(
       name("name"), "Name of the source in reports and metrics.",
       [entries](Recipe & r, size_t i) -> auto& { return entries(r)[i].name; })
      .Default(is_train ? "`train-<number>`" : "`eval-<number>`");
  Row files = b.Add(
                   name("files"), "Files, or patterns with `*`, `?`, `[...]` and `**`; sorted by bytes.",
                   [entries](Recipe & r, size_t i) -> auto& { return entries(r)[i].files; })
                  .OfKind(Kind::kGlobList);
  if (is_train) {
    files.Required();
  } else {
    files.OmitEmpty().Default("none: then holdout").Group("eval_source", "files");
  }
  b.Add(
       name("kind"), "Format of the files; `auto` goes by their names.",
       [entries](Recipe & r, size_t i) -> auto& { return entries(r)[i].kind; })
      .Choices({"auto", "indexed", "jsonl", "text"});
  b.Add(
      name("text_field"), "For jsonl: the field with the text.", [entries](Recipe & r, size_t i) -> auto& {
        return entries(r)[i].text_field;
      });
  b.Add(
       name("prompt_field"),
       "For jsonl: a field whose text goes before the text and does not count in the loss.",
       [entries](Recipe & r, size_t i) -> auto& { return entries(r)[i].prompt_field; })
      .OmitEmpty()
      .Default("none");
  if (is_train) {
    b.Add(
         name("weight"), "Share of the tokens drawn from this source; for all sources or for none.",
         [entries](Recipe & r, size_t i) -> auto& { return entries(r)[i].weight; })
        .Above(0)
        .AtMost(1e9)
        .AutoIs("by size");
  } else {
    b.Add(
         name("holdout"),
         "Instead of files: this share of the documents of every training source is held out from training "
         "and evaluated.",
         [entries](Recipe & r, size_t i) -> auto& { return entries(r)[i].holdout; })
        .Above(0)
        .Below(1)
        .OmitEmpty()
        .Default("none: then files")
        .Group("eval_source", "holdout");
  }
}

void AddData(Builder& b) {
  b.Add(
       "data.tokenizer",
       "`\"byte\"` (one token per byte), or the path of a tokenizer.json, a sentencepiece .model, or a "
       "folder that has "
       "one. Files that hold tokens already (.bin/.idx) need none.",
       [](Recipe & r, size_t) -> auto& { return r.data.tokenizer; })
      .Path({"byte"})
      .Default("the one in model.from if model.weights is \"from\" and it has one, else \"byte\"");
  b.Add(
      "data.end_of_document",
      "The token that ends each document, as the tokenizer spells it, or `none`. `auto` takes the "
      "model's own from tokenizer_config.json, generation_config.json or config.json next to the "
      "tokenizer, otherwise the first special token that is known to end a text.",
      [](Recipe & r, size_t) -> auto& { return r.data.end_of_document; });
  b.Add(
       "data.seq_len", "Length of one sequence.", [](Recipe & r, size_t) -> auto& { return r.data.seq_len; })
      .Unit("tokens")
      .Range(1, 1 << 24);
  b.Add(
       "data.packing",
       "How documents share a sequence. `whole`: none is cut, and a sequence ends with padding. "
       "`documents`: one stream, cut every data.seq_len tokens, with attention inside each document "
       "only. `continuous`: the same stream, with attention across documents. `auto`: `whole` for "
       "sources with a prompt_field, `documents` for the others.",
       [](Recipe & r, size_t) -> auto& { return r.data.packing; })
      .Choices({"auto", "documents", "continuous", "whole"});
  b.Add(
       "data.long_documents",
       "What to do with a document of more than data.seq_len tokens if documents are placed whole: "
       "skip it, or cut it after data.seq_len tokens.",
       [](Recipe & r, size_t) -> auto& { return r.data.long_documents; })
      .Choices({"skip", "cut"});
  b.Add(
       "data.on_bad_line",
       "What to do with a line of JSONL that is not a JSON object, or whose text or prompt is missing "
       "or not a string: stop and name the line, or skip it. `launch` counts skipped lines and names "
       "the first ten.",
       [](Recipe & r, size_t) -> auto& { return r.data.on_bad_line; })
      .Choices({"stop", "skip"});
  b.Add(
      "data.shuffle", "Draw the documents in a random order that depends on run.seed alone.",
      [](Recipe & r, size_t) -> auto& { return r.data.shuffle; });
  AddSource(
      b, "data.train", [](Recipe & r) -> auto& { return r.data.train; });
  AddSource(
      b, "data.eval", [](Recipe & r) -> auto& { return r.data.eval; });
}

void AddTrain(Builder& b) {
  b.Add(
       "train.steps", "Length of the run.", [](Recipe & r, size_t) -> auto& { return r.train.steps; })
      .OfKind(Kind::kCount)
      .Unit("steps")
      .Range(1, 1e12)
      .Default("from tokens; one of the two is required")
      .Free()
      .Group("length", "steps");
  b.AddInput("train.tokens", "Length of the run in tokens, padding included; rounded up to a step.",
             Kind::kCount)
      .Unit("tokens")
      .Range(1, kMaxCount)
      .Free()
      .Group("length", "tokens");
  b.Add(
       "train.batch_sequences", "Sequences of one step, over all workers.",
       [](Recipe & r, size_t) -> auto& { return r.train.batch_sequences; })
      .OfKind(Kind::kCount)
      .Unit("sequences")
      .Range(1, 1e9)
      .Default("262,144 tokens, at least one sequence")
      .Group("batch", "sequences");
  b.AddInput("train.batch_tokens", "Tokens of one step; a multiple of data.seq_len.", Kind::kCount)
      .Unit("tokens")
      .Range(1, kMaxCount)
      .Group("batch", "tokens");
  b.Add(
       "train.micro_batch",
       "Sequences that one worker computes at a time. Accumulation = batch / (micro_batch x dp_replicate x "
       "dp_shard).",
       [](Recipe & r, size_t) -> auto& { return r.train.micro_batch; })
      .Unit("sequences")
      .Range(1, 1e9)
      .AutoIs("auto: the largest that fits, chosen by the planner")
      .Free();
  b.Add(
       "train.precision",
       "Type of the weights and activations that are computed with; `auto` takes fp32 on a CPU without bf16 "
       "instructions and bf16 elsewhere. Planning for an accelerator, `auto` is the fastest of bf16 (fp16 "
       "where "
       "there is none) and fp8.",
       [](Recipe & r, size_t) -> auto& { return r.train.precision; })
      .Choices({"fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4", "auto"})
      .Refuse("fp16", "this version trains in fp32 and bf16")
      .Refuse("fp8", "this version trains in fp32 and bf16")
      .Refuse("mxfp8", "this version trains in fp32 and bf16")
      .Refuse("nvfp4", "this version trains in fp32 and bf16");
  b.Add(
       "train.master_dtype",
       "Type of the weights as the optimizer updates them. `bf16` takes less memory (docs/guide/train.md): "
       "there are "
       "no fp32 masters, and an updated weight is rounded up or down by chance (stochastic rounding), so "
       "that "
       "small updates are not lost. For `train.precision = \"bf16\"`.",
       [](Recipe & r, size_t) -> auto& { return r.train.master_dtype; })
      .Choices({"fp32", "bf16"});
  b.Add(
       "train.gradient_dtype", "Type in which gradients are accumulated and reduced.",
       [](Recipe & r, size_t) -> auto& { return r.train.gradient_dtype; })
      .Choices({"fp32", "bf16"})
      .Refuse("bf16", "this version accumulates and reduces gradients in fp32");
  b.Add(
       "train.z_loss", "Weight of the square of the log of the softmax's denominator in the loss.",
       [](Recipe & r, size_t) -> auto& { return r.train.z_loss; })
      .Range(0, 1)
      .BySet();
  b.Add(
       "train.eval_every", "Evaluate every so many steps; 0 = only at the end.",
       [](Recipe & r, size_t) -> auto& { return r.train.eval_every; })
      .OfKind(Kind::kCount)
      .Unit("steps")
      .Range(0, 1e12)
      .BySet();
  b.Add(
       "train.eval_batches", "At most so many batches in one evaluation of one set.",
       [](Recipe & r, size_t) -> auto& { return r.train.eval_batches; })
      .OfKind(Kind::kCount)
      .Unit("batches")
      .Range(1, 1e12)
      .BySet();
  b.Add(
       "train.on_nonfinite",
       "When a loss or gradient is not finite: stop, or skip the update of that step, on all workers alike.",
       [](Recipe & r, size_t) -> auto& { return r.train.on_nonfinite; })
      .Choices({"stop", "skip"})
      .BySet();
}

// "`0.9` (sgd)": what `text` says of each optimizer that reads the field, or of all.
template <typename Text>
std::string OfEachOptimizer(const char* field, Text text) {
  std::vector<std::string> values;
  for (const optim::Optimizer* optimizer : optim::All()) {
    if (field != nullptr && !optimizer->Reads(field)) continue;
    values.push_back(absl::StrCat("`", text(optimizer->defaults), "` (", optimizer->name, ")"));
  }
  return absl::StrJoin(values, ", ");
}

std::string OptimizerSummaries() {
  std::vector<std::string> summaries;
  for (const optim::Optimizer* optimizer : optim::All())
    summaries.push_back(absl::StrCat("`", optimizer->name, "`: ", optimizer->summary));
  return absl::StrCat("The optimizer. ", absl::StrJoin(summaries, "; "), ".");
}

std::function<bool(const Recipe&)> OptimizerReads(const char* field) {
  return [field](const Recipe& recipe) {
    const optim::Optimizer* optimizer = optim::Find(recipe.optimizer.name);
    return optimizer != nullptr && optimizer->Reads(field);
  };
}

void AddOptimizer(Builder& b) {
  using Values = const optim::Defaults&;
  b.Add(
       "optimizer.name", "", [](Recipe & r, size_t) -> auto& { return r.optimizer.name; })
      .Doc(OptimizerSummaries())
      .Choices(optim::Names());
  b.Add(
       "optimizer.lr", "Learning rate after the warm-up.",
       [](Recipe & r, size_t) -> auto& { return r.optimizer.lr; })
      .Range(0, 1000)
      .Default(OfEachOptimizer(nullptr, [](Values d) { return FormatDouble(d.lr); }))
      .BySet();
  b.AddInput(
       "optimizer.betas",
       "The two decay rates. adamw: of the first and second moments; lion: of the average whose sign it "
       "takes, and of the one that it keeps.",
       Kind::kDoubleList)
      .AtLeast(0)
      .Below(1)
      .Accessors(
          [](const Recipe& r, size_t) -> std::optional<Value> {
            return Value(std::vector<double>{r.optimizer.beta1, r.optimizer.beta2});
          },
          [](Recipe& r, size_t, const Value& value) {
            const auto& betas = std::get<std::vector<double>>(value);
            r.optimizer.beta1 = betas.at(0);
            r.optimizer.beta2 = betas.at(1);
          })
      .Length(2)
      .Where(OptimizerReads("betas"))
      .Default(OfEachOptimizer("betas", [](Values d) {
        return absl::StrCat("[", FormatDouble(d.beta1), ", ", FormatDouble(d.beta2), "]");
      }));
  b.Add(
       "optimizer.eps", "Added to the root of the second moments.",
       [](Recipe & r, size_t) -> auto& { return r.optimizer.eps; })
      .Above(0)
      .AtMost(1)
      .Where(OptimizerReads("eps"))
      .Default(OfEachOptimizer("eps", [](Values d) { return FormatDouble(d.eps); }))
      .BySet();
  b.Add(
       "optimizer.momentum", "Decay rate of the sum of gradients that each step follows.",
       [](Recipe & r, size_t) -> auto& { return r.optimizer.momentum; })
      .AtLeast(0)
      .Below(1)
      .Where(OptimizerReads("momentum"))
      .Default(OfEachOptimizer("momentum", [](Values d) { return FormatDouble(d.momentum); }));
  b.Add(
       "optimizer.weight_decay",
       "Weight decay. Decoupled: a parameter shrinks by lr times it; sgd adds it to the gradient instead.",
       [](Recipe & r, size_t) -> auto& { return r.optimizer.weight_decay; })
      .Range(0, 1000)
      .Default(OfEachOptimizer(nullptr, [](Values d) { return FormatDouble(d.weight_decay); }))
      .BySet();
  b.Add(
       "optimizer.no_decay",
       "Patterns (`*`, `?`) over parameter names that get no weight decay. One that matches nothing is an "
       "error, unless it is in the default.",
       [](Recipe & r, size_t) -> auto& { return r.optimizer.no_decay; })
      .BySet();
  b.Add(
       "optimizer.clip_norm", "Largest global gradient norm; 0 = off.",
       [](Recipe & r, size_t) -> auto& { return r.optimizer.clip_norm; })
      .Range(0, 1e9)
      .BySet();
  b.Add(
       "optimizer.lr_schedule", "How the learning rate goes from lr to min_lr after the warm-up.",
       [](Recipe & r, size_t) -> auto& { return r.optimizer.lr_schedule; })
      .Choices({"cosine", "linear", "wsd", "constant"})
      .BySet();
  b.Add(
       "optimizer.warmup_steps", "Steps in which the learning rate grows to lr.",
       [](Recipe & r, size_t) -> auto& { return r.optimizer.warmup_steps; })
      .OfKind(Kind::kCount)
      .Unit("steps")
      .Range(0, 1e12)
      .BySet();
  b.Add(
       "optimizer.decay_steps", "Step at which the learning rate has reached min_lr.",
       [](Recipe & r, size_t) -> auto& { return r.optimizer.decay_steps; })
      .OfKind(Kind::kCount)
      .Unit("steps")
      .Range(1, 1e12)
      .AutoIs("auto: train.steps of the first launch, recorded, so that a longer resume keeps the past curve")
      .BySet();
  b.Add(
       "optimizer.decay_fraction", "For wsd: the last share of decay_steps, in which the rate falls.",
       [](Recipe & r, size_t) -> auto& { return r.optimizer.decay_fraction; })
      .Above(0)
      .AtMost(1)
      .BySet();
  b.Add(
       "optimizer.min_lr", "Learning rate at the end of the decay.",
       [](Recipe & r, size_t) -> auto& { return r.optimizer.min_lr; })
      .Range(0, 1000)
      .BySet();
}

void AddParallel(Builder& b) {
  const auto degree = [&](const char* name, const char* doc, auto member) {
    return b.Add(name, doc, member).Range(1, 1e6).AutoIs("auto: chosen by the planner").Free();
  };
  degree(
      "parallel.dp_replicate", "Replicas of the (sharded) model.",
      [](Recipe & r, size_t) -> auto& { return r.parallel.dp_replicate; });
  degree(
      "parallel.dp_shard", "Workers over which ZeRO shards one replica.",
      [](Recipe & r, size_t) -> auto& { return r.parallel.dp_shard; });
  const auto only_one = [&](const char* name, const char* doc, const char* what, auto member) {
    degree(name, doc, member).Refuse(">1", what);
  };
  b.Add(
       "parallel.tp", "Tensor parallelism: workers that share each product, each with some heads.",
       [](Recipe & r, size_t) -> auto& { return r.parallel.tp; })
      .Range(1, 1e6)
      .AutoIs("auto: chosen by the planner")
      .Free();
  only_one(
      "parallel.cp", "Context parallelism.", "this version does not train with context parallelism",
      [](Recipe & r, size_t) -> auto& { return r.parallel.cp; });
  b.Add(
       "parallel.pp", "Stages of the pipeline, each on workers of its own.",
       [](Recipe & r, size_t) -> auto& { return r.parallel.pp; })
      .Range(1, 1e6)
      .AutoIs("auto: chosen by the planner")
      .Free();
  only_one(
      "parallel.ep", "Expert parallelism.", "this version does not train with expert parallelism",
      [](Recipe & r, size_t) -> auto& { return r.parallel.ep; });
  only_one(
      "parallel.etp", "Tensor parallelism of each expert.",
      "this version does not train with expert parallelism",
      [](Recipe & r, size_t) -> auto& { return r.parallel.etp; });
  b.Add(
       "parallel.virtual_stages", "Stages of the model on each rank of the pipeline.",
       [](Recipe & r, size_t) -> auto& { return r.parallel.virtual_stages; })
      .Range(1, 1e6)
      .AutoIs("auto: chosen by the planner, with `schedule` stated the fewest that it takes")
      .Free();
  const auto planned = [&](const char* name, const char* doc, auto member) {
    return b.Add(name, doc, member).AutoIs("auto: chosen by the planner").Free();
  };
  planned(
      "parallel.schedule", "The order of the pipeline's passes; docs/design/schedules.md draws them.",
      [](Recipe & r, size_t) -> auto& { return r.parallel.schedule; })
      .Choices(schedule::PipelineKindNames())
      .AutoIs("auto: chosen by the planner; 1f1b if no other gains 3 %")
      .Group("order", "schedule");
  b.Add(
       "parallel.schedule_file",
       "A file with an order of your own, instead of `schedule`: a line per rank, its passes in order "
       "(docs/reference/formats.md has the form). It is proven before it runs, and kept with the run.",
       [](Recipe & r, size_t) -> auto& { return r.parallel.schedule_file; })
      .Path()
      .OmitEmpty()
      .Default("none")
      .Group("order", "schedule_file")
      .Free();
  b.Add(
       "parallel.passes", "The lines of `schedule_file`, where they stand in the recipe itself.",
       [](Recipe & r, size_t) -> auto& { return r.parallel.passes; })
      .OmitEmpty()
      .Default("none")
      .Group("order", "passes")
      .Free();
  planned(
      "parallel.recomputed_layers",
      "With recompute = \"full\": so many layers of each stage are recomputed, the first ones, and the "
      "others keep what they need; as many as the model has are all. A list is of the pp x virtual_stages "
      "stages, in the order of the model. In what-ifs of other trainers one number, of each pipeline rank.",
      [](Recipe & r, size_t) -> auto& { return r.parallel.recomputed_layers; })
      .Range(0, 10000)
      .OrOne()
      .AutoIs("auto: all; where recompute is \"auto\" too, as few of each stage as fit");
  planned(
      "parallel.stage_layers", "Layers of each of the pp x virtual_stages stages, in the order of the model.",
      [](Recipe & r, size_t) -> auto& { return r.parallel.stage_layers; })
      .Range(0, 10000)
      .AutoIs("auto: balanced; the embedding and the head count by the time that they take");
  planned(
      "parallel.context",
      "How context-parallel ranks see each other's keys and values: passed round in a ring, gathered first, "
      "or "
      "heads exchanged for tokens.",
      [](Recipe & r, size_t) -> auto& { return r.parallel.context; })
      .Choices({"ring", "all-gather", "all-to-all"})
      .Refuse("*", "this version does not train with context parallelism");
  planned(
      "parallel.sequence_parallel",
      "With tensor parallelism: norms and residuals are cut along the sequence too.",
      [](Recipe & r, size_t) -> auto& { return r.parallel.sequence_parallel; })
      .AutoIs("auto: true with tp > 1; in what-ifs of other trainers as the framework does it");
  planned(
      "parallel.offload", "What waits in host memory: `\"optimizer\"`, `\"activations\"`; `[]` is nothing.",
      [](Recipe & r, size_t) -> auto& { return r.parallel.offload; })
      .Choices({"optimizer", "activations"})
      .Refuse("*", "this version offloads nothing");
  b.Add(
       "parallel.zero_stage",
       "What is sharded over dp_shard: 1 the optimizer, 2 and the gradients, 3 and the parameters; 0 is "
       "plain "
       "data parallelism (DDP) and needs dp_shard = 1.",
       [](Recipe & r, size_t) -> auto& { return r.parallel.zero_stage; })
      .Range(0, 3)
      .AutoIs("auto: chosen by the planner")
      .Free();
  b.Add(
       "parallel.recompute",
       "Which activations the backward pass computes again instead of keeping them: none; \"selective\": "
       "what "
       "takes no product (norms, activation functions, rows gathered for tensor parallelism); \"attention\": "
       "attention as well; \"full\": all between the inputs of layers. In what-ifs of other trainers "
       "selective is what the framework selects.",
       [](Recipe & r, size_t) -> auto& { return r.parallel.recompute; })
      .Choices({"none", "selective", "attention", "full"})
      .AutoIs("auto: chosen by the planner")
      .Free();
  b.Add(
       "parallel.prefetch",
       "Gather the next block's parameters and reduce the last one's gradients while this one computes.",
       [](Recipe & r, size_t) -> auto& { return r.parallel.prefetch; })
      .Free();
}

// A machine that the catalogue does not have, by what differs from one that it has.
void AddMachine(Builder& b) {
  const auto own = [&](const char* name, const char* doc, Kind kind, auto member) {
    return b.Add(name, doc, member)
        .OfKind(kind)
        .Range(1, kMaxCount)
        .AutoIs("auto: as in the catalogue")
        .Free();
  };
  b.Add(
       "cluster.node", "The machine of the catalogue that the accelerators are in.",
       [](Recipe & r, size_t) -> auto& { return r.cluster.node; })
      .AutoIs("auto: the one that the device is most often met in")
      .Free();
  own(
      "cluster.memory", "Memory of one device, all that the driver gives.", Kind::kBytes,
      [](Recipe & r, size_t) -> auto& { return r.cluster.memory_bytes; });
  own(
      "cluster.memory_bandwidth", "Of one device's memory, by its data sheet.", Kind::kBandwidth,
      [](Recipe & r, size_t) -> auto& { return r.cluster.memory_bandwidth; });
  own(
      "cluster.half_flops", "Dense bf16 matrix products of one device.", Kind::kCount,
      [](Recipe & r, size_t) -> auto& { return r.cluster.half_flops; })
      .Unit("FLOP/s");
  own(
      "cluster.fp8_flops", "Dense fp8 matrix products of one device.", Kind::kCount,
      [](Recipe & r, size_t) -> auto& { return r.cluster.fp8_flops; })
      .Unit("FLOP/s");
  own(
      "cluster.scale_up_bandwidth", "From one device to its neighbours in the node, one direction.",
      Kind::kBandwidth, [](Recipe & r, size_t) -> auto& { return r.cluster.scale_up_bandwidth; });
  own(
      "cluster.scale_out_bandwidth", "Of one network adapter, one direction.", Kind::kBandwidth,
      [](Recipe & r, size_t) -> auto& { return r.cluster.scale_out_bandwidth; });
  own(
      "cluster.nics", "Network adapters of a node that collectives use.", Kind::kInt,
      [](Recipe & r, size_t) -> auto& { return r.cluster.nics; })
      .AtMost(1024);
  own(
      "cluster.host_memory", "Main memory of a node, for offload.", Kind::kBytes,
      [](Recipe & r, size_t) -> auto& { return r.cluster.host_memory_bytes; });
}

void AddCluster(Builder& b) {
  b.Add(
       "cluster.nodes", "Machines.", [](Recipe & r, size_t) -> auto& { return r.cluster.nodes; })
      .Range(1, 1e6)
      .Free();
  b.Add(
       "cluster.devices_per_node", "Workers on each machine.",
       [](Recipe & r, size_t) -> auto& { return r.cluster.devices_per_node; })
      .Range(1, 1024)
      .Default("`1`; with an accelerator of the catalogue: as many as the node has")
      .Free();
  b.Add(
       "cluster.device",
       "What a worker computes on: `\"cpu\"`; `\"cuda\"`, the NVIDIA GPUs of this machine "
       "(docs/guide/gpus.md); an accelerator of docs/reference/catalogue.md in any spelling "
       "(`\"h100-sxm-80gb\"`, `\"A100 40GB\"`), which `trainctl plan` plans for without having one; or "
       "`\"auto\"`: what this machine has, with its number and memory, else "
       "`\"cpu\"`.",
       [](Recipe & r, size_t) -> auto& { return r.cluster.device; })
      .Free();
  b.Add(
       "cluster.memory_limit", "Memory that one worker may use.",
       [](Recipe & r, size_t) -> auto& { return r.cluster.memory_limit_bytes; })
      .OfKind(Kind::kBytes)
      .Range(1, kMaxCount)
      .AutoIs("auto: what the machine has, divided by its workers; of an accelerator all it has")
      .Free();
  b.Add(
       "cluster.threads_per_worker", "Threads of one worker.",
       [](Recipe & r, size_t) -> auto& { return r.cluster.threads_per_worker; })
      .Range(1, 4096)
      .AutoIs("auto: allowed cores / workers, at least 1")
      .Free();
  AddMachine(b);
}

void AddPlan(Builder& b) {
  b.Add(
       "plan.framework",
       "Whose run `trainctl plan` works out: `\"trainctl\"`, our own, which `launch` runs; or a what-if, "
       "another trainer by a name of docs/reference/other-trainers.md (`\"megatron-core\"`, "
       "`\"torchtitan\"`), priced and never run.",
       [](Recipe & r, size_t) -> auto& { return r.plan.framework; })
      .Refuse("*", "a what-if of another trainer, for `trainctl plan` alone; remove it to launch")
      .Free();
  b.Add(
       "plan.objective",
       "What the plan is the best in: time of a step, cost of a token (GPU-hours where there is no price), "
       "free "
       "memory, or the number of GPUs that meets the deadline.",
       [](Recipe & r, size_t) -> auto& { return r.plan.objective; })
      .Choices({"step_time", "cost", "headroom", "fewest_gpus"})
      .Free();
  b.Add(
       "plan.price_per_gpu_hour", "What one device costs.",
       [](Recipe & r, size_t) -> auto& { return r.plan.price_per_gpu_hour; })
      .Unit("dollars")
      .Range(0, 1e6)
      .Default("`0.0`: costs are told in GPU-hours")
      .Free();
  b.Add(
       "plan.deadline", "Time in which the whole run must be over; needs train.steps or train.tokens.",
       [](Recipe & r, size_t) -> auto& { return r.plan.deadline; })
      .Range(1, 1e10)
      .AutoIs("auto: none")
      .Free();
  b.Add(
       "plan.gpu_mtbf",
       "Mean time between failures of one device, of whatever stops the job; the effective time of the run "
       "is "
       "told with it.",
       [](Recipe & r, size_t) -> auto& { return r.plan.gpu_mtbf; })
      .Range(1, 1e12)
      .AutoIs("auto: failures are left out")
      .Free();
  b.Add(
       "plan.restart_time", "From a failure to the first step after it.",
       [](Recipe & r, size_t) -> auto& { return r.plan.restart_time; })
      .Range(0, 1e7)
      .Free();
}

void AddSsh(Builder& b) {
  const auto is_ssh = [](const Recipe& r) { return r.launch.backend == "ssh"; };
  b.Add(
       "launch.ssh.hosts",
       "Machines, `\"name\"` or `\"user@name\"`, in the order of the ranks; the first `cluster.nodes` are "
       "used.",
       [](Recipe & r, size_t) -> auto& { return r.launch.ssh.hosts; })
      .OmitEmpty()
      .Default("one of hosts and hosts_file is required")
      .Group("hosts", "hosts")
      .Where(is_ssh)
      .Free();
  b.Add(
       "launch.ssh.hosts_file",
       "File with a machine on each line; `#` starts a comment. Read anew at each launch and resume.",
       [](Recipe & r, size_t) -> auto& { return r.launch.ssh.hosts_file; })
      .Path()
      .OmitEmpty()
      .Default("one of hosts and hosts_file is required")
      .Group("hosts", "hosts_file")
      .Where(is_ssh)
      .Free();
  b.Add(
       "launch.ssh.options",
       "Given to ssh before the machine's name: `[\"-p\", \"2222\"]`, `[\"-F\", \"ssh_config\"]`.",
       [](Recipe & r, size_t) -> auto& { return r.launch.ssh.options; })
      .OmitEmpty()
      .Where(is_ssh)
      .Free();
  b.Add(
       "launch.ssh.program", "Path of trainctl on the other machines.",
       [](Recipe & r, size_t) -> auto& { return r.launch.ssh.program; })
      .Path()
      .AutoIs("auto: the path of this program")
      .Where(is_ssh)
      .Free();
  b.Add(
       "launch.slurm.submit_options",
       "Given to the `sbatch` that `launch` and `resume` submit a job with where they are in no allocation: "
       "`[\"--partition=gpu\", \"--time=24:00:00\"]`.",
       [](Recipe & r, size_t) -> auto& { return r.launch.slurm.submit_options; })
      .OmitEmpty()
      .Where([](const Recipe& r) { return r.launch.backend == "slurm"; })
      .Free();
  b.Add(
       "launch.slurm.save_before",
       "How long before the end of its time a submitted job saves and goes back into the queue. Longer than "
       "a "
       "step and a save.",
       [](Recipe & r, size_t) -> auto& { return r.launch.slurm.save_before; })
      .Range(1, 65535)
      .Where([](const Recipe& r) { return r.launch.backend == "slurm"; })
      .Free();
  b.Add(
       "launch.slurm.step_options",
       "Given to the `srun` that starts one agent on each node: `[\"--network=...\"]`.",
       [](Recipe & r, size_t) -> auto& { return r.launch.slurm.step_options; })
      .OmitEmpty()
      .Where([](const Recipe& r) { return r.launch.backend == "slurm"; })
      .Free();
}

void AddKubernetes(Builder& b) {
  const auto own = [&](const char* name, const char* doc, auto member) {
    return b.Add(name, doc, member)
        .OmitEmpty()
        .Where([](const Recipe& r) { return r.launch.backend == "kubernetes"; })
        .Free();
  };
  own(
      "launch.kubernetes.name",
      "Name of the Job, its Service, NetworkPolicy and Secret; pods are called NAME-0, NAME-1, ...",
      [](Recipe & r, size_t) -> auto& { return r.launch.kubernetes.name; })
      .Default("required to launch");
  own(
      "launch.kubernetes.namespace", "Namespace of the Job.",
      [](Recipe & r, size_t) -> auto& { return r.launch.kubernetes.name_space; })
      .Default("that of kubectl's context");
  own(
      "launch.kubernetes.image", "Container image that has trainctl in its PATH.",
      [](Recipe & r, size_t) -> auto& { return r.launch.kubernetes.image; })
      .Default("required to launch");
  own(
      "launch.kubernetes.claim",
      "PersistentVolumeClaim of the file system that all pods share (access mode ReadWriteMany).",
      [](Recipe & r, size_t) -> auto& { return r.launch.kubernetes.claim; })
      .Default("required to launch");
  own(
      "launch.kubernetes.mount",
      "Where pods mount it. Recipe and run folder lie below, and so do data, tokenizer and model.",
      [](Recipe & r, size_t) -> auto& { return r.launch.kubernetes.mount; })
      .Default("`\"/shared\"`");
  b.Add(
       "launch.kubernetes.user",
       "User and group id of the pods' processes, which must be able to write below the mount; 0 = root.",
       [](Recipe & r, size_t) -> auto& { return r.launch.kubernetes.user; })
      .Default("`1000`")
      .Range(0, std::numeric_limits<int32_t>::max())
      .Where([](const Recipe& r) { return r.launch.backend == "kubernetes"; })
      .Free();
}

void AddRest(Builder& b) {
  b.Add(
       "checkpoint.every_steps", "Save every so many steps. A stop and the end of the run save as well.",
       [](Recipe & r, size_t) -> auto& { return r.checkpoint.every_steps; })
      .OfKind(Kind::kCount)
      .Unit("steps")
      .Range(1, 1e12)
      .AutoIs("auto: a tenth of the run, at least 10 and at most 1000; off when `every` is given")
      .Free();
  b.Add(
       "checkpoint.every", "Save every so much time.",
       [](Recipe & r, size_t) -> auto& { return r.checkpoint.every; })
      .Range(1, 1e9)
      .AutoIs("auto: off")
      .Free();
  b.Add(
       "checkpoint.keep", "Newest checkpoints that are kept.",
       [](Recipe & r, size_t) -> auto& { return r.checkpoint.keep; })
      .Range(1, 1e6)
      .Free();
  b.Add(
       "checkpoint.keep_every_steps", "Checkpoints at multiples of this step are never deleted; 0 = off.",
       [](Recipe & r, size_t) -> auto& { return r.checkpoint.keep_every_steps; })
      .OfKind(Kind::kCount)
      .Unit("steps")
      .Range(0, 1e12)
      .Free();
  b.Add(
       "checkpoint.keep_best",
       "Name of an evaluation set: the checkpoint with its lowest loss is kept, however old. Only steps that "
       "are "
       "evaluated count, so make `train.eval_every` a divisor of `every_steps`.",
       [](Recipe & r, size_t) -> auto& { return r.checkpoint.keep_best; })
      .OmitEmpty()
      .Default("none")
      .Free();
  b.Add(
       "checkpoint.at_end",
       "Save when the last step is done. Without it a run keeps what `every_steps` and `every` saved; a stop "
       "saves in any case.",
       [](Recipe & r, size_t) -> auto& { return r.checkpoint.at_end; })
      .Free();
  b.Add(
       "checkpoint.async",
       "Copy the state in memory, which needs room for one copy of each worker's optimizer state, and "
       "write the copy while training goes on.",
       [](Recipe & r, size_t) -> auto& { return r.checkpoint.async; })
      .Free();
  b.Add(
       "checkpoint.when_busy",
       "When a save is due and the one before is still being written: wait for it, or skip the new one. A "
       "stop and the end of the run always wait.",
       [](Recipe & r, size_t) -> auto& { return r.checkpoint.when_busy; })
      .Choices({"wait", "skip"})
      .Free();
  b.Add(
       "launch.backend",
       "How workers are started: `local`, on this machine; `ssh`, on the machines of `[launch.ssh]`; "
       "`slurm`, "
       "on the nodes of the allocation that `trainctl launch` is in, or in a job that it submits "
       "(docs/guide/slurm.md); "
       "`kubernetes`, in the pods of a Job, whose manifest `launch --dry-run` prints "
       "(docs/guide/kubernetes.md).",
       [](Recipe & r, size_t) -> auto& { return r.launch.backend; })
      .Choices({"local", "ssh", "slurm", "kubernetes"})
      .Free();
  b.Add(
       "launch.max_restarts",
       "Restarts from the last checkpoint after failures without a new checkpoint in between; 0 = none.",
       [](Recipe & r, size_t) -> auto& { return r.launch.max_restarts; })
      .Range(0, 1e6)
      .Free();
  b.Add(
       "launch.detect_timeout",
       "Silence after which a worker counts as lost; that it has ended is noticed at once.",
       [](Recipe & r, size_t) -> auto& { return r.launch.detect_timeout; })
      .Range(0.1, 3600)
      .Free();
  b.Add(
       "launch.stop_timeout", "Time from the stop signal to the kill signal.",
       [](Recipe & r, size_t) -> auto& { return r.launch.stop_timeout; })
      .Range(0, 86400)
      .Free();
  b.Add(
       "launch.collective_timeout",
       "Time that a rank waits for the others in a collective before the job counts as hung; longer than "
       "the slowest rank needs to write its part of a checkpoint.",
       [](Recipe & r, size_t) -> auto& { return r.launch.collective_timeout; })
      .Range(1, 86400)
      .Free();
  b.Add(
       "launch.hang_timeout",
       "Time that a worker may stand still at most, with all that it does unchanged: in a library call, on a "
       "file, in a kernel of a device. One that neither computes nor waits for a disk is noticed sooner: "
       "after "
       "20 times the longest pause that its phase had so far, at least 60 s, and 5 minutes in a phase that "
       "is "
       "not known yet.",
       [](Recipe & r, size_t) -> auto& { return r.launch.hang_timeout; })
      .Range(1, 86400)
      .Free();
  b.Add(
       "launch.log_limit",
       "Size at which a worker's log is renamed to `rank-NNNNN.log.1` and a new log is started. An existing "
       "file "
       "of that name is replaced, so a worker's logs take at most twice this size.",
       [](Recipe & r, size_t) -> auto& { return r.launch.log_limit_bytes; })
      .OfKind(Kind::kBytes)
      .Range(1, kMaxCount)
      .Free();
  b.Add(
       "launch.coordinator_timeout",
       "How long other machines keep their workers running without hearing from the launcher; at least twice "
       "launch.detect_timeout.",
       [](Recipe & r, size_t) -> auto& { return r.launch.coordinator_timeout; })
      .Range(1, 86400)
      .Free();
  b.Add(
       "launch.interface",
       "Network that the machines of a run use for each other (gRPC, Gloo, NCCL): an interface's name, an "
       "address, or a range such as `10.0.0.0/8` that has one address of each machine.",
       [](Recipe & r, size_t) -> auto& { return r.launch.interface; })
      .AutoIs("auto: the one on the route to the launcher")
      .Free();
  b.Add(
       "launch.pass_env",
       "Variables of the caller, by name, that workers on other machines get besides `[launch.env]`; they "
       "get no others of it. Their values are not stored.",
       [](Recipe & r, size_t) -> auto& { return r.launch.pass_env; })
      .Default("none")
      .Free();
  b.Add(
       "launch.env", "Environment variables for the workers, by name. Not for secrets: recipes are stored.",
       [](Recipe & r, size_t) -> auto& { return r.launch.env; })
      .Default("none")
      .Free();
  AddSsh(b);
  AddKubernetes(b);
  b.Add(
       "metrics.every_steps", "Write a line of metrics every so many steps.",
       [](Recipe & r, size_t) -> auto& { return r.metrics.every_steps; })
      .OfKind(Kind::kCount)
      .Unit("steps")
      .Range(1, 1e12)
      .Free();
  b.Add(
       "metrics.tensorboard",
       "Write TensorBoard events into the run folder as the run goes on (`trainctl export tensorboard` makes "
       "them "
       "afterwards).",
       [](Recipe & r, size_t) -> auto& { return r.metrics.tensorboard; })
      .Free();
  b.Add(
       "metrics.trace_steps",
       "Steps of which each worker records when its instructions ran, counted from 1; `trainctl trace` joins "
       "them.",
       [](Recipe & r, size_t) -> auto& { return r.metrics.trace_steps; })
      .Default("none")
      .AtLeast(1)
      .Free();
  b.Add(
       "metrics.profile_steps",
       "Steps of which each worker records its device's kernels and copies by name, counted from 1, into "
       "`profiles/` of the run folder (for Perfetto).",
       [](Recipe & r, size_t) -> auto& { return r.metrics.profile_steps; })
      .Default("none")
      .AtLeast(1)
      .Free();
}

}  // namespace

std::vector<Field> AllFields() {
  std::vector<Field> fields;
  Builder builder(fields);
  AddRun(builder);
  AddModel(builder);
  AddData(builder);
  AddTrain(builder);
  AddOptimizer(builder);
  AddParallel(builder);
  AddCluster(builder);
  AddRest(builder);
  AddPlan(builder);
  return fields;
}

}  // namespace trainctl::recipe
