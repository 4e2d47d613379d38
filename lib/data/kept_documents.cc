#include "data/kept_documents.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/folder_entries.h"
#include "base/json.h"
#include "base/status.h"
#include "data/data_file.h"
#include "data/file_stamps.h"
#include "data/fingerprint.h"
#include "data/indexed_writer.h"

namespace trainctl::data {
namespace {

constexpr const char* kSchema = "trainctl.kept_documents.v1";
constexpr int64_t kMaxReportBytes = int64_t{256} << 20;
constexpr int64_t kTokensAtOnce = int64_t{1} << 16;

const char* const kParts[] = {".bin", ".idx", ".prompts"};

absl::StatusOr<Json> StampJson(const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(const FileStamp stamp, StampFile(path));
  return Json{{"path", path},
              {"inode", stamp.inode},
              {"bytes", stamp.size_bytes},
              {"modified_ns", stamp.modified_ns}};
}

// Equal where the documents are. Not the device, by which two nodes know one disk under two numbers.
absl::StatusOr<std::string> KeyOf(const FileGroup& group) {
  Json key = {{"kind", std::string(KindName(group.kind))},
              {"text_field", group.rows.text_field},
              {"prompt_field", group.rows.prompt_field},
              {"on_bad_line", group.rows.skip_bad_lines ? "skip" : "stop"},
              {"ids", group.num_ids},
              {"files", Json::array()}};
  if (!group.tokenizer_file.empty()) {
    TRAINCTL_ASSIGN_OR_RETURN(key["tokenizer"], StampJson(group.tokenizer_file));
    key["end_id"] = group.end_id;
  }
  for (const std::string& file : group.files) {
    TRAINCTL_ASSIGN_OR_RETURN(Json stamp, StampJson(file));
    key["files"].push_back(std::move(stamp));
  }
  return FormatJson(key);
}

std::string NameOf(const std::string& key) {
  return absl::StrFormat("%016x", XXH3_64bits(key.data(), key.size()));
}

int64_t TotalBytes(const FileGroup& group) {
  int64_t bytes = 0;
  for (const std::string& file : group.files) bytes += FileBytes(file).value_or(0);
  return bytes;
}

TokenType TypeFor(int64_t num_ids) {
  if (num_ids <= int64_t{UINT8_MAX} + 1) return TokenType::kU8;
  return num_ids <= int64_t{UINT16_MAX} + 1 ? TokenType::kU16 : TokenType::kI32;
}

absl::StatusOr<Json> PartJson(const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(const FileFingerprint part, FingerprintFile(path));
  return Json{{"bytes", part.size_bytes}, {"xxh3", absl::StrFormat("%016x", part.xxh3)}};
}

// An indexed dataset whose documents begin with prompts: int64 tokens of each, behind one another.
class WithPrompts : public DocumentStore {
 public:
  WithPrompts(std::unique_ptr<DocumentStore> documents, MappedFile prompts)
      : documents_(std::move(documents)), prompts_(std::move(prompts)) {}

  int64_t num_documents() const override { return documents_->num_documents(); }
  int64_t DocumentTokens(int64_t document) const override { return documents_->DocumentTokens(document); }
  absl::Status Read(int64_t document, int64_t first, int64_t count, int32_t* tokens,
                    uint8_t* learn) const override {
    TRAINCTL_RETURN_IF_ERROR(documents_->Read(document, first, count, tokens, learn));
    int64_t prompt_tokens = 0;
    std::memcpy(&prompt_tokens, prompts_.bytes().data() + document * int64_t{sizeof(prompt_tokens)},
                sizeof(prompt_tokens));
    for (int64_t i = 0; i < count; ++i) learn[i] = first + i >= prompt_tokens ? 1 : 0;
    return absl::OkStatus();
  }
  absl::Status CheckUnchanged() const override {
    TRAINCTL_RETURN_IF_ERROR(documents_->CheckUnchanged());
    const auto opened_bytes = static_cast<int64_t>(prompts_.bytes().size());
    TRAINCTL_ASSIGN_OR_RETURN(const int64_t now_bytes, prompts_.CurrentBytes());
    if (now_bytes == opened_bytes) return absl::OkStatus();
    return FileChangedError(prompts_.path(), opened_bytes, now_bytes);
  }

 private:
  std::unique_ptr<DocumentStore> documents_;
  MappedFile prompts_;
};

// Whether `prefix` holds what belongs to `key`, every byte as it was written.
bool IsWhole(const std::string& prefix, const std::string& key) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(prefix + ".json", ignored)) return false;
  const absl::StatusOr<std::string> text = ReadFile(prefix + ".json", kMaxReportBytes);
  if (!text.ok()) return false;
  const absl::StatusOr<Json> report = ParseJson(*text, prefix);
  if (!report.ok() || !report->is_object() || report->value("schema", Json()) != Json(kSchema)) return false;
  if (FormatJson(report->value("key", Json())) != key) return false;
  for (const char* suffix : kParts) {
    const Json said = report->value(suffix, Json());
    if (said.is_null()) continue;
    const absl::StatusOr<Json> found = PartJson(prefix + suffix);
    if (!found.ok() || *found != said) return false;
  }
  return true;
}

absl::StatusOr<std::shared_ptr<const DocumentStore>> OpenKept(const std::string& prefix, int64_t num_ids) {
  TRAINCTL_ASSIGN_OR_RETURN(std::unique_ptr<DocumentStore> documents, OpenIndexedDocuments(prefix, num_ids));
  if (!PathExists(prefix + ".prompts")) return documents;
  TRAINCTL_ASSIGN_OR_RETURN(MappedFile prompts, MappedFile::Open(prefix + ".prompts"));
  if (prompts.bytes().size() != static_cast<size_t>(documents->num_documents()) * sizeof(int64_t)) {
    return BadDataError(absl::StrCat(prompts.path(), " does not have as many documents as ", prefix, ".idx"));
  }
  return std::make_shared<WithPrompts>(std::move(documents), std::move(prompts));
}

