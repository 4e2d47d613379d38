#include "data/prepare.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/json.h"
#include "base/output_file.h"
#include "base/shell_quote.h"
#include "base/status.h"
#include "base/units.h"
#include "data/data_file.h"
#include "data/document_store.h"
#include "data/fingerprint.h"
#include "data/indexed_writer.h"
#include "data/prepare_state.h"
#include "data/text_markers.h"
#include "data/text_preparation.h"
#include "recipe/url.h"

namespace trainctl::data {
namespace {

absl::Status CheckStandardInput(const PrepareOptions& options) {
  if (std::count(options.inputs.begin(), options.inputs.end(), kStandardInput) == 0) return absl::OkStatus();
  if (!options.reads_standard_input()) {
    return UsageError(
        "\"-\" (standard input) must be the only input; remove the other inputs, or add them to the pipe");
  }
  if (options.kind == "auto") {
    return UsageError(
        "standard input has no file name from which to infer the format; add --kind jsonl (one document per "
        "line) or --kind text (one document)");
  }
  if (options.kind == "parquet") {
    return UsageError(
        "Parquet cannot be read from standard input, because its index is at the end of the file; save it "
        "as a file first");
  }
  if (::isatty(STDIN_FILENO) != 0) {
    return UsageError(absl::StrCat(
        "standard input is a terminal; pipe the text in, for example: zstdcat big.jsonl.zst | trainctl data "
        "prepare - --kind jsonl --out ",
        ShellQuote(options.prefix)));
  }
  return absl::OkStatus();
}

// 0 if it is unknown.
int64_t StandardInputBytes() {
  struct stat info;
  return ::fstat(STDIN_FILENO, &info) == 0 && S_ISREG(info.st_mode) ? int64_t{info.st_size} : 0;
}

absl::Status CheckOptions(const PrepareOptions& options) {
  if (options.inputs.empty()) return UsageError("no input files");
  if (options.prefix.empty() || options.prefix.back() == '/') {
    return UsageError(
        absl::StrCat("the output '", options.prefix, "' must be a file name without an extension"));
  }
  if (options.on_bad_line != "stop" && options.on_bad_line != "skip") {
    return UsageError(
        absl::StrCat(kOnBadLine, " must be \"stop\" or \"skip\", not '", options.on_bad_line, "'"));
  }
  return CheckStandardInput(options);
}

// The command that a URL of this kind can be piped into.
std::string PipeReader(const std::string& url, const PrepareOptions& options) {
  recipe::DataSource source;
  source.kind = options.kind;
  const absl::StatusOr<SourceKind> kind = KindOfFile(source, url.substr(0, url.find_first_of("?#")));
  if (!kind.ok() || *kind == SourceKind::kIndexed) return "";
  return absl::StrCat("trainctl data prepare - --kind ", KindName(*kind), " --out ",
                      ShellQuote(options.prefix));
}

absl::StatusOr<SourceKind> InputKind(const std::string& path, const PrepareOptions& options) {
  TRAINCTL_RETURN_IF_ERROR(recipe::RefuseUrl(path, PipeReader(path, options)));
  recipe::DataSource source;
  source.kind = options.kind;
  TRAINCTL_ASSIGN_OR_RETURN(const SourceKind kind, KindOfFile(source, path));
  if (kind == SourceKind::kIndexed) {
    return UsageError(absl::StrCat(path, " is already tokenized; use it in a recipe as it is"));
  }
  return kind;
}

// Null for bytes. Says in `dataset` what its tokens are.
absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>> ChooseTokens(const PrepareOptions& options,
                                                                   PreparedDataset& dataset) {
  if (options.tokenizer == "byte") {
    dataset.token_type = options.end_of_document ? TokenType::kU16 : TokenType::kU8;
    dataset.vocab = options.end_of_document ? kEndOfDocument + 1 : kByteVocab;
    dataset.end_of_document = "on";
    return nullptr;
  }
  TRAINCTL_ASSIGN_OR_RETURN(const std::string file, tokenizer::Tokenizer::FindFile(options.tokenizer));
  TRAINCTL_ASSIGN_OR_RETURN(auto tokenizer, tokenizer::Tokenizer::Load(file));
  TRAINCTL_ASSIGN_OR_RETURN(dataset.tokenizer_file, FingerprintFile(file));
  dataset.vocab = tokenizer->vocab_size();
  dataset.token_type = dataset.vocab <= int64_t{UINT16_MAX} + 1 ? TokenType::kU16 : TokenType::kI32;
  if (options.end_of_document && tokenizer->end_of_document_id() < 0) {
    return UsageError(absl::StrCat("tokenizer '", options.tokenizer,
                                   "' has no known end-of-text token (eos_token of tokenizer_config.json, "
                                   "\"</s>\", \"<|endoftext|>\", ...); omit --end-of-document"));
  }
  dataset.end_of_document = std::string(tokenizer->TokenOf(tokenizer->end_of_document_id()));
  return tokenizer;
}

// The files of the dataset appear by renaming, so that what is at their names is a regular file or nothing.
absl::Status CheckOutputs(const PrepareOptions& options, bool overwrite) {
  OutputRules rules = {.overwrite = overwrite, .inputs = options.inputs};
  if (options.reads_standard_input()) rules.inputs.clear();
  if (options.tokenizer != "byte") {
    TRAINCTL_ASSIGN_OR_RETURN(std::string file, tokenizer::Tokenizer::FindFile(options.tokenizer));
    rules.inputs.push_back(std::move(file));
  }
  for (const char* suffix : {".bin", ".idx", ".json"}) {
    const std::string path = options.prefix + suffix;
    TRAINCTL_ASSIGN_OR_RETURN(const OutputTarget target, FindOutput(path, rules));
    if (target.kind == OutputKind::kStream) {
      return UsageError(absl::StrCat(path, " is not a regular file; choose another output"));
    }
    if (target.path != path) {
      return UsageError(absl::StrCat(path, " is a link to ", target.path,
                                     "; choose another output, such as one in that folder"));
    }
  }
  return absl::OkStatus();
}

Json FileJson(const FileFingerprint& file) {
  return Json{{"path", file.path}, {"bytes", file.size_bytes}, {"xxh3", absl::StrFormat("%016x", file.xxh3)}};
}

std::vector<std::pair<std::string, std::string>> Settings(const PrepareOptions& options,
                                                          const PreparedDataset& dataset) {
  const FileFingerprint& file = dataset.tokenizer_file;
  return {
      {"the version of trainctl", options.program},
      {"the tokenizer",
       file.path.empty() ? "byte" : absl::StrFormat("%d bytes with XXH3 %016x", file.size_bytes, file.xxh3)},
      {"the type of a token", std::string(TokenTypeName(dataset.token_type))},
      {"--text-field", options.text_field},
      {kOnBadLine, options.on_bad_line},
      {"--end-of-document", options.end_of_document ? dataset.end_of_document : "off"}};
}

// One preparation: finds what an earlier one left, goes on from it, publishes.
class Job {
 public:
  Job(const PrepareOptions& options, std::vector<SourceKind> kinds, int64_t total_bytes)
      : options_(options), kinds_(std::move(kinds)), total_bytes_(total_bytes) {}

