#include <string>
#include <vector>

#include "base/status.h"
#include "data/document_store.h"
#include "data/row_reader.h"

namespace trainctl::data {
namespace {

class RowDocuments : public DocumentStore {
 public:
  explicit RowDocuments(bool end_of_document) : end_of_document_(end_of_document) {}

  // Decodes every row of a file. The decoded bytes are a copy: the file is not read again.
  absl::Status Add(const std::string& path, SourceKind kind, const RowOptions& options,
                   const BytesReadFn& bytes_read) {
    TRAINCTL_ASSIGN_OR_RETURN(const auto reader, RowReader::Open(path, kind, options, bytes_read));
    RowReader::Document document;
    while (true) {
      TRAINCTL_ASSIGN_OR_RETURN(const bool found, reader->Next(document));
      if (!found) break;
      documents_.push_back(
          {static_cast<int64_t>(bytes_.size()), static_cast<int64_t>(document.prompt.size())});
      bytes_ += document.prompt;
      bytes_ += document.text;
    }
    left_out_.Add(reader->left_out());
    return absl::OkStatus();
  }

  const LeftOutLines& left_out() const { return left_out_; }

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

  bool end_of_document_;
  std::string bytes_;
  std::vector<Document> documents_;
  LeftOutLines left_out_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DocumentStore>> OpenRowDocuments(const std::vector<std::string>& files,
                                                                SourceKind kind, const RowOptions& options,
                                                                bool end_of_document,
                                                                const BytesReadFn& bytes_read,
                                                                LeftOutLines* left_out) {
  auto store = std::make_unique<RowDocuments>(end_of_document);
  for (const std::string& file : files) {
    TRAINCTL_RETURN_IF_ERROR(store->Add(file, kind, options, bytes_read));
  }
  if (left_out != nullptr) left_out->Add(store->left_out());
  return store;
}

}  // namespace trainctl::data