// Appends the document to `writer`; returns how many of its tokens are the prompt.
absl::StatusOr<int64_t> Copy(const DocumentStore& documents, int64_t document, IndexedWriter& writer) {
  const int64_t total = documents.DocumentTokens(document);
  std::vector<int32_t> tokens(static_cast<size_t>(std::min(total, kTokensAtOnce)));
  std::vector<uint8_t> learn(tokens.size());
  int64_t prompt_tokens = 0;
  for (int64_t first = 0; first < total; first += kTokensAtOnce) {
    const int64_t count = std::min(total - first, kTokensAtOnce);
    TRAINCTL_RETURN_IF_ERROR(documents.Read(document, first, count, tokens.data(), learn.data()));
    TRAINCTL_RETURN_IF_ERROR(writer.Append(absl::MakeSpan(tokens).first(static_cast<size_t>(count))));
    prompt_tokens += std::count(learn.begin(), learn.begin() + count, uint8_t{0});
  }
  writer.EndDocument();
  return prompt_tokens;
}

absl::Status WriteKept(const std::string& prefix, const std::string& key, const DocumentStore& documents,
                       int64_t num_ids) {
  TRAINCTL_RETURN_IF_ERROR(RemoveAll(prefix + ".json"));  // of parts that are about to go
  TRAINCTL_RETURN_IF_ERROR(RemoveAll(prefix + ".prompts"));
  TRAINCTL_ASSIGN_OR_RETURN(const auto writer, IndexedWriter::Create(prefix, TypeFor(num_ids)));
  std::vector<int64_t> prompts;
  bool has_prompts = false;
  for (int64_t i = 0; i < documents.num_documents(); ++i) {
    TRAINCTL_ASSIGN_OR_RETURN(prompts.emplace_back(), Copy(documents, i, *writer));
    has_prompts |= prompts.back() > 0;
  }
  TRAINCTL_RETURN_IF_ERROR(writer->Finish());
  if (has_prompts) {
    const absl::string_view bytes(reinterpret_cast<const char*>(prompts.data()),
                                  prompts.size() * sizeof(int64_t));
    TRAINCTL_RETURN_IF_ERROR(WriteFileAtomic(prefix + ".prompts", bytes));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const Json key_json, ParseJson(key, prefix));
  Json report = {{"schema", kSchema}, {"key", key_json}};
  for (const char* suffix : kParts) {
    if (!PathExists(prefix + suffix)) continue;
    TRAINCTL_ASSIGN_OR_RETURN(report[suffix], PartJson(prefix + suffix));
  }
  return WriteFileAtomic(prefix + ".json", FormatJson(report) + "\n");
}

}  // namespace

absl::StatusOr<ReadDocuments> KeptDocuments::Get(const FileGroup& group, const ReadFn& read) {
  if (group.kind != SourceKind::kParquet && TotalBytes(group) < min_bytes_) return read();
  const absl::StatusOr<std::string> key = KeyOf(group);
  if (!key.ok()) return read();  // which says better what is wrong
  for (const Reading& reading : readings_) {
    if (reading.key == *key) return reading.read;
  }
  const std::string prefix = absl::StrCat(folder_, "/", NameOf(*key));
  if (!folder_.empty() && IsWhole(prefix, *key)) {
    absl::StatusOr<std::shared_ptr<const DocumentStore>> kept = OpenKept(prefix, group.num_ids);
    if (kept.ok()) {
      used_names_.push_back(NameOf(*key));
      return ReadDocuments{.documents = *std::move(kept)};
    }
  }
  TRAINCTL_ASSIGN_OR_RETURN(ReadDocuments documents, read());
  readings_.push_back({group, *key, documents});
  return documents;
}

int64_t KeptDocuments::BytesToWrite() const {
  int64_t bytes = 0;
  for (const Reading& reading : readings_) {
    const DocumentStore& documents = *reading.read.documents;
    // Of a document: its place in the index, and its prompt.
    bytes += documents.num_documents() * int64_t{12 + 8 + 8};
    for (int64_t i = 0; i < documents.num_documents(); ++i) {
      bytes += documents.DocumentTokens(i) * TokenBytes(TypeFor(reading.group.num_ids));
    }
  }
  return bytes;
}

absl::Status KeptDocuments::Write(const std::string& folder) {
  TRAINCTL_RETURN_IF_ERROR(MakeDirs(folder));
  std::set<std::string> names(used_names_.begin(), used_names_.end());
  for (const std::string& entry : FolderEntries(folder)) {
    if (!names.contains(entry.substr(0, entry.find('.')))) {
      TRAINCTL_RETURN_IF_ERROR(RemoveAll(absl::StrCat(folder, "/", entry)));
    }
  }
  for (const Reading& reading : readings_) {
    if (!names.insert(NameOf(reading.key)).second) continue;
    absl::Status status = KeyOf(reading.group).status();
    if (status.ok() && *KeyOf(reading.group) != reading.key) {
      status = BadDataError(absl::StrCat(reading.group.files.front(),
                                         " or a file that is read together with it has ",
                                         "changed since it was read"));
    }
    const std::string prefix = absl::StrCat(folder, "/", NameOf(reading.key));
    if (status.ok()) status = WriteKept(prefix, reading.key, *reading.read.documents, reading.group.num_ids);
    if (!status.ok()) {
      TRAINCTL_RETURN_IF_ERROR(RemoveAll(folder));
      return status;
    }
  }
  readings_.clear();
  return absl::OkStatus();
}

}  // namespace trainctl::data
