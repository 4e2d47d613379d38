// The table: one row for each field of a recipe.

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
       "recipe_version",
       "Version of the recipe format. A version newer than this program supports is rejected.",
       [](Recipe & r, size_t) -> auto& { return r.recipe_version; })
      .Range(1, 1);
  b.Add(
      "run.name", "Prefix of the run folder's name: `<root>/<name>-<UTC yyyymmdd-hhmmss>`.",
      [](Recipe & r, size_t) -> auto& { return r.run.name; });
  b.Add(
       "run.root", "Folder in which run folders are created, relative to the working directory.",
       [](Recipe & r, size_t) -> auto& { return r.run.root; })
      .Path()
      .FromWorkingDir();
  b.Add(
       "run.seed", "Random seed for the initial weights and the data order.",
       [](Recipe & r, size_t) -> auto& { return r.run.seed; })
      .AtLeast(0);
  b.Add(
      "run.deterministic",
      "Use only deterministic algorithms, so that repeating a run gives bit-identical results. Affects only "
      "GPUs; CPU runs are always deterministic.",
      [](Recipe & r, size_t) -> auto& { return r.run.deterministic; });
  b.Add(
       "run.attention",
       "GPU attention kernel for sequences without document boundaries (data.packing = \"continuous\"): "
       "cuDNN or flash attention. `auto` times both when the run first starts and records the faster one in "
       "the run folder's attention.json.",
       [](Recipe & r, size_t) -> auto& { return r.run.attention; })
      .Choices({"auto", "cudnn", "flash"});
  b.Add(
       "run.graphs",
       "When training in bf16 on a single GPU, launch each step as one CUDA graph, which is captured from "
       "the second step and verified against it. Steps with packed documents still launch kernels one by "
       "one.",
       [](Recipe & r, size_t) -> auto& { return r.run.graphs; })
      .Free();
  b.Add(
       "run.check_kernels",
       "On a GPU, synchronize after every operator, so that the error from a failing kernel names the "
       "operator, block and micro-batch. Slow; for debugging only.",
       [](Recipe & r, size_t) -> auto& { return r.run.check_kernels; })
      .Free();
}

void AddSource(Builder& b, const std::string& list, std::vector<DataSource>& (*entries)(Recipe&)) {
  const bool is_train = list == "data.train";
  const auto name = [&](const char* leaf) { return absl::StrCat(list, "[].", leaf); };
  b.Add(
       name("name"), "Name of this source in reports and metrics.",
       [entries](Recipe & r, size_t i) -> auto& { return entries(r)[i].name; })
      .Default(is_train ? "`train-<number>`" : "`eval-<number>`");
  Row files = b.Add(
                   name("files"),
                   "Paths or glob patterns (`*`, `?`, `[...]`, `**`). Files are read in bytewise order of "
                   "their paths.",
                   [entries](Recipe & r, size_t i) -> auto& { return entries(r)[i].files; })
                  .OfKind(Kind::kGlobList);
  if (is_train) {
    files.Required();
  } else {
    files.OmitEmpty().Default("none (then holdout is required)").Group("eval_source", "files");
  }
  b.Add(
       name("kind"), "Format of the files; `auto` infers it from their names.",
       [entries](Recipe & r, size_t i) -> auto& { return entries(r)[i].kind; })
      .Choices({"auto", "indexed", "jsonl", "parquet", "text"});
  b.Add(
      name("text_field"),
      "For JSONL and Parquet: the field that contains the text.", [entries](Recipe & r, size_t i) -> auto& {
        return entries(r)[i].text_field;
      });
  b.Add(
       name("prompt_field"),
       "For JSONL and Parquet: the field that contains a prompt. The prompt precedes the text and is "
       "excluded from the loss.",
       [entries](Recipe & r, size_t i) -> auto& { return entries(r)[i].prompt_field; })
      .OmitEmpty()
      .Default("none");
  if (is_train) {
    b.Add(
         name("weight"),
         "Share of training tokens drawn from this source. Set it for every source or for none.",
         [entries](Recipe & r, size_t i) -> auto& { return entries(r)[i].weight; })
        .Above(0)
        .AtMost(1e9)
        .AutoIs("proportional to its size");
  } else {
    b.Add(
         name("holdout"),
         "Instead of files: share of each training source's documents to hold out from training and evaluate "
         "on.",
         [entries](Recipe & r, size_t i) -> auto& { return entries(r)[i].holdout; })
        .Above(0)
        .Below(1)
        .OmitEmpty()
        .Default("none (then files is required)")
        .Group("eval_source", "holdout");
  }
}

