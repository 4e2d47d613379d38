#include "data/document_store.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/strip.h"
#include "base/status.h"
#include "data/indexed_dataset.h"
#include "data/kept_documents.h"

namespace trainctl::data {
namespace {

class IndexedDocuments : public DocumentStore {
 public:
  IndexedDocuments(IndexedDataset dataset, int64_t vocab) : dataset_(std::move(dataset)), vocab_(vocab) {}

  int64_t num_documents() const override { return dataset_.index().num_documents(); }
  int64_t DocumentTokens(int64_t document) const override {
    return dataset_.index().DocumentTokens(document);
  }
  absl::Status Read(int64_t document, int64_t first, int64_t count, int32_t* tokens,
                    uint8_t* learn) const override {
    std::fill_n(learn, count, uint8_t{1});
    return dataset_.Read(document, first, count, vocab_, tokens);
  }
  absl::Status CheckUnchanged() const override { return dataset_.CheckUnchanged(); }

 private:
  IndexedDataset dataset_;
  int64_t vocab_;
};

class ConcatenatedDocuments : public DocumentStore {
 public:
  explicit ConcatenatedDocuments(std::vector<std::shared_ptr<const DocumentStore>> stores)
      : stores_(std::move(stores)), first_document_{0} {
    for (const auto& store : stores_)
      first_document_.push_back(first_document_.back() + store->num_documents());
  }

  int64_t num_documents() const override { return first_document_.back(); }
  int64_t DocumentTokens(int64_t document) const override {
    const size_t store = StoreOf(document);
    return stores_[store]->DocumentTokens(document - first_document_[store]);
  }
  absl::Status Read(int64_t document, int64_t first, int64_t count, int32_t* tokens,
                    uint8_t* learn) const override {
    const size_t store = StoreOf(document);
    return stores_[store]->Read(document - first_document_[store], first, count, tokens, learn);
  }
  absl::Status CheckUnchanged() const override {
    for (const auto& store : stores_) TRAINCTL_RETURN_IF_ERROR(store->CheckUnchanged());
    return absl::OkStatus();
  }

 private:
  size_t StoreOf(int64_t document) const {
    const auto next = std::upper_bound(first_document_.begin(), first_document_.end(), document);
    return static_cast<size_t>(next - first_document_.begin()) - 1;
  }