  absl::StatusOr<PreparedDataset> Run() {
    dataset_.prefix = options_.prefix;
    dataset_.tokenizer = options_.tokenizer;
    TRAINCTL_ASSIGN_OR_RETURN(const auto tokenizer, ChooseTokens(options_, dataset_));
    TRAINCTL_ASSIGN_OR_RETURN(writer_, IndexedWriter::Open(options_.prefix, dataset_.token_type));
    TRAINCTL_ASSIGN_OR_RETURN(PrepareState state, FindState());
    if (!state.is_sealed) {
      TRAINCTL_RETURN_IF_ERROR(CheckOutputs(options_, options_.overwrite));
      NoteMarkers(tokenizer != nullptr ? dataset_.end_of_document : "");
      TRAINCTL_RETURN_IF_ERROR(TakeUp(state));
      TextPreparation preparation(options_, kinds_, tokenizer.get(), *writer_, std::move(state),
                                  total_bytes_);
      absl::Status status = preparation.Run();
      if (absl::IsCancelled(status)) status = Stop(preparation);
      TRAINCTL_RETURN_IF_ERROR(SayingWhatStays(status));
      state = preparation.TakeState();
      if (state.tokens() == 0) return NoTextError(state.left_out());
      TRAINCTL_RETURN_IF_ERROR(SayingWhatStays(Seal(state)));
    }
    TRAINCTL_RETURN_IF_ERROR(SayingWhatStays(Publish(state)));
    return std::move(dataset_);
  }

