#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/output_options.h"
#include "apps/trainctl/progress_view.h"
#include "base/files.h"
#include "base/json.h"
#include "base/lfs_pointer.h"
#include "base/output_file.h"
#include "data/count_words.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/config_beside.h"
#include "tokenizer/tokenizer.h"

namespace trainctl::cli {
namespace {

using tokenizer::Tokenizer;

struct CodeOptions {
  std::string tokenizer;
  std::string input;  // empty: stdin
  bool lines = false;
  bool no_special = false;
  bool skip_special = false;
};

void Print(absl::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

absl::StatusOr<std::string> ReadInput(const std::string& path) {
  if (!path.empty()) {
    TRAINCTL_RETURN_IF_ERROR(RefuseLfsPointerFile(path));
    return ReadFile(path);
  }
  std::string text;
  char buffer[65536];
  while (true) {
    const ssize_t got = ::read(STDIN_FILENO, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError("read", "stdin", errno);
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
  }
}

std::vector<absl::string_view> LinesOf(absl::string_view text) {
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

absl::StatusOr<std::vector<int32_t>> EncodeOne(const Tokenizer& tokenizer, absl::string_view text,
                                               bool no_special) {
  std::vector<int32_t> ids;
  TRAINCTL_RETURN_IF_ERROR(no_special ? tokenizer.Encode(text, &ids) : tokenizer.EncodeDocument(text, &ids));
  return ids;
}

std::string IdsLine(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool as_json) {
  if (!as_json) return absl::StrCat(absl::StrJoin(ids, " "), "\n");
  Json tokens = Json::array();
  for (const int32_t id : ids) tokens.push_back(std::string(tokenizer.TokenOf(id)));
  return absl::StrCat(
      PrintableJson({{"schema", "trainctl.tokens.v1"}, {"ids", ids}, {"tokens", std::move(tokens)}}), "\n");
}

absl::StatusOr<ExitCode> RunEncode(const CodeOptions& options, const Output& output) {
  TRAINCTL_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(options.tokenizer));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string input, ReadInput(options.input));
  if (!options.lines) {
    TRAINCTL_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                              EncodeOne(*tokenizer, input, options.no_special));
    Print(IdsLine(*tokenizer, ids, output.json));
    return ExitCode::kOk;
  }
  std::string out;
  int64_t number = 0;
  for (const absl::string_view line : LinesOf(input)) {
    ++number;
    const Json text = Json::parse(line.begin(), line.end(), nullptr, false);
    if (!text.is_string())
      return BadDataError(absl::StrCat("line ", number, " of the input is not a JSON string"));
    TRAINCTL_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                              EncodeOne(*tokenizer, text.get_ref<const std::string&>(), options.no_special));
    out += IdsLine(*tokenizer, ids, output.json);
  }
  Print(out);
  return ExitCode::kOk;
}

absl::StatusOr<std::vector<int32_t>> ParseIds(absl::string_view text) {
  std::vector<int32_t> ids;
  for (const absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(" \t\r\n,[]"), absl::SkipEmpty())) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(word, &id)) return UsageError(absl::StrCat("'", word, "' is not a token id"));
    ids.push_back(id);
  }
  return ids;
}

absl::StatusOr<ExitCode> RunDecode(const CodeOptions& options, const Output&) {
  TRAINCTL_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(options.tokenizer));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string input, ReadInput(options.input));
  std::string out;
  if (options.lines) {
    for (const absl::string_view line : LinesOf(input)) {
      TRAINCTL_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ParseIds(line));
      TRAINCTL_ASSIGN_OR_RETURN(std::string text, tokenizer->Decode(ids, options.skip_special));
      absl::StrAppend(&out, PrintableJson(std::move(text)), "\n");
    }
  } else {
    TRAINCTL_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ParseIds(input));
    TRAINCTL_ASSIGN_OR_RETURN(out, tokenizer->Decode(ids, options.skip_special));
  }
  Print(out);
  return ExitCode::kOk;
}

