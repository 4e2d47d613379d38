#include "data/prepare.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/json.h"
#include "base/status.h"
#include "data/data_file.h"
#include "data/document_store.h"
#include "data/document_text.h"
#include "data/fingerprint.h"
#include "data/indexed_writer.h"
#include "data/jsonl_reader.h"
#include "data/parallel_encoder.h"
#include "data/unpacked_file.h"

namespace trainctl::data {
namespace {

class Preparation {
 public:
  // `tokenizer` is null for bytes.
  Preparation(const PrepareOptions& options, const tokenizer::Tokenizer* tokenizer, IndexedWriter& writer,
              int64_t total_bytes)
      : options_(options), writer_(writer), total_bytes_(total_bytes) {
    if (tokenizer == nullptr) return;
    const int num_cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    encoder_.emplace(*tokenizer, options.end_of_document ? tokenizer->end_of_document_id() : -1,
                     options.num_threads > 0 ? options.num_threads : num_cores,
                     [this](absl::Span<const int32_t> tokens) { return Take(tokens); });
  }

  absl::Status Add(const std::string& path, SourceKind kind) {
    const int64_t documents_before = writer_.num_documents();
    const int64_t tokens_before = writer_.num_tokens();
    const size_t index = sources_.size();
    sources_.emplace_back();
    absl::StatusOr<FileFingerprint> file = kind == SourceKind::kText ? AddText(path) : AddJsonl(path);
    TRAINCTL_RETURN_IF_ERROR(file.status());
    PreparedSource& source = sources_[index];
    source.file = *std::move(file);
    done_bytes_ += source.file.size_bytes;
    if (encoder_.has_value()) return absl::OkStatus();  // counted as they come out of it
    source.documents = writer_.num_documents() - documents_before;
    source.tokens = writer_.num_tokens() - tokens_before;
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<PreparedSource>> Finish() {
    if (encoder_.has_value()) TRAINCTL_RETURN_IF_ERROR(NamingFile(encoder_->Finish()));
    return std::move(sources_);
  }

 private:
  absl::StatusOr<FileFingerprint> AddText(const std::string& path) {
    TRAINCTL_ASSIGN_OR_RETURN(UnpackedFile file, UnpackedFile::Open(path));
    const int64_t tokens_before = writer_.num_tokens();
    std::string text;  // a tokenizer reads a text as a whole
    while (true) {
      TRAINCTL_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> piece, file.Next());
      if (piece.empty()) break;
      if (encoder_.has_value()) {
        TRAINCTL_RETURN_IF_ERROR(CheckTextBytes(path, text.size() + piece.size()));
        text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      } else {
        TRAINCTL_RETURN_IF_ERROR(writer_.AppendBytes(piece));
      }
      Report(file.file());
    }
    if (encoder_.has_value()) {
      if (!text.empty()) TRAINCTL_RETURN_IF_ERROR(Encode(std::move(text)));
    } else if (writer_.num_tokens() > tokens_before) {
      TRAINCTL_RETURN_IF_ERROR(EndDocument());
    }
    return FileFingerprint{path, file.file().bytes_read(), file.file().xxh3()};
  }

  absl::StatusOr<FileFingerprint> AddJsonl(const std::string& path) {
    TRAINCTL_ASSIGN_OR_RETURN(JsonlReader reader, JsonlReader::Open(path, {options_.text_field, ""}));
    JsonlReader::Document document;
    while (true) {
      TRAINCTL_ASSIGN_OR_RETURN(const bool found, reader.Next(document));
      if (!found) break;
      if (document.text.empty()) continue;
      if (encoder_.has_value()) {
        TRAINCTL_RETURN_IF_ERROR(Encode(std::move(document.text)));
        Report(reader.file());
        continue;
      }
      TRAINCTL_RETURN_IF_ERROR(writer_.AppendBytes(
          absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(document.text.data()), document.text.size())));
      TRAINCTL_RETURN_IF_ERROR(EndDocument());
      Report(reader.file());
    }
    return FileFingerprint{path, reader.file().bytes_read(), reader.file().xxh3()};
  }

  absl::Status Encode(std::string text) {
    in_encoder_.push_back(sources_.size() - 1);
    return NamingFile(encoder_->Add(std::move(text)));
  }

