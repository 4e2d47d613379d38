#include <unistd.h>

#include <CLI/CLI.hpp>
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
    PrintText(IdsLine(*tokenizer, ids, output.json));
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
  PrintText(out);
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
  PrintText(out);
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
    PrintText(absl::StrCat(PrintableJson(report), "\n"));
    return ExitCode::kOk;
  }
  PrintText(
      absl::StrCat(path, ": ", tokenizer->kind(), "\n  vocab            ", tokenizer->vocab_size(),
                   " (model.vocab must be at least this)\n  end of document  ",
                   NamesOf(*tokenizer, end >= 0 ? std::vector<int32_t>{end} : std::vector<int32_t>{}, 1),
                   "\n  before a text    ", NamesOf(*tokenizer, tokenizer->prefix_ids(), 8),
                   "\n  after a text     ", NamesOf(*tokenizer, tokenizer->suffix_ids(), 8),
                   "\n  special tokens   ", NamesOf(*tokenizer, tokenizer->special_ids(), 8), "\n"));
  for (const std::string& note : notes) PrintText(absl::StrCat("  note             ", note, "\n"));
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
  absl::StatusOr<data::CountedWords> counted = data::CountWords(options.count);
  view.Clear();
  TRAINCTL_RETURN_IF_ERROR(counted.status());
  const tokenizer::WordCounter& words = counted->words;
  if (counted->left_out.count > 0) view.Note(data::FormatLeftOut(counted->left_out));
  if (words.counts().empty()) {
    return BadDataError(absl::StrCat("the ", options.count.files.size(), " input file(s) (",
                                     options.count.files.front(),
                                     options.count.files.size() > 1 ? ", ..." : "", ") contain no text"));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const tokenizer::TrainedBpe trained, tokenizer::TrainBpe(words, options.train));
  const std::string json = tokenizer::TokenizerJson(trained);
  // What is written can be read.
  TRAINCTL_RETURN_IF_ERROR(Tokenizer::Parse(json, options.out).status());
  TRAINCTL_RETURN_IF_ERROR(WriteOutputFile(options.out, json, options.output_rules));
  const auto vocab = static_cast<int64_t>(trained.tokens.size());
  if (output.json) {
    PrintText(absl::StrCat(PrintableJson({{"schema", "trainctl.tokenizer_training.v1"},
                                          {"path", options.out},
                                          {"vocab", vocab},
                                          {"merges", trained.merges.size()},
                                          {"words", words.counts().size()},
                                          {"lines_left_out", counted->left_out.count}}),
                           "\n"));
    return ExitCode::kOk;
  }
  PrintText(absl::StrCat("Wrote ", options.out, ": ", vocab, " tokens (", trained.merges.size(),
                         " merges) from ", words.counts().size(), " distinct words\n"));
  if (vocab < options.train.vocab) {
    PrintText(absl::StrCat("Stopped early, because no other pair occurs ", options.train.min_frequency,
                           " times; ", options.train.vocab, " tokens were requested\n"));
  }
  return ExitCode::kOk;
}

constexpr const char* kTokenizerHelp =
    "A tokenizer.json, a SentencePiece .model file, or a folder that contains either";

void AddInfo(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("info", "Show a tokenizer's kind, size and special tokens");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl tokenizer info llama/tokenizer.json");
  auto path = std::make_shared<std::string>();
  verb->add_option("TOKENIZER", *path, kTokenizerHelp)->required();
  verb->callback(
      [&action, path] { action = [path](const Output& output) { return RunInfo(*path, output); }; });
}

void AddEncode(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("encode", "Print the token IDs of a text");
  AddJsonFlag(*verb);
  SetExample(*verb, "echo -n 'Hello world' | trainctl tokenizer encode llama/tokenizer.json");
  auto options = std::make_shared<CodeOptions>();
  verb->add_option("TOKENIZER", options->tokenizer, kTokenizerHelp)->required();
  verb->add_option("TEXT_FILE", options->input, "File with the text (default: stdin)");
  verb->add_flag("--no-special", options->no_special,
                 "Do not add the tokenizer's special tokens before and after each text");
  verb->add_flag("--lines", options->lines,
                 "Treat each input line as a JSON string that contains a text, and print the IDs of each "
                 "text on one line (with --json, as an object)");
  verb->callback([&action, options] {
    action = [options](const Output& output) { return RunEncode(*options, output); };
  });
}

void AddDecode(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("decode", "Convert token IDs back to text");
  SetExample(*verb, "echo 1 15043 3186 | trainctl tokenizer decode llama/tokenizer.json --skip-special");
  auto options = std::make_shared<CodeOptions>();
  verb->add_option("TOKENIZER", options->tokenizer, kTokenizerHelp)->required();
  verb->add_option("IDS_FILE", options->input, "File with IDs separated by spaces (default: stdin)");
  verb->add_flag("--skip-special", options->skip_special, "Omit special tokens");
  verb->add_flag("--lines", options->lines,
                 "Decode each line of IDs separately and print its text as a JSON string");
  verb->callback([&action, options] {
    action = [options](const Output& output) { return RunDecode(*options, output); };
  });
}

void AddTrain(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("train", "Learn a byte-level BPE tokenizer from text, JSONL or Parquet files");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl tokenizer train books/*.txt web.jsonl --vocab 32000 --out tokenizer.json");
  auto options = std::make_shared<TrainVerbOptions>();
  verb->add_option("IN", options->count.files,
                   "Input files: one document per line in .jsonl and .ndjson files, one per row in .parquet "
                   "files; any other file is text")
      ->required();
  verb->add_option("--vocab", options->train.vocab,
                   "Vocabulary size, counting special tokens, the 256 bytes and merges")
      ->required()
      ->type_name("N");
  verb->add_option("--out", options->out, "Path of the tokenizer.json to write")
      ->required()
      ->type_name("FILE");
  verb->add_option("--special", options->train.special_tokens,
                   "Add a special token (repeatable). Special tokens get the lowest IDs")
      ->allow_extra_args(false)
      ->capture_default_str()
      ->type_name("TOKEN");
  verb->add_option("--min-frequency", options->train.min_frequency,
                   "Merge only pairs that occur at least this many times")
      ->capture_default_str()
      ->type_name("N");
  verb->add_option("--text-field", options->count.text_field,
                   "Field of JSONL and Parquet files that contains the text")
      ->capture_default_str();
  verb->add_option("--on-bad-line", options->count.on_bad_line,
                   "What to do with a JSONL line or Parquet row whose text field is missing or not a string: "
                   "stop with an error, or skip and report it")
      ->check(CLI::IsMember({"stop", "skip"}))
      ->capture_default_str();
  verb->add_option("--threads", options->count.num_threads,
                   "Number of reader threads (default: one per core)")
      ->check(CLI::Range(0, 1024))
      ->type_name("N");
  AddForceFlag(*verb, options->output_rules.overwrite);
  verb->callback([&action, options] {
    action = [options](const Output& output) { return RunTrain(*options, output); };
  });
}

}  // namespace

void AddTokenizer(CLI::App& app, Action& action) {
  CLI::App* group = app.add_subcommand("tokenizer", "Inspect, use and train tokenizers");
  group->require_subcommand(1);
  SetExample(*group, "trainctl tokenizer info llama/tokenizer.json");
  AddInfo(*group, action);
  AddEncode(*group, action);
  AddDecode(*group, action);
  AddTrain(*group, action);
}

}  // namespace trainctl::cli