std::string NamesOf(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, size_t at_most) {
  std::vector<std::string> names;
  for (const int32_t id : ids) {
    if (names.size() == at_most) {
      names.push_back(absl::StrCat("and ", ids.size() - at_most, " more"));
      break;
    }
    names.push_back(absl::StrCat(tokenizer.TokenOf(id), " (", id, ")"));
  }
  return names.empty() ? "none" : absl::StrJoin(names, ", ");
}

absl::StatusOr<ExitCode> RunInfo(const std::string& path, const Output& output) {
  TRAINCTL_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(path));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string file, Tokenizer::FindFile(path));
  const std::vector<std::string> notes = tokenizer::DifferencesOfConfigBeside(*tokenizer, file);
  const int32_t end = tokenizer->end_of_document_id();
  if (output.json) {
    const Json report = {{"schema", "trainctl.tokenizer.v1"},
                         {"path", path},
                         {"kind", tokenizer->kind()},
                         {"vocab", tokenizer->vocab_size()},
                         {"end_of_document", end >= 0 ? Json(end) : Json(nullptr)},
                         {"before_a_text", tokenizer->prefix_ids()},
                         {"behind_a_text", tokenizer->suffix_ids()},
                         {"special", tokenizer->special_ids()},
                         {"notes", notes}};
    Print(absl::StrCat(PrintableJson(report), "\n"));
    return ExitCode::kOk;
  }
  Print(absl::StrCat(path, ": ", tokenizer->kind(), "\n  vocab            ", tokenizer->vocab_size(),
                     " (model.vocab must be at least this)\n  end of document  ",
                     NamesOf(*tokenizer, end >= 0 ? std::vector<int32_t>{end} : std::vector<int32_t>{}, 1),
                     "\n  before a text    ", NamesOf(*tokenizer, tokenizer->prefix_ids(), 8),
                     "\n  after a text     ", NamesOf(*tokenizer, tokenizer->suffix_ids(), 8),
                     "\n  special tokens   ", NamesOf(*tokenizer, tokenizer->special_ids(), 8), "\n"));
  for (const std::string& note : notes) Print(absl::StrCat("  note             ", note, "\n"));
  return ExitCode::kOk;
}

struct TrainVerbOptions {
  data::CountWordsOptions count;
  tokenizer::TrainOptions train;
  std::string out;
  OutputRules output_rules;
};

absl::StatusOr<ExitCode> RunTrain(TrainVerbOptions options, const Output& output) {
  TRAINCTL_RETURN_IF_ERROR(tokenizer::CheckTrainOptions(options.train));
  options.output_rules.inputs = options.count.files;
  TRAINCTL_RETURN_IF_ERROR(FindOutput(options.out, options.output_rules).status());
  ProgressView view(output.stderr_terminal);
  options.count.progress = [&view](int64_t done_bytes, int64_t total_bytes) {
    view.Show(done_bytes, total_bytes);
  };
  absl::StatusOr<tokenizer::WordCounter> counted = data::CountWords(options.count);
  view.Clear();
  TRAINCTL_ASSIGN_OR_RETURN(const tokenizer::WordCounter words, std::move(counted));
  if (words.counts().empty()) {
    return BadDataError(absl::StrCat("the ", options.count.files.size(), " input files (",
                                     options.count.files.front(),
                                     options.count.files.size() > 1 ? ", ..." : "", ") hold no text"));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const tokenizer::TrainedBpe trained, tokenizer::TrainBpe(words, options.train));
  const std::string json = tokenizer::TokenizerJson(trained);
  // What is written can be read.
  TRAINCTL_RETURN_IF_ERROR(Tokenizer::Parse(json, options.out).status());
  TRAINCTL_RETURN_IF_ERROR(WriteOutputFile(options.out, json, options.output_rules));
  const auto vocab = static_cast<int64_t>(trained.tokens.size());
  if (output.json) {
    Print(absl::StrCat(PrintableJson({{"schema", "trainctl.tokenizer_training.v1"},
                                      {"path", options.out},
                                      {"vocab", vocab},
                                      {"merges", trained.merges.size()},
                                      {"words", words.counts().size()}}),
                       "\n"));
    return ExitCode::kOk;
  }
  Print(absl::StrCat("Wrote ", options.out, ": ", vocab, " tokens (", trained.merges.size(), " merges) from ",
                     words.counts().size(), " different words\n"));
  if (vocab < options.train.vocab) {
    Print(absl::StrCat("The text has no more pairs that stand there ", options.train.min_frequency,
                       " times; ", options.train.vocab, " tokens were asked for\n"));
  }
  return ExitCode::kOk;
}

