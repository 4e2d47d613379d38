#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/machine_access.h"
#include "apps/trainctl/option_checks.h"
#include "apps/trainctl/output_options.h"
#include "apps/trainctl/progress_view.h"
#include "apps/trainctl/stop_request.h"
#include "base/json.h"
#include "base/units.h"
#include "data/batch_source.h"
#include "data/document_store.h"
#include "data/prepare.h"
#include "recipe/load.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace trainctl::cli {
namespace {

absl::StatusOr<ExitCode> RunPrepare(data::PrepareOptions options, const Output& output) {
  ProgressView view(output.stderr_terminal);
  options.program = TRAINCTL_VERSION;
  options.stop = &StopOnSignals();
  options.progress = [&view](int64_t done_bytes, int64_t total_bytes) { view.Show(done_bytes, total_bytes); };
  options.note = [&view](absl::string_view line) { view.Note(line); };
  const absl::StatusOr<data::PreparedDataset> dataset = data::Prepare(options);
  if (absl::IsCancelled(dataset.status())) {
    view.Note(dataset.status().message());
    return data::CanGoOn(options.prefix) ? ExitCode::kStoppedResumable : ExitCode::kStoppedUnsaved;
  }
  view.Clear();
  TRAINCTL_RETURN_IF_ERROR(dataset.status());
  if (output.json) {
    PrintText(absl::StrCat(data::DatasetJson(*dataset), "\n"));
  } else {
    PrintText(absl::StrCat(
        "Wrote ", dataset->prefix, ".bin, .idx and .json: ", FormatNumberOf(dataset->documents, "document"),
        ", ", dataset->tokens, " tokens (", std::string(data::TokenTypeName(dataset->token_type)),
        ", for model.vocab >= ", dataset->vocab, ") from ",
        options.reads_standard_input() ? "standard input"
                                       : FormatNumberOf(std::ssize(dataset->sources), "file"),
        "\n"));
  }
  if (dataset->left_out.count > 0) view.Note(data::FormatLeftOut(dataset->left_out));
  return ExitCode::kOk;
}

struct BatchOptions {
  std::string recipe;
  std::vector<std::string> sets;
  int64_t step = 1;  // the first, as in logs
  std::string eval_set;
};

template <typename T>
std::string Row(const std::vector<T>& values) {
  return absl::StrJoin(values, " ", [](std::string* out, T value) { absl::StrAppend(out, int64_t{value}); });
}

template <typename T>
std::string JsonRow(const std::vector<T>& values) {
  return absl::StrCat(
      "[",
      absl::StrJoin(values, ",", [](std::string* out, T value) { absl::StrAppend(out, int64_t{value}); }),
      "]");
}

// Returns the tokens of one sequence without the padding at its end. Padding is a separate document.
absl::Span<const int32_t> TokensOf(const data::Batch& batch) {
  const absl::Span<const int32_t> tokens = batch.tokens;
  size_t begin = tokens.size();
  while (begin > 0 && batch.document[begin - 1] == batch.document.back()) --begin;
  for (size_t i = begin; i < tokens.size(); ++i) {
    if (tokens[i] != 0 || batch.targets[i] != 0 || batch.loss_mask[i] != 0) return tokens;
  }
  return tokens.first(begin);
}

// Decodes tokens with the recipe's tokenizer.
class Decoder {
 public:
  explicit Decoder(const recipe::DataConfig& data) : is_bytes_(data.tokenizer == "byte") {
    if (is_bytes_) return;
    absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>> loaded = tokenizer::Tokenizer::Load(data.tokenizer);
    if (loaded.ok()) tokenizer_ = *std::move(loaded);
  }

  // Returns the text, with special tokens. Returns nullopt if the tokenizer cannot be loaded or does not have
  // all of the tokens, for example because the data was prepared with another tokenizer.
  std::optional<std::string> Decode(absl::Span<const int32_t> tokens) const {
    if (is_bytes_) return DecodeBytes(tokens);
    if (tokenizer_ == nullptr) return std::nullopt;
    absl::StatusOr<std::string> text = tokenizer_->Decode(tokens, /*skip_special=*/false);
    return text.ok() ? std::optional<std::string>(*std::move(text)) : std::nullopt;
  }