 private:
  // What may be gone on from of what an earlier preparation left; without settings: nothing.
  absl::StatusOr<PrepareState> FindState() {
    PrepareState now;
    now.settings = Settings(options_, dataset_);
    absl::StatusOr<std::optional<PrepareState>> found = LoadState(options_.prefix);
    if (found.ok() && !found->has_value()) return now;
    if (!found.ok() || options_.restart) {
      NoteStart(found.ok() ? "--restart" : found.status().message());
      return now;
    }
    if (options_.reads_standard_input()) {
      NoteStart("an interrupted preparation of standard input cannot be resumed");
      return now;
    }
    PrepareState& old = **found;
    for (size_t i = 0; i < std::min(old.sources.size(), options_.inputs.size()); ++i) {
      SourceState source;
      source.path = options_.inputs[i];
      source.kind = std::string(KindName(kinds_[i]));
      TRAINCTL_ASSIGN_OR_RETURN(source.found, QuickFingerprintFile(source.path));
      now.sources.push_back(std::move(source));
    }
    const Continuation from = CompareStates(old, now);
    now.sources.clear();
    if (from.num_sources > 0) old.settings = now.settings;  // equal, but for what may differ
    if (old.is_sealed) {
      if (from.reason.empty() && old.sources.size() == options_.inputs.size() && HasSealedFiles(old)) {
        Note("only renaming the files remained");
        return std::move(old);
      }
      if (from.reason.empty() && old.sources.size() == options_.inputs.size()) {
        NoteStart("the files of an earlier preparation are missing or damaged");
        return now;
      }
    }
    old.is_sealed = false;
    old.sources.resize(from.num_sources);
    if (old.tokens() == 0) {
      NoteStart(from.reason);
      return now;
    }
    Note(absl::StrCat("resuming after ", FormatNumberOf(old.documents(), "document"), ", ", old.tokens(),
                      " tokens",
                      from.reason.empty() ? "" : absl::StrCat("; later work is repeated: ", from.reason)));
    return std::move(old);
  }

  bool HasSealedFiles(const PrepareState& state) const {
    const auto has = [](const std::string& part, const std::string& final_name, int64_t bytes) {
      const absl::StatusOr<int64_t> found = FileBytes(PathExists(part) ? part : final_name);
      return found.ok() && *found == bytes;
    };
    return has(writer_->data_part(), options_.prefix + ".bin", state.data.size_bytes) &&
           has(writer_->index_part(), options_.prefix + ".idx", state.index.size_bytes);
  }

  // Brings the part files to `state`, which loses its sources when they do not fit together.
  absl::Status TakeUp(PrepareState& state) {
    if (!state.sources.empty()) {
      // Before anything is cut: a state must never promise more than the files hold.
      TRAINCTL_RETURN_IF_ERROR(SaveState(options_.prefix, state));
      const absl::Status status = writer_->CutBack(state.documents(), state.tokens());
      if (status.ok()) {
        writer_->Keep();
        return status;
      }
      if (ExitCodeFor(status) != ExitCode::kBadData) return status;
      NoteStart(status.message());
      state.sources.clear();
    }
    TRAINCTL_RETURN_IF_ERROR(Remove(StatePath(options_.prefix)));
    TRAINCTL_RETURN_IF_ERROR(SyncDir(Folder()));
    return writer_->CutBack(0, 0);
  }

  absl::Status Stop(TextPreparation& preparation) {
    if (options_.reads_standard_input()) {
      return absl::CancelledError("stopped; no standard input is kept, so the next run starts over");
    }
    if (writer_->ended_tokens() == 0)
      return absl::CancelledError("stopped before the first document was finished");
    TRAINCTL_RETURN_IF_ERROR(preparation.Commit());
    return absl::CancelledError("stopped");
  }

  // After a commit, an error is not the end of what was done.
  absl::Status SayingWhatStays(const absl::Status& status) const {
    if (status.ok() || options_.reads_standard_input() || !CanGoOn(options_.prefix)) return status;
    return absl::Status(
        status.code(),
        absl::StrCat(status.message(), "; finished work is saved in ", options_.prefix,
                     ".*.part; run the same command to continue from there, or add --restart to start over"));
  }

  absl::Status NoTextError(const LeftOutLines& left_out) const {
    const std::string inputs =
        options_.reads_standard_input()
            ? "standard input contains"
            : absl::StrCat("the ", options_.inputs.size(), " input file(s) (", options_.inputs.front(),
                           options_.inputs.size() > 1 ? ", ..." : "", ") contain");
    return BadDataError(absl::StrCat(inputs, " no text",
                                     left_out.count == 0 ? "" : absl::StrCat("; ", FormatLeftOut(left_out))));
  }

  absl::Status Seal(PrepareState& state) {
    TRAINCTL_RETURN_IF_ERROR(writer_->Seal());
    TRAINCTL_ASSIGN_OR_RETURN(state.data, FingerprintFile(writer_->data_part()));
    TRAINCTL_ASSIGN_OR_RETURN(state.index, FingerprintFile(writer_->index_part()));
    state.is_sealed = true;
    TRAINCTL_RETURN_IF_ERROR(SaveState(options_.prefix, state));
    writer_->Keep();
    Reached("sealed");
    return absl::OkStatus();
  }

