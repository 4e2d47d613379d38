#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "base/files.h"
#include "base/json.h"
#include "base/status.h"
#include "data/data_file.h"
#include "data/document_store.h"

namespace trainctl::data {
namespace {

class JsonlDocuments : public DocumentStore {
 public:
  explicit JsonlDocuments(bool end_of_document) : end_of_document_(end_of_document) {}

  // Decodes every line of a file. The decoded bytes are a copy: the file is not read again.
  absl::Status Add(const std::string& path, const std::string& text_field, const std::string& prompt_field) {
    TRAINCTL_RETURN_IF_ERROR(CheckDataFile(path).status());
    TRAINCTL_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
    absl::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    for (int64_t line_number = 1; !rest.empty(); ++line_number) {
      const size_t end = rest.find('\n');
      const absl::string_view line = rest.substr(0, end);
      rest.remove_prefix(end == absl::string_view::npos ? rest.size() : end + 1);
      if (absl::StripAsciiWhitespace(line).empty()) continue;
      TRAINCTL_RETURN_IF_ERROR(AddLine(line, absl::StrCat(path, ":", line_number), text_field, prompt_field));
    }
    return absl::OkStatus();
  }

  int64_t num_documents() const override { return static_cast<int64_t>(documents_.size()); }

  int64_t DocumentTokens(int64_t document) const override {
    const int64_t bytes = End(document) - documents_[static_cast<size_t>(document)].first_byte;
    return bytes + (end_of_document_ && bytes > 0 ? 1 : 0);
  }

  absl::Status Read(int64_t document, int64_t first, int64_t count, int32_t* tokens,
                    uint8_t* learn) const override {
    const Document& entry = documents_[static_cast<size_t>(document)];
    const int64_t bytes = End(document) - entry.first_byte;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t position = first + i;
      tokens[i] = position < bytes
                      ? static_cast<uint8_t>(bytes_[static_cast<size_t>(entry.first_byte + position)])
                      : kEndOfDocument;
      learn[i] = position >= entry.prompt_bytes ? 1 : 0;
    }
    return absl::OkStatus();
  }

 private:
  struct Document {
    int64_t first_byte;
    int64_t prompt_bytes;
  };

  int64_t End(int64_t document) const {
    const size_t next = static_cast<size_t>(document) + 1;
    return next < documents_.size() ? documents_[next].first_byte : static_cast<int64_t>(bytes_.size());
  }

  absl::Status AddLine(absl::string_view line, const std::string& where, const std::string& text_field,
                       const std::string& prompt_field) {
    const absl::StatusOr<Json> parsed = ParseJson(line, "line");
    if (!parsed.ok()) {  // the parser counts within the line: "line:1:COLUMN: ..."
      absl::string_view message = parsed.status().message();
      if (!absl::ConsumePrefix(&message, "line:1:")) absl::ConsumePrefix(&message, "line: ");
      return BadDataError(absl::StrCat(where, ":", message));
    }
    if (!parsed->is_object()) return BadDataError(absl::StrCat(where, ": each line must be a JSON object"));
    Document document = {static_cast<int64_t>(bytes_.size()), 0};
    if (!prompt_field.empty()) {
      TRAINCTL_ASSIGN_OR_RETURN(const std::string prompt, JsonString(*parsed, prompt_field, where));
      document.prompt_bytes = static_cast<int64_t>(prompt.size());
      bytes_ += prompt;
    }
    TRAINCTL_ASSIGN_OR_RETURN(const std::string text, JsonString(*parsed, text_field, where));
    bytes_ += text;
    documents_.push_back(document);
    return absl::OkStatus();
  }

  bool end_of_document_;
  std::string bytes_;
  std::vector<Document> documents_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DocumentStore>> OpenJsonlDocuments(const std::vector<std::string>& files,
                                                                  const std::string& text_field,
                                                                  const std::string& prompt_field,
                                                                  bool end_of_document) {
  auto store = std::make_unique<JsonlDocuments>(end_of_document);
  for (const std::string& file : files) {
    TRAINCTL_RETURN_IF_ERROR(store->Add(file, text_field, prompt_field));
  }
  return store;
}

}  // namespace trainctl::data