void AddData(Builder& b) {
  b.Add(
       "data.tokenizer",
       "`\"byte\"` (one token per byte), or the path of a tokenizer.json, a SentencePiece .model file, or a "
       "folder that contains either. Pre-tokenized files (.bin/.idx) need no tokenizer.",
       [](Recipe & r, size_t) -> auto& { return r.data.tokenizer; })
      .Path({"byte"})
      .Default(
          "the tokenizer in the model.from folder if it has one and model.weights is \"from\"; otherwise "
          "\"byte\"");
  b.Add(
      "data.end_of_document",
      "Token that ends each document, spelled as in the tokenizer, or `none`. `auto` reads it from "
      "tokenizer_config.json, special_tokens_map.json, generation_config.json or config.json next to the "
      "tokenizer, and falls back to the first special token known to end a text.",
      [](Recipe & r, size_t) -> auto& { return r.data.end_of_document; });
  b.Add(
       "data.seq_len", "Sequence length.", [](Recipe & r, size_t) -> auto& { return r.data.seq_len; })
      .Default("2048, or the most that the model supports if that is less")
      .Unit("tokens")
      .Range(1, 1 << 24);
  b.Add(
       "data.packing",
       "How documents are packed into sequences. `whole` never splits a document and pads the end of each "
       "sequence. `documents` splits one stream of documents every data.seq_len tokens and limits attention "
       "to the same document. `continuous` splits the stream the same way but lets attention cross "
       "documents. `auto` means `whole` for sources with a prompt_field and `documents` for all others.",
       [](Recipe & r, size_t) -> auto& { return r.data.packing; })
      .Choices({"auto", "documents", "continuous", "whole"});
  b.Add(
       "data.long_documents",
       "What to do with documents longer than data.seq_len tokens when documents are packed whole: `skip` "
       "them, or `cut` them to their first data.seq_len tokens.",
       [](Recipe & r, size_t) -> auto& { return r.data.long_documents; })
      .Choices({"skip", "cut"});
  b.Add(
       "data.on_bad_line",
       "What to do with a bad record: `stop` with an error that names it, or `skip` it. A JSONL line is bad "
       "if it is not a JSON object, or if its text or prompt is missing or not a string. A Parquet row is "
       "bad if its text or prompt is null or not UTF-8. `launch` reports how many records it skipped and "
       "lists the first ten.",
       [](Recipe & r, size_t) -> auto& { return r.data.on_bad_line; })
      .Choices({"stop", "skip"});
  b.Add(
      "data.shuffle", "Read documents in a random order that depends only on run.seed.",
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
      .Default("derived from train.tokens or train.epochs; one of the three is required")
      .Free()
      .Group("length", "steps");
  b.AddInput("train.tokens", "Length of the run in tokens, including padding, rounded up to a whole step.",
             Kind::kCount)
      .Unit("tokens")
      .Range(1, kMaxCount)
      .Free()
      .Group("length", "tokens");
  b.AddInput(
       "train.epochs",
       "Length of the run in passes over the training data, such as 3 or 0.5, rounded up to a whole step. "
       "`launch` counts the data and stores the resulting number of steps with the run. When you resume, "
       "epochs are still counted from the run's first step. Cannot be combined with source weights.",
       Kind::kDouble)
      .Unit("epochs")
      .Above(0)
      .AtMost(1e6)
      .Free()
      .Group("length", "epochs")
      .Accessors(
          [](const Recipe& r, size_t) {
            return r.train.epochs.has_value() ? std::optional<Value>(*r.train.epochs) : std::nullopt;
          },
          [](Recipe& r, size_t, const Value& value) {
            const double* const epochs = std::get_if<double>(&value);
            r.train.epochs = epochs != nullptr ? std::optional<double>(*epochs) : std::nullopt;
          });
  b.Add(
       "train.batch_sequences", "Sequences per step across all workers.",
       [](Recipe & r, size_t) -> auto& { return r.train.batch_sequences; })
      .OfKind(Kind::kCount)
      .Unit("sequences")
      .Range(1, 1e9)
      .Default("enough for 262,144 tokens, at least one sequence")
      .Group("batch", "sequences");
  b.AddInput("train.batch_tokens", "Tokens per step across all workers; must be a multiple of data.seq_len.",
             Kind::kCount)
      .Unit("tokens")
      .Range(1, kMaxCount)
      .Group("batch", "tokens");
  b.Add(
       "train.micro_batch",
       "Sequences that each worker processes at once. Gradient accumulation = batch / (micro_batch x "
       "dp_replicate x dp_shard).",
       [](Recipe & r, size_t) -> auto& { return r.train.micro_batch; })
      .Unit("sequences")
      .Range(1, 1e9)
      .AutoIs("auto (the largest that fits, chosen by the planner)")
      .Free();
  b.Add(
       "train.precision",
       "Data type of weights and activations during computation. `auto` is bf16, or fp32 on a CPU without "
       "bf16 instructions. In a plan for an accelerator, `auto` is the faster of bf16 (fp16 if the device "
       "lacks bf16) and fp8.",
       [](Recipe & r, size_t) -> auto& { return r.train.precision; })
      .Choices({"fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4", "auto"})
      .Refuse("fp16", "this version trains in fp32 and bf16")
      .Refuse("fp8", "this version trains in fp32 and bf16")
      .Refuse("mxfp8", "this version trains in fp32 and bf16")
      .Refuse("nvfp4", "this version trains in fp32 and bf16");
  b.Add(
       "train.master_dtype",
       "Data type of the weights that the optimizer updates. `bf16` saves memory by keeping no fp32 master "
       "weights (docs/guide/train.md); stochastic rounding keeps small updates from being lost. Requires "
       "`train.precision = \"bf16\"`.",
       [](Recipe & r, size_t) -> auto& { return r.train.master_dtype; })
      .Choices({"fp32", "bf16"});
  b.Add(
       "train.gradient_dtype", "Data type in which gradients are accumulated and reduced.",
       [](Recipe & r, size_t) -> auto& { return r.train.gradient_dtype; })
      .Choices({"fp32", "bf16"})
      .Refuse("bf16", "this version accumulates and reduces gradients in fp32");
  b.Add(
       "train.z_loss", "Weight of the z-loss term, the squared log of the softmax denominator.",
       [](Recipe & r, size_t) -> auto& { return r.train.z_loss; })
      .Range(0, 1)
      .BySet();
  b.Add(
       "train.eval_every", "Number of steps between evaluations; 0 evaluates only at the end.",
       [](Recipe & r, size_t) -> auto& { return r.train.eval_every; })
      .OfKind(Kind::kCount)
      .Unit("steps")
      .Range(0, 1e12)
      .BySet();
  b.Add(
       "train.eval_batches", "Maximum number of batches per evaluation set.",
       [](Recipe & r, size_t) -> auto& { return r.train.eval_batches; })
      .OfKind(Kind::kCount)
      .Unit("batches")
      .Range(1, 1e12)
      .BySet();
  b.Add(
       "train.on_nonfinite",
       "What to do when a loss or gradient is not finite: `stop` the run, or `skip` that step's update on "
       "all workers.",
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
       "optimizer.lr", "Peak learning rate, reached at the end of the warm-up.",
       [](Recipe & r, size_t) -> auto& { return r.optimizer.lr; })
      .Range(0, 1000)
      .Default(OfEachOptimizer(nullptr, [](Values d) { return FormatDouble(d.lr); }))
      .BySet();
  b.AddInput("optimizer.betas",
             "The two decay rates: for adamw, those of the first and second moments; for lion, those of the "
             "update direction and of the stored momentum.",
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
       "optimizer.eps", "Constant added to the square root of the second moment.",
       [](Recipe & r, size_t) -> auto& { return r.optimizer.eps; })
      .Above(0)
      .AtMost(1)
      .Where(OptimizerReads("eps"))
      .Default(OfEachOptimizer("eps", [](Values d) { return FormatDouble(d.eps); }))
      .BySet();
  b.Add(
       "optimizer.momentum", "Momentum coefficient, the decay rate of the running gradient sum.",
       [](Recipe & r, size_t) -> auto& { return r.optimizer.momentum; })
      .AtLeast(0)
      .Below(1)
      .Where(OptimizerReads("momentum"))
      .Default(OfEachOptimizer("momentum", [](Values d) { return FormatDouble(d.momentum); }));
  b.Add(
       "optimizer.weight_decay",
       "Weight decay. It is decoupled, so each parameter shrinks by lr times this value per step, except in "
       "sgd, which adds the decay to the gradient.",
       [](Recipe & r, size_t) -> auto& { return r.optimizer.weight_decay; })
      .Range(0, 1000)
      .Default(OfEachOptimizer(nullptr, [](Values d) { return FormatDouble(d.weight_decay); }))
      .BySet();
  b.Add(
       "optimizer.no_decay",
       "Parameters exempt from weight decay: the groups `norms`, `biases` and `embeddings`, or patterns "
       "(`*`, "
       "`?`) of parameter names. A pattern that matches no parameter is an error, unless it is a usual one.",
       [](Recipe & r, size_t) -> auto& { return r.optimizer.no_decay; })
      .BySet();
  b.Add(
       "optimizer.clip_norm", "Maximum global gradient norm; 0 disables clipping.",
       [](Recipe & r, size_t) -> auto& { return r.optimizer.clip_norm; })
      .Range(0, 1e9)
      .BySet();
  b.Add(
       "optimizer.lr_schedule", "How the learning rate decays from lr to min_lr after the warm-up.",
       [](Recipe & r, size_t) -> auto& { return r.optimizer.lr_schedule; })
      .Choices({"cosine", "linear", "wsd", "constant"})
      .BySet();
  b.Add(
       "optimizer.warmup_steps", "Number of steps over which the learning rate rises to lr.",
       [](Recipe & r, size_t) -> auto& { return r.optimizer.warmup_steps; })
      .OfKind(Kind::kCount)
      .Unit("steps")
      .Range(0, 1e12)
      .BySet();
  b.Add(
       "optimizer.decay_steps", "Step at which the learning rate reaches min_lr.",
       [](Recipe & r, size_t) -> auto& { return r.optimizer.decay_steps; })
      .OfKind(Kind::kCount)
      .Unit("steps")
      .Range(1, 1e12)
      .AutoIs(
          "auto (train.steps of the first launch, recorded so that extending the run does not change the "
          "curve)")
      .BySet();
  b.Add(
       "optimizer.decay_fraction",
       "For wsd: fraction of decay_steps, at the end, over which the learning rate decays.",
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
    return b.Add(name, doc, member).Range(1, 1e6).AutoIs("auto (chosen by the planner)").Free();
  };
  degree(
      "parallel.dp_replicate", "Number of data-parallel replicas of the (possibly sharded) model.",
      [](Recipe & r, size_t) -> auto& { return r.parallel.dp_replicate; });
  degree(
      "parallel.dp_shard", "Number of workers across which ZeRO shards each replica.",
      [](Recipe & r, size_t) -> auto& { return r.parallel.dp_shard; });
  const auto only_one = [&](const char* name, const char* doc, const char* what, auto member) {
    degree(name, doc, member).Refuse(">1", what);
  };
  b.Add(
       "parallel.tp",
       "Tensor-parallel degree: number of workers that share each matrix product and the attention heads.",
       [](Recipe & r, size_t) -> auto& { return r.parallel.tp; })
      .Range(1, 1e6)
      .AutoIs("auto (chosen by the planner)")
      .Free();
  only_one(
      "parallel.cp", "Context-parallel degree.", "this version does not train with context parallelism",
      [](Recipe & r, size_t) -> auto& { return r.parallel.cp; });
  b.Add(
       "parallel.pp", "Pipeline-parallel degree: number of pipeline ranks, each with its own workers.",
       [](Recipe & r, size_t) -> auto& { return r.parallel.pp; })
      .Range(1, 1e6)
      .AutoIs("auto (chosen by the planner)")
      .Free();
  only_one(
      "parallel.ep", "Expert-parallel degree.", "this version does not train with expert parallelism",
      [](Recipe & r, size_t) -> auto& { return r.parallel.ep; });
  only_one(
      "parallel.etp", "Tensor-parallel degree within each expert.",
      "this version does not train with expert parallelism",
      [](Recipe & r, size_t) -> auto& { return r.parallel.etp; });
  b.Add(
       "parallel.virtual_stages", "Number of model stages per pipeline rank.",
       [](Recipe & r, size_t) -> auto& { return r.parallel.virtual_stages; })
      .Range(1, 1e6)
      .AutoIs("auto (chosen by the planner; if `schedule` is set, the fewest it allows)")
      .Free();
  const auto planned = [&](const char* name, const char* doc, auto member) {
    return b.Add(name, doc, member).AutoIs("auto (chosen by the planner)").Free();
  };
  planned(
      "parallel.schedule",
      "Pipeline schedule, that is, the order of forward and backward passes. See the diagrams in "
      "docs/design/schedules.md.",
      [](Recipe & r, size_t) -> auto& { return r.parallel.schedule; })
      .Choices(schedule::PipelineKindNames())
      .AutoIs("auto (chosen by the planner; 1f1b unless another schedule saves more than 1 %)")
      .Group("order", "schedule");
  b.Add(
       "parallel.schedule_file",
       "File with a custom pipeline schedule, to use instead of `schedule`. Each line lists one rank's "
       "passes in order (format: docs/reference/formats.md). The schedule is validated before the run and "
       "stored with it.",
       [](Recipe & r, size_t) -> auto& { return r.parallel.schedule_file; })
      .Path()
      .OmitEmpty()
      .Default("none")
      .Group("order", "schedule_file")
      .Free();
  b.Add(
       "parallel.passes", "The lines of a `schedule_file`, written directly in the recipe.",
       [](Recipe & r, size_t) -> auto& { return r.parallel.passes; })
      .OmitEmpty()
      .Default("none")
      .Group("order", "passes")
      .Free();
  planned(
      "parallel.recomputed_layers",
      "With recompute = \"full\", number of layers to recompute in each stage, starting with its first "
      "layer; the rest keep their activations. The model's total number of layers means all. A list gives "
      "one number per stage (pp x virtual_stages), in model order. In estimates of other trainers, it gives "
      "one number per pipeline rank.",
      [](Recipe & r, size_t) -> auto& { return r.parallel.recomputed_layers; })
      .Range(0, 10000)
      .OrOne()
      .AutoIs("auto (all; if recompute is also \"auto\", as few per stage as memory allows)");
  planned(
      "parallel.stage_layers", "Number of layers in each of the pp x virtual_stages stages, in model order.",
      [](Recipe & r, size_t) -> auto& { return r.parallel.stage_layers; })
      .Range(0, 10000)
      .AutoIs("auto (balanced by time, counting the embedding and the head)");
  planned(
      "parallel.context",
      "How context-parallel ranks exchange keys and values: `ring` passes them around a ring, `all-gather` "
      "gathers them first, and `all-to-all` trades heads for tokens.",
      [](Recipe & r, size_t) -> auto& { return r.parallel.context; })
      .Choices({"ring", "all-gather", "all-to-all"})
      .Refuse("*", "this version does not train with context parallelism");
  planned(
      "parallel.sequence_parallel",
      "With tensor parallelism, also split norms and residuals along the sequence dimension.",
      [](Recipe & r, size_t) -> auto& { return r.parallel.sequence_parallel; })
      .AutoIs("auto (true if tp > 1; in estimates of other trainers, whatever the framework does)");
  planned(
      "parallel.offload",
      "What to offload to host memory: `\"optimizer\"`, `\"activations\"`, or both. `[]` offloads nothing.",
      [](Recipe & r, size_t) -> auto& { return r.parallel.offload; })
      .Choices({"optimizer", "activations"})
      .Refuse("*", "this version does not support offloading");
  b.Add(
       "parallel.zero_stage",
       "State to shard across the dp_shard workers: 1 shards the optimizer state, 2 also the gradients, 3 "
       "also the parameters. 0 is plain data parallelism (DDP) and requires dp_shard = 1.",
       [](Recipe & r, size_t) -> auto& { return r.parallel.zero_stage; })
      .Range(0, 3)
      .AutoIs("auto (chosen by the planner)")
      .Free();
  b.Add(
       "parallel.recompute",
       "Activations that the backward pass recomputes instead of storing. \"none\" stores everything. "
       "\"selective\" recomputes whatever needs no matrix product: norms, activation functions, and rows "
       "gathered for tensor parallelism. \"attention\" also recomputes attention. \"full\" recomputes "
       "everything except layer inputs. In estimates of other trainers, \"selective\" means that framework's "
       "own selection.",
       [](Recipe & r, size_t) -> auto& { return r.parallel.recompute; })
      .Choices({"none", "selective", "attention", "full"})
      .AutoIs("auto (chosen by the planner)")
      .Free();
  b.Add(
       "parallel.prefetch",
       "While one block computes, gather the next block's parameters and reduce the previous block's "
       "gradients.",
       [](Recipe & r, size_t) -> auto& { return r.parallel.prefetch; })
      .Free();
}

// A machine that the catalogue does not have, by what differs from one that it has.
void AddMachine(Builder& b) {
  const auto own = [&](const char* name, const char* doc, Kind kind, auto member) {
    return b.Add(name, doc, member)
        .OfKind(kind)
        .Range(1, kMaxCount)
        .AutoIs("auto (the catalogue's value)")
        .Free();
  };
  b.Add(
       "cluster.node", "Machine type, from the catalogue, that contains the accelerators.",
       [](Recipe & r, size_t) -> auto& { return r.cluster.node; })
      .AutoIs("auto (the most common machine for the device)")
      .Free();
  own(
      "cluster.memory", "Memory per device that the driver makes available.", Kind::kBytes,
      [](Recipe & r, size_t) -> auto& { return r.cluster.memory_bytes; });
  own(
      "cluster.memory_bandwidth", "Memory bandwidth per device, from its data sheet.", Kind::kBandwidth,
      [](Recipe & r, size_t) -> auto& { return r.cluster.memory_bandwidth; });
  own(
      "cluster.half_flops", "Dense bf16 matrix-multiply rate of one device.", Kind::kCount,
      [](Recipe & r, size_t) -> auto& { return r.cluster.half_flops; })
      .Unit("FLOP/s");
  own(
      "cluster.fp8_flops", "Dense fp8 matrix-multiply rate of one device.", Kind::kCount,
      [](Recipe & r, size_t) -> auto& { return r.cluster.fp8_flops; })
      .Unit("FLOP/s");
  own(
      "cluster.scale_up_bandwidth", "One-way bandwidth from a device to its neighbors in the node.",
      Kind::kBandwidth, [](Recipe & r, size_t) -> auto& { return r.cluster.scale_up_bandwidth; });
  own(
      "cluster.scale_out_bandwidth", "One-way bandwidth of one network adapter.", Kind::kBandwidth,
      [](Recipe & r, size_t) -> auto& { return r.cluster.scale_out_bandwidth; });
  own(
      "cluster.nics", "Number of network adapters per node available to collectives.", Kind::kInt,
      [](Recipe & r, size_t) -> auto& { return r.cluster.nics; })
      .AtMost(1024);
  own(
      "cluster.host_memory", "Main memory per node, used for offloading.", Kind::kBytes,
      [](Recipe & r, size_t) -> auto& { return r.cluster.host_memory_bytes; });
}

void AddCluster(Builder& b) {
  b.Add(
       "cluster.nodes", "Number of machines.", [](Recipe & r, size_t) -> auto& { return r.cluster.nodes; })
      .Range(1, 1e6)
      .Free();
  b.Add(
       "cluster.devices_per_node", "Number of workers per machine.",
       [](Recipe & r, size_t) -> auto& { return r.cluster.devices_per_node; })
      .Range(1, 1024)
      .Default("`1`; for an accelerator from the catalogue, the number of devices in its node")
      .Free();
  b.Add(
       "cluster.device",
       "Device that workers use: `\"cpu\"`; `\"cuda\"` for this machine's NVIDIA GPUs (docs/guide/gpus.md); "
       "an accelerator from docs/reference/catalogue.md in any spelling (`\"h100-sxm-80gb\"`, `\"A100 "
       "40GB\"`), which `trainctl plan` can plan for on any machine; or `\"auto\"` for this machine's "
       "accelerators, with their number and memory, or `\"cpu\"` if there are none.",
       [](Recipe & r, size_t) -> auto& { return r.cluster.device; })
      .Free();
  b.Add(
       "cluster.memory_limit", "Maximum memory per worker.",
       [](Recipe & r, size_t) -> auto& { return r.cluster.memory_limit_bytes; })
      .OfKind(Kind::kBytes)
      .Range(1, kMaxCount)
      .AutoIs(
          "auto (85 % of the machine's free memory divided among its workers, less 512 MiB each; for an "
          "accelerator, 90 % of its memory)")
      .Free();
  b.Add(
       "cluster.threads_per_worker", "Number of threads per worker.",
       [](Recipe & r, size_t) -> auto& { return r.cluster.threads_per_worker; })
      .Range(1, 4096)
      .AutoIs("auto (available cores / workers, at least 1)")
      .Free();
  AddMachine(b);
}

void AddPlan(Builder& b) {
  b.Add(
       "plan.framework",
       "Trainer that `trainctl plan` plans for: `\"trainctl\"`, whose plan `launch` can run, or another "
       "trainer from docs/reference/other-trainers.md (`\"megatron-core\"`, `\"torchtitan\"`), whose run can "
       "only be estimated.",
       [](Recipe & r, size_t) -> auto& { return r.plan.framework; })
      .Refuse("*", "runs of other trainers can only be estimated, with `trainctl plan`; remove it to launch")
      .Free();
  b.Add(
       "plan.objective",
       "Goal of the planner: step time, cost per token (in GPU-hours if no price is set), free memory, or "
       "the number of GPUs needed to meet the deadline.",
       [](Recipe & r, size_t) -> auto& { return r.plan.objective; })
      .Choices({"step_time", "cost", "headroom", "fewest_gpus"})
      .Free();
  b.Add(
       "plan.price_per_gpu_hour", "Price of one device per hour.",
       [](Recipe & r, size_t) -> auto& { return r.plan.price_per_gpu_hour; })
      .Unit("dollars")
      .Range(0, 1e6)
      .Default("`0.0` (costs are in GPU-hours)")
      .Free();
  b.Add(
       "plan.deadline", "Time within which the whole run must finish. Requires train.steps or train.tokens.",
       [](Recipe & r, size_t) -> auto& { return r.plan.deadline; })
      .Range(1, 1e10)
      .AutoIs("auto (none)")
      .Free();
  b.Add(
       "plan.gpu_mtbf",
       "Mean time between failures of one device, counting every failure that stops the job. If set, plans "
       "account for the time lost to failures.",
       [](Recipe & r, size_t) -> auto& { return r.plan.gpu_mtbf; })
      .Range(1, 1e12)
      .AutoIs("auto (failures are ignored)")
      .Free();
  b.Add(
       "plan.restart_time", "Time from a failure until training resumes.",
       [](Recipe & r, size_t) -> auto& { return r.plan.restart_time; })
      .Range(0, 1e7)
      .Free();
}

void AddSsh(Builder& b) {
  const auto is_ssh = [](const Recipe& r) { return r.launch.backend == "ssh"; };
  b.Add(
       "launch.ssh.hosts",
       "Machines in rank order, as `\"name\"` or `\"user@name\"`. The first `cluster.nodes` of them are "
       "used.",
       [](Recipe & r, size_t) -> auto& { return r.launch.ssh.hosts; })
      .OmitEmpty()
      .Default("one of hosts and hosts_file is required")
      .Group("hosts", "hosts")
      .Where(is_ssh)
      .Free();
  b.Add(
       "launch.ssh.hosts_file",
       "File that lists one machine per line; `#` starts a comment. The file is read again at every launch "
       "and resume.",
       [](Recipe & r, size_t) -> auto& { return r.launch.ssh.hosts_file; })
      .Path()
      .OmitEmpty()
      .Default("one of hosts and hosts_file is required")
      .Group("hosts", "hosts_file")
      .Where(is_ssh)
      .Free();
  b.Add(
       "launch.ssh.options",
       "Extra ssh options, placed before the machine's name: `[\"-p\", \"2222\"]`, `[\"-F\", "
       "\"/home/me/ssh_config\"]`.",
       [](Recipe & r, size_t) -> auto& { return r.launch.ssh.options; })
      .OmitEmpty()
      .Where(is_ssh)
      .Free();
  b.Add(
       "launch.ssh.program", "Path of trainctl on the other machines.",
       [](Recipe & r, size_t) -> auto& { return r.launch.ssh.program; })
      .Path()
      .AutoIs("auto (the path of this program)")
      .Where(is_ssh)
      .Free();
  b.Add(
       "launch.slurm.submit_options",
       "Extra `sbatch` options for jobs that `launch` and `resume` submit from outside an allocation: "
       "`[\"--partition=gpu\", \"--time=24:00:00\"]`.",
       [](Recipe & r, size_t) -> auto& { return r.launch.slurm.submit_options; })
      .OmitEmpty()
      .Where([](const Recipe& r) { return r.launch.backend == "slurm"; })
      .Free();
  b.Add(
       "launch.slurm.save_before",
       "How long before its time limit a submitted job saves a checkpoint and requeues itself. Must be "
       "longer than one step plus one save.",
       [](Recipe & r, size_t) -> auto& { return r.launch.slurm.save_before; })
      .Range(1, 65535)
      .Where([](const Recipe& r) { return r.launch.backend == "slurm"; })
      .Default("`\"5m\"`")
      .Free();
  b.Add(
       "launch.slurm.step_options",
       "Extra options for the `srun` that starts one agent per node: `[\"--network=...\"]`.",
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
      "Name of the Job and of its Service, NetworkPolicy and Secret. Pods are named NAME-0, NAME-1, ...",
      [](Recipe & r, size_t) -> auto& { return r.launch.kubernetes.name; })
      .Default("required to launch");
  own(
      "launch.kubernetes.namespace", "Namespace of the Job.",
      [](Recipe & r, size_t) -> auto& { return r.launch.kubernetes.name_space; })
      .Default("the namespace of kubectl's current context");
  own(
      "launch.kubernetes.image", "Container image with trainctl on its PATH.",
      [](Recipe & r, size_t) -> auto& { return r.launch.kubernetes.image; })
      .Default("required to launch");
  own(
      "launch.kubernetes.claim",
      "PersistentVolumeClaim for the file system that all pods share (access mode ReadWriteMany).",
      [](Recipe & r, size_t) -> auto& { return r.launch.kubernetes.claim; })
      .Default("required to launch");
  own(
      "launch.kubernetes.mount",
      "Path at which pods mount the shared file system. The recipe, run folder, data, tokenizer and model "
      "must be below it.",
      [](Recipe & r, size_t) -> auto& { return r.launch.kubernetes.mount; })
      .Default("`\"/shared\"`");
  b.Add(
       "launch.kubernetes.user",
       "User and group ID of the pods' processes, which must be able to write below the mount; 0 is root.",
       [](Recipe & r, size_t) -> auto& { return r.launch.kubernetes.user; })
      .Default("`1000`")
      .Range(0, std::numeric_limits<int32_t>::max())
      .Where([](const Recipe& r) { return r.launch.backend == "kubernetes"; })
      .Free();
}

void AddRest(Builder& b) {
  b.Add(
       "checkpoint.every_steps",
       "Number of steps between checkpoints. The run also saves one when it is stopped and when it ends.",
       [](Recipe & r, size_t) -> auto& { return r.checkpoint.every_steps; })
      .OfKind(Kind::kCount)
      .Unit("steps")
      .Range(1, 1e12)
      .AutoIs("auto (a tenth of the run, between 10 and 1000; off if `every` is set)")
      .Free();
  b.Add(
       "checkpoint.every", "Time between checkpoints.",
       [](Recipe & r, size_t) -> auto& { return r.checkpoint.every; })
      .Range(1, 1e9)
      .AutoIs("auto (off)")
      .Free();
  b.Add(
       "checkpoint.keep", "Number of most recent checkpoints to keep.",
       [](Recipe & r, size_t) -> auto& { return r.checkpoint.keep; })
      .Range(1, 1e6)
      .Free();
  b.Add(
       "checkpoint.keep_every_steps",
       "Never delete a checkpoint whose step is a multiple of this number; 0 disables this.",
       [](Recipe & r, size_t) -> auto& { return r.checkpoint.keep_every_steps; })
      .OfKind(Kind::kCount)
      .Unit("steps")
      .Range(0, 1e12)
      .Free();
  b.Add(
       "checkpoint.keep_best",
       "Evaluation set whose best checkpoint (lowest loss) is always kept. Only checkpoints at evaluated "
       "steps qualify, so make `every_steps` a multiple of `train.eval_every`.",
       [](Recipe & r, size_t) -> auto& { return r.checkpoint.keep_best; })
      .OmitEmpty()
      .Default("none")
      .Free();
  b.Add(
       "checkpoint.at_end",
       "Save a checkpoint after the last step. If false, only `every_steps` and `every` trigger saves; "
       "stopping a run always saves.",
       [](Recipe & r, size_t) -> auto& { return r.checkpoint.at_end; })
      .Free();
  b.Add(
       "checkpoint.async",
       "Copy the state in memory and write the copy while training continues. Each worker needs memory for a "
       "second copy of its optimizer state.",
       [](Recipe & r, size_t) -> auto& { return r.checkpoint.async; })
      .Free();
  b.Add(
       "checkpoint.when_busy",
       "What to do when a save is due while the previous checkpoint is still being written: `wait` for it, "
       "or `skip` the new one. A stop and the end of the run always wait.",
       [](Recipe & r, size_t) -> auto& { return r.checkpoint.when_busy; })
      .Choices({"wait", "skip"})
      .Free();
  b.Add(
       "launch.backend",
       "Where to start workers: `local`, on this machine; `ssh`, on the machines in `[launch.ssh]`; `slurm`, "
       "on the nodes of the current allocation, or in a job that `trainctl launch` submits "
       "(docs/guide/slurm.md); `kubernetes`, in the pods of a Job whose manifest `launch --dry-run` prints "
       "(docs/guide/kubernetes.md).",
       [](Recipe & r, size_t) -> auto& { return r.launch.backend; })
      .Choices({"local", "ssh", "slurm", "kubernetes"})
      .Free();
  b.Add(
       "launch.max_restarts",
       "Maximum number of consecutive restarts without a new checkpoint in between; 0 disables restarts.",
       [](Recipe & r, size_t) -> auto& { return r.launch.max_restarts; })
      .Range(0, 1e6)
      .Free();
  b.Add(
       "launch.detect_timeout",
       "How long a worker may go without a heartbeat before it is considered lost. If its process exits, the "
       "launcher notices immediately.",
       [](Recipe & r, size_t) -> auto& { return r.launch.detect_timeout; })
      .Range(0.1, 3600)
      .Free();
  b.Add(
       "launch.stop_timeout", "How long a worker may take to stop before it is killed.",
       [](Recipe & r, size_t) -> auto& { return r.launch.stop_timeout; })
      .Range(0, 86400)
      .Free();
  b.Add(
       "launch.collective_timeout",
       "How long a rank may wait for others in a collective before the job is considered hung. Must be "
       "longer than the slowest rank takes to write its part of a checkpoint.",
       [](Recipe & r, size_t) -> auto& { return r.launch.collective_timeout; })
      .Range(1, 86400)
      .Free();
  b.Add(
       "launch.hang_timeout",
       "How long a worker may go without progress, for example in a library call, a file operation or a "
       "device kernel. A worker that is neither computing nor waiting for a disk is considered hung sooner: "
       "after 20 times the longest pause seen so far in the same phase, but at least 60 s, or after 5 "
       "minutes in a phase that has not been observed often enough.",
       [](Recipe & r, size_t) -> auto& { return r.launch.hang_timeout; })
      .Range(1, 86400)
      .Free();
  b.Add(
       "launch.log_limit",
       "Size at which a worker's log is rotated to `rank-NNNNN.log.1`, replacing the previous one. A "
       "worker's logs therefore take at most twice this size.",
       [](Recipe & r, size_t) -> auto& { return r.launch.log_limit_bytes; })
      .OfKind(Kind::kBytes)
      .Range(1, kMaxCount)
      .Free();
  b.Add(
       "launch.coordinator_timeout",
       "How long other machines keep their workers running without hearing from the launcher. Must be at "
       "least twice launch.detect_timeout.",
       [](Recipe & r, size_t) -> auto& { return r.launch.coordinator_timeout; })
      .Range(1, 86400)
      .Free();
  b.Add(
       "launch.interface",
       "Network that connects the run's machines (gRPC, Gloo, NCCL): an interface name, an address, or a "
       "range such as `10.0.0.0/8` that contains one address of each machine.",
       [](Recipe & r, size_t) -> auto& { return r.launch.interface; })
      .AutoIs("auto (the interface on the route to the launcher)")
      .Free();
  b.Add(
       "launch.pass_env",
       "Names of environment variables to pass from the caller to workers on other machines, in addition to "
       "`[launch.env]`. No others are passed. Their values are not stored.",
       [](Recipe & r, size_t) -> auto& { return r.launch.pass_env; })
      .Default("none")
      .Free();
  b.Add(
       "launch.env",
       "Environment variables for the workers. Do not put secrets here, because recipes are stored.",
       [](Recipe & r, size_t) -> auto& { return r.launch.env; })
      .Default("none")
      .Free();
  b.Add(
       "launch.on_event",
       "Program and arguments that the launcher runs for each event of the run, passing the event on stdin "
       "as a line of JSON (docs/guide/monitoring.md). A program path that contains `/` is relative to the "
       "recipe. Do not put secrets here, because recipes are stored.",
       [](Recipe & r, size_t) -> auto& { return r.launch.on_event; })
      .Command()
      .OmitEmpty()
      .Default("none")
      .Free();
  AddSsh(b);
  AddKubernetes(b);
  b.Add(
       "metrics.every_steps", "Number of steps between lines of metrics.",
       [](Recipe & r, size_t) -> auto& { return r.metrics.every_steps; })
      .OfKind(Kind::kCount)
      .Unit("steps")
      .Range(1, 1e12)
      .Free();
  b.Add(
       "metrics.tensorboard",
       "Write TensorBoard events to the run folder during the run. (`trainctl export tensorboard` can also "
       "write them afterwards.)",
       [](Recipe & r, size_t) -> auto& { return r.metrics.tensorboard; })
      .Free();
  b.Add(
       "metrics.trace_steps",
       "Steps, counted from 1, in which each worker records the timing of its instructions. `trainctl trace` "
       "merges the records.",
       [](Recipe & r, size_t) -> auto& { return r.metrics.trace_steps; })
      .Default("none")
      .AtLeast(1)
      .Free();
  b.Add(
       "metrics.profile_steps",
       "Steps, counted from 1, in which each worker records the name of every kernel and copy on its device. "
       "The profiles are written to `profiles/` in the run folder and open in Perfetto.",
       [](Recipe & r, size_t) -> auto& { return r.metrics.profile_steps; })
      .Default("none")
      .AtLeast(1)
      .Free();
  b.Add(
       "metrics.prometheus",
       "Where to publish metrics for Prometheus (docs/guide/monitoring.md): `HOST:PORT`, at which the "
       "launcher serves `/metrics` (port 0 picks a free port), or the path of a `*.prom` file that it keeps "
       "up to date.",
       [](Recipe & r, size_t) -> auto& { return r.metrics.prometheus; })
      .PathEndingWith(kPrometheusFileSuffix)
      .OmitEmpty()
      .Default("off")
      .Free();
}

}  // namespace

std::vector<Field> AllFields() {
  std::vector<Field> fields;
  Builder builder(fields);
  AddRun(builder);
  AddModelFields(builder);
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