  absl::Status Publish(const PrepareState& state) {
    dataset_.documents = state.documents();
    dataset_.tokens = state.tokens();
    for (const SourceState& source : state.sources) {
      dataset_.sources.push_back({source.whole, source.documents, source.tokens, source.left_out.count});
    }
    dataset_.left_out = state.left_out();
    dataset_.data = {options_.prefix + ".bin", state.data.size_bytes, state.data.xxh3};
    dataset_.index = {options_.prefix + ".idx", state.index.size_bytes, state.index.xxh3};
    const std::string report = options_.prefix + ".json";
    TRAINCTL_RETURN_IF_ERROR(Remove(report));  // of another dataset
    TRAINCTL_RETURN_IF_ERROR(writer_->Publish(options_.reached));
    TRAINCTL_RETURN_IF_ERROR(WriteFileAtomic(report, DatasetJson(dataset_) + "\n"));
    Reached("described");
    TRAINCTL_RETURN_IF_ERROR(Remove(writer_->documents_part()));
    Reached("cleaned");
    TRAINCTL_RETURN_IF_ERROR(Remove(StatePath(options_.prefix)));
    return SyncDir(Folder());
  }

  static absl::Status Remove(const std::string& path) {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoError("remove", path, errno);
    return absl::OkStatus();
  }

  std::string Folder() const {
    const std::string folder = std::filesystem::path(options_.prefix).parent_path().string();
    return folder.empty() ? "." : folder;
  }
  void Note(const std::string& line) const {
    if (options_.note) options_.note(line);
  }
  void NoteMarkers(absl::string_view own_end) const {
    std::vector<std::string> texts;
    for (size_t i = 0; i < kinds_.size(); ++i) {
      if (kinds_[i] == SourceKind::kText) texts.push_back(options_.inputs[i]);
    }
    const std::string note = FormatTextMarkers(FindTextMarkers(texts, own_end));
    if (!note.empty()) Note(absl::StrCat("note: ", note));
  }
  void NoteStart(absl::string_view reason) const { Note(absl::StrCat("starting over: ", reason)); }
  void Reached(const char* moment) const {
    if (options_.reached) options_.reached(moment);
  }

  const PrepareOptions& options_;
  const std::vector<SourceKind> kinds_;
  const int64_t total_bytes_;
  PreparedDataset dataset_;
  std::unique_ptr<IndexedWriter> writer_;
};

}  // namespace

absl::StatusOr<PreparedDataset> Prepare(const PrepareOptions& options) {
  TRAINCTL_RETURN_IF_ERROR(CheckOptions(options));
  std::vector<SourceKind> kinds;
  int64_t total_bytes = 0;
  for (const std::string& path : options.inputs) {
    TRAINCTL_ASSIGN_OR_RETURN(const SourceKind kind, InputKind(path, options));
    kinds.push_back(kind);
    if (path == kStandardInput) {
      total_bytes = StandardInputBytes();
    } else {
      TRAINCTL_ASSIGN_OR_RETURN(const int64_t size_bytes, CheckInputFile(path));
      total_bytes += size_bytes;
    }
  }
  const std::string folder = std::filesystem::path(options.prefix).parent_path().string();
  if (!folder.empty()) TRAINCTL_RETURN_IF_ERROR(MakeDirs(folder));
  // Whether a file may be replaced is asked once it is known how far an earlier preparation came.
  TRAINCTL_RETURN_IF_ERROR(CheckOutputs(options, /*overwrite=*/true));
  return Job(options, std::move(kinds), total_bytes).Run();
}

bool CanGoOn(const std::string& prefix) { return PathExists(StatePath(prefix)); }

std::string DatasetJson(const PreparedDataset& dataset) {
  Json sources = Json::array();
  for (const PreparedSource& source : dataset.sources) {
    Json entry = FileJson(source.file);
    entry["documents"] = source.documents;
    entry["tokens"] = source.tokens;
    entry["lines_left_out"] = source.lines_left_out;
    sources.push_back(std::move(entry));
  }
  const bool has_file = !dataset.tokenizer_file.path.empty();
  const Json report = {
      {"schema", "trainctl.dataset.v1"},
      {"prefix", dataset.prefix},
      {"tokenizer", dataset.tokenizer},
      {"tokenizer_file", has_file ? FileJson(dataset.tokenizer_file) : Json(nullptr)},
      {"vocab", dataset.vocab},
      {"dtype", std::string(TokenTypeName(dataset.token_type))},
      {"documents", dataset.documents},
      {"tokens", dataset.tokens},
      {"data", FileJson(dataset.data)},
      {"index", FileJson(dataset.index)},
      {"sources", std::move(sources)},
  };
  return FormatJson(report, 2);
}

}  // namespace trainctl::data