constexpr const char* kTokenizerHelp = "tokenizer.json or a sentencepiece .model, or the folder that has one";

void AddInfo(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("info", "What a tokenizer is: kind, size, special tokens");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl tokenizer info llama/tokenizer.json");
  auto path = std::make_shared<std::string>();
  verb->add_option("TOKENIZER", *path, kTokenizerHelp)->required();
  verb->callback(
      [&action, path] { action = [path](const Output& output) { return RunInfo(*path, output); }; });
}

void AddEncode(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("encode", "Print the token ids of a text");
  AddJsonFlag(*verb);
  SetExample(*verb, "echo -n 'Hello world' | trainctl tokenizer encode llama/tokenizer.json");
  auto options = std::make_shared<CodeOptions>();
  verb->add_option("TOKENIZER", options->tokenizer, kTokenizerHelp)->required();
  verb->add_option("TEXT_FILE", options->input, "The text (default: stdin)");
  verb->add_flag("--no-special", options->no_special,
                 "Without what the tokenizer puts before and after each text");
  verb->add_flag("--lines", options->lines,
                 "Each line of the input is a text, as a JSON string; its ids become a line (with --json: an "
                 "object)");
  verb->callback([&action, options] {
    action = [options](const Output& output) { return RunEncode(*options, output); };
  });
}

void AddDecode(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("decode", "Print the text of token ids");
  SetExample(*verb, "echo 1 15043 3186 | trainctl tokenizer decode llama/tokenizer.json --skip-special");
  auto options = std::make_shared<CodeOptions>();
  verb->add_option("TOKENIZER", options->tokenizer, kTokenizerHelp)->required();
  verb->add_option("IDS_FILE", options->input, "Ids with spaces between them (default: stdin)");
  verb->add_flag("--skip-special", options->skip_special, "Leave special tokens out");
  verb->add_flag("--lines", options->lines, "Each line of ids becomes a line with its text as a JSON string");
  verb->callback([&action, options] {
    action = [options](const Output& output) { return RunDecode(*options, output); };
  });
}

void AddTrain(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("train", "Learn a byte-level BPE tokenizer from text or JSONL files");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl tokenizer train books/*.txt web.jsonl --vocab 32000 --out tokenizer.json");
  auto options = std::make_shared<TrainVerbOptions>();
  verb->add_option("IN", options->count.files, ".jsonl and .ndjson: a document per line; anything else: text")
      ->required();
  verb->add_option("--vocab", options->train.vocab, "Tokens in all: special ones, 256 bytes, merges")
      ->required()
      ->type_name("N");
  verb->add_option("--out", options->out, "The tokenizer.json to write")->required()->type_name("FILE");
  verb->add_option("--special", options->train.special_tokens,
                   "A special token (repeatable); they get the first ids")
      ->allow_extra_args(false)
      ->capture_default_str()
      ->type_name("TOKEN");
  verb->add_option("--min-frequency", options->train.min_frequency,
                   "How often a pair must stand in the text to be merged")
      ->capture_default_str()
      ->type_name("N");
  verb->add_option("--text-field", options->count.text_field, "JSONL: the field with the text")
      ->capture_default_str();
  verb->add_option("--threads", options->count.num_threads, "Threads that read (default: one per core)")
      ->check(CLI::Range(0, 1024))
      ->type_name("N");
  AddForceFlag(*verb, options->output_rules.overwrite);
  verb->callback([&action, options] {
    action = [options](const Output& output) { return RunTrain(*options, output); };
  });
}

}  // namespace

void AddTokenizer(CLI::App& app, Action& action) {
  CLI::App* group = app.add_subcommand("tokenizer", "Look at a tokenizer; encode, decode; train one");
  group->require_subcommand(1);
  SetExample(*group, "trainctl tokenizer info llama/tokenizer.json");
  AddInfo(*group, action);
  AddEncode(*group, action);
  AddDecode(*group, action);
  AddTrain(*group, action);
}

}  // namespace trainctl::cli