 private:
  static std::optional<std::string> DecodeBytes(absl::Span<const int32_t> tokens) {
    std::string bytes;
    for (const int32_t token : tokens) {
      if (token < 0 || token > data::kEndOfDocument) return std::nullopt;
      if (token < data::kEndOfDocument) bytes.push_back(static_cast<char>(token));
    }
    return tokenizer::RepairUtf8(bytes);
  }

  bool is_bytes_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
};

void AppendSequence(const data::Batch& batch, int64_t number, const Decoder& decoder, bool json,
                    std::string& out) {
  const std::optional<std::string> text = decoder.Decode(TokensOf(batch));
  const std::string quoted = PrintableJson(text.has_value() ? Json(*text) : Json(nullptr));
  if (json) {
    absl::StrAppend(&out, number > 0 ? ",\n" : "\n", "{\"sequence\":", number,
                    ",\"tokens\":", JsonRow(batch.tokens), ",\"targets\":", JsonRow(batch.targets),
                    ",\"loss_mask\":", JsonRow(batch.loss_mask), ",\"document\":", JsonRow(batch.document),
                    ",\"positions\":", JsonRow(batch.positions), ",\"text\":", quoted, "}");
    return;
  }
  int64_t num_targets = 0;
  for (const uint8_t counts : batch.loss_mask) num_targets += counts;
  absl::StrAppend(
      &out, "sequence ", number, ": ", num_targets, " of ", batch.seq_len, " targets count toward the loss, ",
      FormatNumberOf(batch.document.empty() ? 0 : batch.document.back() + 1, "document"), "\n  tokens    ",
      Row(batch.tokens), "\n  targets   ", Row(batch.targets), "\n  loss_mask ", Row(batch.loss_mask),
      "\n  document  ", Row(batch.document), "\n  positions ", Row(batch.positions), "\n");
  if (text.has_value()) absl::StrAppend(&out, "  text      ", quoted, "\n");
}

absl::StatusOr<std::unique_ptr<data::BatchSource>> OpenEvalSet(const recipe::Recipe& recipe,
                                                               const BatchOptions& options) {
  TRAINCTL_ASSIGN_OR_RETURN(std::vector<data::EvalSet> sets, data::OpenEvalSets(recipe));
  std::vector<std::string> names;
  for (data::EvalSet& set : sets) {
    names.push_back(set.name);
    if (set.name != options.eval_set) continue;
    if (options.step > set.num_batches) {
      return UsageError(absl::StrCat("evaluation set ", set.name, " has ", set.num_batches,
                                     " batches; --step must be from 1 to ", set.num_batches));
    }
    return std::move(set.source);
  }
  return UsageError(absl::StrCat("there is no evaluation set '", options.eval_set,
                                 "'; the recipe has: ", names.empty() ? "none" : absl::StrJoin(names, ", ")));
}

absl::StatusOr<ExitCode> RunBatch(const BatchOptions& options, const Output& output) {
  TRAINCTL_ASSIGN_OR_RETURN(const recipe::LoadedRecipe loaded,
                            recipe::LoadRecipe(options.recipe, options.sets, MachineAccess()));
  const recipe::Recipe& recipe = loaded.recipe;
  TRAINCTL_ASSIGN_OR_RETURN(
      const std::unique_ptr<data::BatchSource> source,
      options.eval_set.empty() ? data::OpenTrainSource(recipe) : OpenEvalSet(recipe, options));
  const Decoder decoder(recipe.data);
  std::string out;  // printed as a whole: an error leaves no half of a report
  if (output.json) {
    absl::StrAppend(&out, "{\"schema\":\"trainctl.batch.v1\",\"set\":",
                    PrintableJson(Json(options.eval_set.empty() ? "train" : options.eval_set)),
                    ",\"step\":", options.step, ",\"num_sequences\":", recipe.train.batch_sequences,
                    ",\"seq_len\":", recipe.data.seq_len, ",\"sequences\":[");
  }
  for (int64_t i = 0; i < recipe.train.batch_sequences; ++i) {
    TRAINCTL_ASSIGN_OR_RETURN(const data::Batch batch, source->Get(options.step - 1, {i, 1}));
    AppendSequence(batch, i, decoder, output.json, out);
  }
  if (output.json) absl::StrAppend(&out, "\n]}\n");
  PrintText(out);
  return ExitCode::kOk;
}

void AddPrepare(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("prepare", "Tokenize text, JSONL or Parquet files into a .bin/.idx dataset");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl data prepare books/*.txt web.jsonl.zst --tokenizer byte --out data/mixed");
  auto options = std::make_shared<data::PrepareOptions>();
  verb->add_option("IN", options->inputs,
                   "Input files: one document per line in .jsonl and .ndjson files, one per row in .parquet "
                   "files, and one per file otherwise. Text and JSONL may be compressed with gzip or zstd. - "
                   "reads standard input and requires --kind")
      ->required();
  verb->add_option("--kind", options->kind, "Format of the input files; auto infers it from their names")
      ->check(CLI::IsMember({"auto", "jsonl", "parquet", "text"}))
      ->capture_default_str();
  verb->add_option("--tokenizer", options->tokenizer,
                   "\"byte\" (one token per byte), a tokenizer.json, a SentencePiece .model file, or the "
                   "folder that contains it")
      ->type_name("TOKENIZER")
      ->capture_default_str();
  verb->add_option("--out", options->prefix, "Write PREFIX.bin, PREFIX.idx and PREFIX.json")
      ->required()
      ->type_name("PREFIX");
  verb->add_option("--text-field", options->text_field,
                   "Field of JSONL and Parquet files that contains the text")
      ->capture_default_str();
  verb->add_option("--on-bad-line", options->on_bad_line,
                   "What to do with a JSONL line or Parquet row whose text field is missing or not a string: "
                   "stop with an error, or skip and report it")
      ->check(CLI::IsMember({"stop", "skip"}))
      ->capture_default_str();
  verb->add_flag("--end-of-document", options->end_of_document,
                 "Append an end token to each document: the tokenizer's own, or token 256 for bytes "
                 "(requires vocab >= 257)");
  verb->add_option("--threads", options->num_threads, "Number of tokenizing threads (default: one per core)")
      ->check(CLI::Range(0, 1024))
      ->type_name("N");
  AddForceFlag(*verb, options->overwrite);
  verb->add_flag("--restart", options->restart,
                 "Start over instead of resuming an interrupted run of this command");
  verb->callback([&action, options] {
    action = [options](const Output& output) { return RunPrepare(*options, output); };
  });
}

void AddBatch(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("batch", "Print the exact token IDs and the text of a step's batch");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl data batch recipe.toml --step 100 --json");
  auto options = std::make_shared<BatchOptions>();
  verb->add_option("RECIPE", options->recipe, "Recipe (TOML)")->required();
  verb->add_option("--step", options->step, "Step whose batch to print, counted from 1 as in the run's log")
      ->required()
      ->check(WholeNumber(1))
      ->type_name("N");
  verb->add_option("--set", options->sets, "Override a field: KEY=VALUE (repeatable)")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  verb->add_option("--eval", options->eval_set,
                   "Print a batch of this evaluation set instead of the training data")
      ->type_name("NAME");
  verb->callback([&action, options] {
    action = [options](const Output& output) { return RunBatch(*options, output); };
  });
}

}  // namespace

void AddData(CLI::App& app, Action& action) {
  CLI::App* group = app.add_subcommand("data", "Prepare datasets and inspect batches");
  group->require_subcommand(1);
  SetExample(*group, "trainctl data prepare corpus.jsonl --out data/corpus");
  AddPrepare(*group, action);
  AddBatch(*group, action);
}

}  // namespace trainctl::cli
