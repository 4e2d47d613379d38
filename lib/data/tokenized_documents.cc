#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/document_store.h"
#include "data/document_text.h"
#include "data/row_reader.h"

namespace trainctl::data {
namespace {

// A copy of all tokens: how many a document has is known only when it is tokenized.
class TokenizedDocuments : public DocumentStore {
 public:
  // `tokenizer` is used while documents are added, not later.
  absl::Status AddText(const std::string& path, const tokenizer::Tokenizer& tokenizer,
                       const BytesReadFn& bytes_read) {
    TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
    const absl::Status status = Annotate(Add("", text, tokenizer), path);
    std::error_code unknown;
    const auto size = std::filesystem::file_size(path, unknown);
    if (bytes_read && !unknown) bytes_read(static_cast<int64_t>(size));
    return status;
  }

  absl::Status AddRows(const std::string& path, SourceKind kind, const RowOptions& options,
                       const tokenizer::Tokenizer& tokenizer, const BytesReadFn& bytes_read) {
    TRAINCTL_ASSIGN_OR_RETURN(const auto reader, RowReader::Open(path, kind, options, bytes_read));
    RowReader::Document document;
    while (true) {
      TRAINCTL_ASSIGN_OR_RETURN(const bool found, reader->Next(document));
      if (!found) break;
      TRAINCTL_RETURN_IF_ERROR(Annotate(Add(document.prompt, document.text, tokenizer), path));
    }
    left_out_.Add(reader->left_out());
    return absl::OkStatus();
  }

  const TokenizedCounts& counts() const { return counts_; }
  const LeftOutLines& left_out() const { return left_out_; }

  int64_t num_documents() const override { return static_cast<int64_t>(documents_.size()); }

  int64_t DocumentTokens(int64_t document) const override {
    return End(document) - documents_[static_cast<size_t>(document)].first_token;
  }

  absl::Status Read(int64_t document, int64_t first, int64_t count, int32_t* tokens,
                    uint8_t* learn) const override {
    const Document& entry = documents_[static_cast<size_t>(document)];
    std::copy_n(tokens_.begin() + entry.first_token + first, count, tokens);
    for (int64_t i = 0; i < count; ++i) learn[i] = first + i >= entry.prompt_tokens ? 1 : 0;
    return absl::OkStatus();
  }

 private:
  struct Document {
    int64_t first_token;
    int64_t prompt_tokens;
  };

  absl::Status Add(const std::string& prompt, const std::string& text,
                   const tokenizer::Tokenizer& tokenizer) {
    Document document{static_cast<int64_t>(tokens_.size()), 0};
    if (!prompt.empty() || !text.empty()) {
      TRAINCTL_ASSIGN_OR_RETURN(
          const AppendedDocument appended,
          AppendDocument(tokenizer, tokenizer.end_of_document_id(), prompt, text, &tokens_));
      document.prompt_tokens = appended.prompt_tokens;
      counts_.own_starts += appended.has_own_start ? 1 : 0;
      counts_.repeated_starts += appended.repeats_start ? 1 : 0;
      counts_.changed_prompts += appended.changes_prompt ? 1 : 0;
    }
    documents_.push_back(document);
    ++counts_.documents;
    return absl::OkStatus();
  }

  int64_t End(int64_t document) const {
    const size_t next = static_cast<size_t>(document) + 1;
    return next < documents_.size() ? documents_[next].first_token : static_cast<int64_t>(tokens_.size());
  }

  std::vector<int32_t> tokens_;
  std::vector<Document> documents_;
  TokenizedCounts counts_;
  LeftOutLines left_out_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DocumentStore>> OpenTokenizedDocuments(
    const std::vector<std::string>& files, SourceKind kind, const RowOptions& options,
    const tokenizer::Tokenizer& tokenizer, const BytesReadFn& bytes_read, TokenizedCounts* counts,
    LeftOutLines* left_out) {
  auto store = std::make_unique<TokenizedDocuments>();
  for (const std::string& file : files) {
    TRAINCTL_RETURN_IF_ERROR(kind == SourceKind::kText
                                 ? store->AddText(file, tokenizer, bytes_read)
                                 : store->AddRows(file, kind, options, tokenizer, bytes_read));
  }
  if (counts != nullptr) counts->Add(store->counts());
  if (left_out != nullptr) left_out->Add(store->left_out());
  return store;
}

}  // namespace trainctl::data
