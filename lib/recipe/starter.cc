#include "recipe/starter.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/names.h"
#include "base/status.h"
#include "recipe/describe.h"
#include "recipe/schema.h"
#include "recipe/values.h"

namespace trainctl::recipe {
namespace {

constexpr size_t kLineColumns = 100;
constexpr bool kChoice = true;

std::vector<Starter> AllStarters() {
  return {
      {"text",
       "a small Llama model trained on text files, on this machine's CPU",
       "Put text files (*.txt) into data/ next to the recipe, then run: trainctl plan {recipe}",
       {{"run.name", "\"text\""},
        {"run.seed", "", kChoice},
        {"model.preset", "\"toy-5m\""},
        {"model.vocab", "256"},
        {"data.tokenizer", "\"byte\""},
        {"data.seq_len", "256"},
        {"data.packing", "", kChoice},
        {"data.train[0].name", "\"mine\""},
        {"data.train[0].files", "[\"data/**/*.txt\"]"},
        {"data.eval[0].name", "\"held-out\""},
        {"data.eval[0].holdout", "0.02"},
        {"train.tokens", "\"10M\""},
        {"train.batch_sequences", "32"},
        {"train.precision", "\"auto\""},
        {"train.eval_every", "", kChoice},
        {"optimizer.lr", "2e-3"},
        {"optimizer.min_lr", "2e-4"},
        {"optimizer.warmup_steps", "50"},
        {"optimizer.lr_schedule", "", kChoice},
        {"cluster.device", "\"cpu\""},
        {"cluster.devices_per_node", "2"},
        {"parallel.zero_stage", "\"auto\"", kChoice},
        {"checkpoint.every_steps", "200"},
        {"checkpoint.keep", "", kChoice}}},
      {"jsonl",
       "a small Llama model trained on two JSONL sources, mixed by weight",
       "Create data/web.jsonl, data/books.jsonl and data/eval.jsonl (one JSON object with a \"text\" field "
       "per line), then run: trainctl plan {recipe}",
       {{"run.name", "\"jsonl\""},
        {"model.preset", "\"llama-25m\""},
        {"model.vocab", "256"},
        {"data.tokenizer", "\"byte\""},
        {"data.seq_len", "512"},
        {"data.train[0].name", "\"web\""},
        {"data.train[0].files", "[\"data/web.jsonl\"]"},
        {"data.train[0].text_field", "", kChoice},
        {"data.train[0].weight", "0.8"},
        {"data.train[1].name", "\"books\""},
        {"data.train[1].files", "[\"data/books.jsonl\"]"},
        {"data.train[1].weight", "0.2"},
        {"data.eval[0].name", "\"eval\""},
        {"data.eval[0].files", "[\"data/eval.jsonl\"]"},
        {"train.steps", "2000"},
        {"train.batch_sequences", "64"},
        {"train.micro_batch", "\"auto\"", kChoice},
        {"train.precision", "\"auto\""},
        {"train.eval_every", "200"},
        {"optimizer.lr", "1e-3"},
        {"optimizer.min_lr", "1e-4"},
        {"optimizer.warmup_steps", "100"},
        {"optimizer.weight_decay", "", kChoice},
        {"cluster.device", "\"cpu\""},
        {"cluster.devices_per_node", "2"},
        {"cluster.memory_limit", "\"auto\"", kChoice},
        {"checkpoint.every", "\"15m\""},
        {"launch.max_restarts", "", kChoice}}},
      {"finetune",
       "fine-tuning a Hugging Face model on prompts and answers",
       "Put the model (config.json, tokenizer.json, *.safetensors) into model/ and create data/train.jsonl "
       "(objects with \"prompt\" and \"text\") next to the recipe, then run: trainctl plan {recipe}",
       {{"run.name", "\"finetune\""},
        {"model.from", "\"model\""},
        {"model.weights", "\"from\""},
        {"data.tokenizer", "\"model\""},
        {"data.long_documents", "", kChoice},
        {"data.train[0].name", "\"answers\""},
        {"data.train[0].files", "[\"data/train.jsonl\"]"},
        {"data.train[0].prompt_field", "\"prompt\""},
        {"data.eval[0].name", "\"held-out\""},
        {"data.eval[0].holdout", "0.05"},
        {"train.steps", "500"},
        {"train.batch_sequences", "16"},
        {"train.precision", "\"auto\""},
        {"train.eval_every", "100"},
        {"optimizer.lr", "2e-5"},
        {"optimizer.warmup_steps", "20"},
        {"optimizer.lr_schedule", "\"linear\""},
        {"optimizer.clip_norm", "", kChoice},
        {"cluster.device", "\"cpu\""},
        {"parallel.recompute", "\"auto\"", kChoice},
        {"checkpoint.every_steps", "100"}}},
      {"h100-8b",
       "a plan for Llama 3.1 8B on one machine with 8 H100 GPUs",
       "Planning needs neither data nor a GPU: trainctl plan {recipe}",
       {{"run.name", "\"llama3.1-8b\""},
        {"model.preset", "\"llama3.1-8b\""},
        {"data.seq_len", "8192"},
        {"train.tokens", "\"100B\""},
        {"train.batch_sequences", "128"},
        {"train.precision", "\"auto\"", kChoice},
        {"cluster.device", "\"h100-sxm-80gb\""},
        {"cluster.nodes", "1"},
        {"parallel.zero_stage", "\"auto\"", kChoice},
        {"parallel.recompute", "\"auto\"", kChoice}}},
      {"h100-70b",
       "a plan for Llama 3.1 70B on 8 machines with 8 H100 GPUs each",
       "Planning needs neither data nor a GPU: trainctl plan {recipe} --explain",
       {{"run.name", "\"llama3.1-70b\""},
        {"model.preset", "\"llama3.1-70b\""},
        {"data.seq_len", "8192"},
        {"train.tokens", "\"1T\""},
        {"train.batch_sequences", "256"},
        {"cluster.device", "\"h100-sxm-80gb\""},
        {"cluster.nodes", "8"},
        {"cluster.scale_out_bandwidth", "\"400Gb/s\"", kChoice},
        {"parallel.dp_replicate", "\"auto\"", kChoice},
        {"parallel.recompute", "\"auto\"", kChoice}}},
      {"h100-moe",
       "an estimate for Qwen3 30B-A3B, a mixture of experts, in Megatron-LM on 4 machines with 8 H100 GPUs "
       "each",
       "This can only be planned, not launched: trainctl plan {recipe}",
       {{"run.name", "\"qwen3-30b-a3b\""},
        {"model.preset", "\"qwen3-30b-a3b\""},
        {"data.seq_len", "4096"},
        {"train.tokens", "\"200B\""},
        {"train.batch_sequences", "512"},
        {"cluster.device", "\"h100-sxm-80gb\""},
        {"cluster.nodes", "4"},
        {"parallel.ep", "\"auto\"", kChoice},
        {"plan.framework", "\"megatron-core\""},
        {"plan.objective", "", kChoice},
        {"plan.price_per_gpu_hour", "2.5", kChoice},
        {"plan.deadline", "\"2160h\"", kChoice},
        {"plan.gpu_mtbf", "\"50000h\"", kChoice}}},
  };
}

// "data.train[0].files" as {"[[data.train]]", "data.train[].files", "files"}.
struct Place {
  std::string header, name, leaf, entry;
};

Place PlaceOf(absl::string_view key) {
  Place place;
  const size_t dot = key.rfind('.');
  const absl::string_view table = key.substr(0, dot);
  place.leaf = std::string(key.substr(dot + 1));
  place.entry = std::string(table);
  const size_t open = table.find('[');
  if (open == absl::string_view::npos) {
    place.header = absl::StrCat("[", table, "]");
    place.name = std::string(key);
  } else {
    place.header = absl::StrCat("[[", table.substr(0, open), "]]");
    place.name = absl::StrCat(table.substr(0, open), "[].", place.leaf);
  }
  return place;
}

void AddComment(std::string& text, absl::string_view comment) {
  if (comment.empty()) return;
  std::string line = "#";
  for (absl::string_view word : absl::StrSplit(comment, ' ', absl::SkipEmpty())) {
    if (line.size() > 1 && line.size() + 1 + word.size() > kLineColumns) {
      absl::StrAppend(&text, line, "\n");
      line.resize(1);
    }
    absl::StrAppend(&line, " ", word);
  }
  absl::StrAppend(&text, line, "\n");
}

std::string DefaultToml(const Field& field) {
  Recipe recipe;
  if (field.in_list()) Schema::ResizeList(recipe, field.list_name(), 1);
  const std::optional<Value> value = field.get(recipe, 0);
  TRAINCTL_CHECK_MSG(value.has_value(), field.name, " has no default that is a value");
  return ToTomlText(field, *value);
}

}  // namespace

absl::Span<const Starter> Starters() {
  static const std::vector<Starter>* const starters = new std::vector<Starter>(AllStarters());
  return *starters;
}

absl::StatusOr<const Starter*> FindStarter(absl::string_view name) {
  std::vector<std::string> names;
  const Starter* nearest = nullptr;
  int nearest_distance = 3;
  for (const Starter& starter : Starters()) {
    if (starter.name == name) return &starter;
    names.push_back(starter.name);
    if (name.size() > 100) continue;
    const int distance = EditDistance(starter.name, name);
    if (distance < nearest_distance) {
      nearest_distance = distance;
      nearest = &starter;
    }
  }
  return UsageError(absl::StrCat("there is no preset ", QuoteToml(name.substr(0, 100)), "; ",
                                 nearest == nullptr ? "" : absl::StrCat("did you mean ", nearest->name, "? "),
                                 "the presets are ", absl::StrJoin(names, ", ")));
}

std::string StarterText(const Starter& starter, absl::string_view file_name) {
  std::string text;
  AddComment(text, absl::StrCat(file_name, ": ", starter.summary, "."));
  AddComment(text, StarterBefore(starter, file_name));
  absl::StrAppend(&text,
                  "#\n# Lines that begin with # and a letter show defaults. To list all fields: trainctl "
                  "recipe explain TABLE\nrecipe_version = 1\n");
  std::string entry;
  for (const StarterLine& line : starter.lines) {
    const Place place = PlaceOf(line.key);
    const Field* const field = GetSchema().Find(place.name);
    TRAINCTL_CHECK_MSG(field != nullptr, "no field ", place.name);
    if (place.entry != entry) {
      entry = place.entry;
      absl::StrAppend(&text, "\n", place.header, "\n");
    }
    AddComment(text,
               field->unit.empty() ? field->doc : absl::StrCat(field->doc, " Unit: ", field->unit, "."));
    AddComment(text, line.note);
    absl::StrAppend(&text, line.is_comment ? "#" : "", place.leaf, " = ",
                    line.value.empty() ? DefaultToml(*field) : line.value, "\n");
  }
  return text;
}

std::string StarterBefore(const Starter& starter, absl::string_view file_name) {
  return absl::StrReplaceAll(starter.before, {{"{recipe}", file_name}});
}

}  // namespace trainctl::recipe