  std::vector<std::shared_ptr<const DocumentStore>> stores_;
  std::vector<int64_t> first_document_;  // of each store, and behind the last
};

}  // namespace

std::string IndexedPrefix(const std::string& file) {
  absl::string_view prefix = file;
  if (!absl::ConsumeSuffix(&prefix, ".bin")) absl::ConsumeSuffix(&prefix, ".idx");
  return std::string(prefix);
}

absl::StatusOr<std::unique_ptr<DocumentStore>> OpenIndexedDocuments(const std::string& prefix, int64_t vocab,
                                                                    bool check_tokens,
                                                                    const BytesReadFn& bytes_read) {
  TRAINCTL_ASSIGN_OR_RETURN(IndexedDataset dataset, IndexedDataset::Open(prefix));
  if (check_tokens) TRAINCTL_RETURN_IF_ERROR(dataset.CheckTokens(vocab, bytes_read));
  return std::make_unique<IndexedDocuments>(std::move(dataset), vocab);
}

std::shared_ptr<const DocumentStore> Concatenate(std::vector<std::shared_ptr<const DocumentStore>> stores) {
  if (stores.size() == 1) return std::move(stores.front());
  return std::make_shared<ConcatenatedDocuments>(std::move(stores));
}

namespace {

// Tokens of this source are below.
int64_t NumIds(const tokenizer::Tokenizer* tokenizer, int64_t vocab) {
  if (tokenizer != nullptr) return tokenizer->vocab_size();
  return vocab > kByteVocab ? kEndOfDocument + 1 : kByteVocab;
}

absl::StatusOr<ReadDocuments> ReadGroup(const FileGroup& group, int64_t vocab, const HowToRead& how) {
  ReadDocuments read;
  if (how.tokenizer == nullptr) {
    TRAINCTL_ASSIGN_OR_RETURN(read.documents,
                              OpenRowDocuments(group.files, group.kind, group.rows, vocab > kByteVocab,
                                               how.bytes_read, &read.left_out));
  } else {
    TRAINCTL_ASSIGN_OR_RETURN(read.documents,
                              OpenTokenizedDocuments(group.files, group.kind, group.rows, *how.tokenizer,
                                                     how.bytes_read, &read.counts, &read.left_out));
  }
  return read;
}

}  // namespace

int64_t BytesReadAtOpening(const recipe::DataSource& source, bool has_tokenizer) {
  int64_t bytes = 0;
  for (const std::string& file : source.files) {
    const absl::StatusOr<SourceKind> kind = KindOfFile(source, file);
    if (!kind.ok() || *kind == SourceKind::kIndexed || (*kind == SourceKind::kText && !has_tokenizer))
      continue;
    std::error_code unknown;
    const auto size = std::filesystem::file_size(file, unknown);
    if (!unknown) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

absl::StatusOr<std::shared_ptr<const DocumentStore>> OpenDocuments(const recipe::DataSource& source,
                                                                   int64_t vocab, const HowToRead& how) {
  std::vector<std::shared_ptr<const DocumentStore>> stores;
  std::set<std::string> prefixes;
  size_t next = 0;
  while (next < source.files.size()) {
    TRAINCTL_ASSIGN_OR_RETURN(const SourceKind kind, KindOfFile(source, source.files[next]));
    if (kind != SourceKind::kIndexed && how.tokenizer == nullptr && vocab < kByteVocab) {
      return UsageError(absl::StrCat(
          source.files[next], ": the byte tokenizer needs model.vocab >= ", kByteVocab, ", not ", vocab));
    }
    if (!HasRows(kind) && !source.prompt_field.empty()) {
      return UsageError(absl::StrCat(source.files[next], ": prompt_field = '", source.prompt_field,
                                     "' applies only to JSONL and Parquet files"));
    }
    if (kind == SourceKind::kIndexed) {
      const std::string prefix = IndexedPrefix(source.files[next++]);
      if (!prefixes.insert(prefix).second) continue;
      TRAINCTL_ASSIGN_OR_RETURN(auto store,
                                OpenIndexedDocuments(prefix, vocab, how.check_tokens, how.bytes_read));
      stores.push_back(std::move(store));
      continue;
    }
    // A run of files of one kind is one store: a text source may have very many.
    std::vector<std::string> files;
    for (; next < source.files.size(); ++next) {
      TRAINCTL_ASSIGN_OR_RETURN(const SourceKind next_kind, KindOfFile(source, source.files[next]));
      if (next_kind != kind) break;
      files.push_back(source.files[next]);
    }
    FileGroup group = {.files = std::move(files),
                       .kind = kind,
                       .rows = {.text_field = source.text_field,
                                .prompt_field = source.prompt_field,
                                .skip_bad_lines = how.skip_bad_lines,
                                .skip_setting = "data.on_bad_line = \"skip\""},
                       .tokenizer_file = how.tokenizer_file,
                       .end_id = how.tokenizer == nullptr ? -1 : how.tokenizer->end_of_document_id(),
                       .num_ids = NumIds(how.tokenizer, vocab)};
    if (kind == SourceKind::kText && how.tokenizer == nullptr) {
      TRAINCTL_ASSIGN_OR_RETURN(auto store, OpenTextDocuments(std::move(group.files), vocab > kByteVocab));
      stores.push_back(std::move(store));
      continue;
    }
    const auto read = [&] { return ReadGroup(group, vocab, how); };
    TRAINCTL_ASSIGN_OR_RETURN(ReadDocuments found, how.kept != nullptr ? how.kept->Get(group, read) : read());
    if (how.counts != nullptr) how.counts->Add(found.counts);
    if (how.left_out != nullptr) how.left_out->Add(found.left_out);
    stores.push_back(std::move(found.documents));
  }
  return Concatenate(std::move(stores));
}

}  // namespace trainctl::data