  // The tokens of the document that has been in the encoder for longest.
  absl::Status Take(absl::Span<const int32_t> tokens) {
    if (!tokens.empty()) {
      TRAINCTL_RETURN_IF_ERROR(writer_.Append(tokens));
      writer_.EndDocument();
      PreparedSource& source = sources_[in_encoder_.front()];
      ++source.documents;
      source.tokens += static_cast<int64_t>(tokens.size());
    }
    in_encoder_.pop_front();
    return absl::OkStatus();
  }

  absl::Status NamingFile(const absl::Status& status) const {
    if (status.ok() || in_encoder_.empty()) return status;
    return Annotate(status, options_.inputs[in_encoder_.front()]);
  }

  absl::Status EndDocument() {
    if (options_.end_of_document) TRAINCTL_RETURN_IF_ERROR(writer_.Append({kEndOfDocument}));
    writer_.EndDocument();
    return absl::OkStatus();
  }

  void Report(const SequentialFile& file) const {
    if (options_.progress) options_.progress(done_bytes_ + file.bytes_read(), total_bytes_);
  }

  const PrepareOptions& options_;
  IndexedWriter& writer_;
  int64_t total_bytes_;
  int64_t done_bytes_ = 0;
  std::vector<PreparedSource> sources_;
  std::deque<size_t> in_encoder_;  // of each document there: its place in sources_
  std::optional<ParallelEncoder> encoder_;
};

absl::Status CheckOptions(const PrepareOptions& options) {
  if (options.inputs.empty()) return UsageError("no input files are given");
  if (options.prefix.empty() || options.prefix.back() == '/') {
    return UsageError(
        absl::StrCat("the output '", options.prefix, "' must be a file name without extension"));
  }
  if (options.overwrite) return absl::OkStatus();
  for (const char* suffix : {".bin", ".idx", ".json"}) {
    const std::string path = options.prefix + suffix;
    if (PathExists(path))
      return UsageError(absl::StrCat(path, " exists; choose another output, or replace it with --force"));
  }
  return absl::OkStatus();
}

absl::StatusOr<SourceKind> InputKind(const std::string& path, const std::string& kind_of_all) {
  recipe::DataSource source;
  source.kind = kind_of_all;
  TRAINCTL_ASSIGN_OR_RETURN(const SourceKind kind, KindOfFile(source, path));
  if (kind == SourceKind::kIndexed) {
    return UsageError(absl::StrCat(path, " is tokenized already; name it in a recipe as it is"));
  }
  return kind;
}

// Null for bytes. Says in `dataset` what its tokens are.
absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>> ChooseTokens(const PrepareOptions& options,
                                                                   PreparedDataset& dataset) {
  if (options.tokenizer == "byte") {
    dataset.token_type = options.end_of_document ? TokenType::kU16 : TokenType::kU8;
    dataset.vocab = options.end_of_document ? kEndOfDocument + 1 : kByteVocab;
    return nullptr;
  }
  TRAINCTL_ASSIGN_OR_RETURN(const std::string file, tokenizer::Tokenizer::FindFile(options.tokenizer));
  TRAINCTL_ASSIGN_OR_RETURN(auto tokenizer, tokenizer::Tokenizer::Load(file));
  TRAINCTL_ASSIGN_OR_RETURN(dataset.tokenizer_file, FingerprintFile(file));
  dataset.vocab = tokenizer->vocab_size();
  dataset.token_type = dataset.vocab <= int64_t{UINT16_MAX} + 1 ? TokenType::kU16 : TokenType::kI32;
  if (options.end_of_document && tokenizer->end_of_document_id() < 0) {
    return UsageError(
        absl::StrCat("tokenizer '", options.tokenizer,
                     "' has no special token that is known to end a text (\"</s>\", \"<|endoftext|>\", "
                     "...); prepare without an end of document"));
  }
  return tokenizer;
}

// With --force too.
absl::Status CheckOutputsAreNoInputs(const PrepareOptions& options) {
  std::vector<std::string> read = options.inputs;
  if (options.tokenizer != "byte") {
    TRAINCTL_ASSIGN_OR_RETURN(std::string file, tokenizer::Tokenizer::FindFile(options.tokenizer));
    read.push_back(std::move(file));
  }
  for (const char* suffix : {".bin", ".idx", ".json"}) {
    TRAINCTL_RETURN_IF_ERROR(CheckIsNotRead(options.prefix + suffix, read));
  }
  return absl::OkStatus();
}

Json FingerprintJson(const FileFingerprint& file) {
  return Json{{"path", file.path}, {"bytes", file.size_bytes}, {"xxh3", absl::StrFormat("%016x", file.xxh3)}};
}

}  // namespace

