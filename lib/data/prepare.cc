#include "data/prepare.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/json.h"
#include "base/status.h"
#include "data/data_file.h"
#include "data/document_store.h"
#include "data/fingerprint.h"
#include "data/indexed_writer.h"
#include "data/jsonl_reader.h"
#include "data/unpacked_file.h"

namespace trainctl::data {
namespace {

class Preparation {
 public:
  Preparation(const PrepareOptions& options, IndexedWriter& writer, int64_t total_bytes)
      : options_(options), writer_(writer), total_bytes_(total_bytes) {}

  absl::StatusOr<PreparedSource> Add(const std::string& path, SourceKind kind) {
    const int64_t documents_before = writer_.num_documents();
    const int64_t tokens_before = writer_.num_tokens();
    PreparedSource source;
    TRAINCTL_ASSIGN_OR_RETURN(source.file, kind == SourceKind::kText ? AddText(path) : AddJsonl(path));
    source.documents = writer_.num_documents() - documents_before;
    source.tokens = writer_.num_tokens() - tokens_before;
    done_bytes_ += source.file.size_bytes;
    return source;
  }

 private:
  absl::StatusOr<FileFingerprint> AddText(const std::string& path) {
    TRAINCTL_ASSIGN_OR_RETURN(UnpackedFile file, UnpackedFile::Open(path));
    const int64_t tokens_before = writer_.num_tokens();
    while (true) {
      TRAINCTL_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> piece, file.Next());
      if (piece.empty()) break;
      TRAINCTL_RETURN_IF_ERROR(writer_.AppendBytes(piece));
      Report(file.file());
    }
    if (writer_.num_tokens() > tokens_before) TRAINCTL_RETURN_IF_ERROR(EndDocument());
    return FileFingerprint{path, file.file().bytes_read(), file.file().xxh3()};
  }

  absl::StatusOr<FileFingerprint> AddJsonl(const std::string& path) {
    TRAINCTL_ASSIGN_OR_RETURN(JsonlReader reader, JsonlReader::Open(path, {options_.text_field, ""}));
    JsonlReader::Document document;
    while (true) {
      TRAINCTL_ASSIGN_OR_RETURN(const bool found, reader.Next(document));
      if (!found) break;
      if (document.text.empty()) continue;
      TRAINCTL_RETURN_IF_ERROR(writer_.AppendBytes(
          absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(document.text.data()), document.text.size())));
      TRAINCTL_RETURN_IF_ERROR(EndDocument());
      Report(reader.file());
    }
    return FileFingerprint{path, reader.file().bytes_read(), reader.file().xxh3()};
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
};

absl::Status CheckOptions(const PrepareOptions& options) {
  if (options.tokenizer != "byte") {
    return UsageError(absl::StrCat("tokenizer '", options.tokenizer, "' is not known; \"byte\" is"));
  }
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
  const std::string folder = std::filesystem::path(options.prefix).parent_path().string();
  if (!folder.empty()) TRAINCTL_RETURN_IF_ERROR(MakeDirs(folder));

  PreparedDataset dataset;
  dataset.prefix = options.prefix;
  dataset.tokenizer = options.tokenizer;
  dataset.token_type = options.end_of_document ? TokenType::kU16 : TokenType::kU8;
  dataset.vocab = options.end_of_document ? kEndOfDocument + 1 : kByteVocab;
  TRAINCTL_ASSIGN_OR_RETURN(const std::unique_ptr<IndexedWriter> writer,
                            IndexedWriter::Create(options.prefix, dataset.token_type));
  Preparation preparation(options, *writer, total_bytes);
  for (size_t i = 0; i < options.inputs.size(); ++i) {
    TRAINCTL_ASSIGN_OR_RETURN(PreparedSource source, preparation.Add(options.inputs[i], kinds[i]));
    dataset.sources.push_back(std::move(source));
  }
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
  const Json report = {
      {"schema", "trainctl.dataset.v1"},
      {"prefix", dataset.prefix},
      {"tokenizer", dataset.tokenizer},
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