absl::StatusOr<PreparedDataset> Prepare(const PrepareOptions& options) {
  TRAINCTL_RETURN_IF_ERROR(CheckOptions(options));
  std::vector<SourceKind> kinds;
  int64_t total_bytes = 0;
  for (const std::string& path : options.inputs) {
    TRAINCTL_ASSIGN_OR_RETURN(const SourceKind kind, InputKind(path, options.kind));
    TRAINCTL_ASSIGN_OR_RETURN(const int64_t size_bytes, CheckDataFile(path));
    kinds.push_back(kind);
    total_bytes += size_bytes;
  }
  TRAINCTL_RETURN_IF_ERROR(CheckOutputsAreNoInputs(options));
  const std::string folder = std::filesystem::path(options.prefix).parent_path().string();
  if (!folder.empty()) TRAINCTL_RETURN_IF_ERROR(MakeDirs(folder));

  PreparedDataset dataset;
  dataset.prefix = options.prefix;
  dataset.tokenizer = options.tokenizer;
  TRAINCTL_ASSIGN_OR_RETURN(const auto tokenizer, ChooseTokens(options, dataset));
  TRAINCTL_ASSIGN_OR_RETURN(const std::unique_ptr<IndexedWriter> writer,
                            IndexedWriter::Create(options.prefix, dataset.token_type));
  Preparation preparation(options, tokenizer.get(), *writer, total_bytes);
  for (size_t i = 0; i < options.inputs.size(); ++i) {
    TRAINCTL_RETURN_IF_ERROR(preparation.Add(options.inputs[i], kinds[i]));
  }
  TRAINCTL_ASSIGN_OR_RETURN(dataset.sources, preparation.Finish());
  dataset.documents = writer->num_documents();
  dataset.tokens = writer->num_tokens();
  if (dataset.tokens == 0) {
    return BadDataError(absl::StrCat("the ", options.inputs.size(), " input files (", options.inputs.front(),
                                     options.inputs.size() > 1 ? ", ..." : "", ") hold no text"));
  }
  TRAINCTL_RETURN_IF_ERROR(writer->Finish());
  TRAINCTL_ASSIGN_OR_RETURN(dataset.data, FingerprintFile(options.prefix + ".bin"));
  TRAINCTL_ASSIGN_OR_RETURN(dataset.index, FingerprintFile(options.prefix + ".idx"));
  TRAINCTL_RETURN_IF_ERROR(WriteFileAtomic(options.prefix + ".json", DatasetJson(dataset) + "\n"));
  return dataset;
}

std::string DatasetJson(const PreparedDataset& dataset) {
  Json sources = Json::array();
  for (const PreparedSource& source : dataset.sources) {
    Json entry = FingerprintJson(source.file);
    entry["documents"] = source.documents;
    entry["tokens"] = source.tokens;
    sources.push_back(std::move(entry));
  }
  const bool has_file = !dataset.tokenizer_file.path.empty();
  const Json report = {
      {"schema", "trainctl.dataset.v1"},
      {"prefix", dataset.prefix},
      {"tokenizer", dataset.tokenizer},
      {"tokenizer_file", has_file ? FingerprintJson(dataset.tokenizer_file) : Json(nullptr)},
      {"vocab", dataset.vocab},
      {"dtype", std::string(TokenTypeName(dataset.token_type))},
      {"documents", dataset.documents},
      {"tokens", dataset.tokens},
      {"data", FingerprintJson(dataset.data)},
      {"index", FingerprintJson(dataset.index)},
      {"sources", std::move(sources)},
  };
  return report.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace trainctl::data
