// The documents of one source, from files of any kind, as rows of tokens numbered from 0 to num_documents() -
// 1. Immutable after opening; thread-safe.
//
// With the byte tokenizer, each token is the value of a byte. If the model's vocabulary is larger than 256,
// token 256 ends each non-empty document of text, JSONL, or Parquet. The tokens of indexed datasets are used
// unchanged.
//
// Any other tokenizer adds its prefix and suffix to each text and ends each non-empty document with its
// end-of-document token, if it has one. A token that the text already contains in that position is not added
// again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/row_reader.h"
#include "data/source_kind.h"
#include "recipe/recipe.h"
#include "tokenizer/tokenizer.h"

namespace trainctl::data {

class KeptDocuments;

inline constexpr int64_t kByteVocab = 256;
inline constexpr int32_t kEndOfDocument = 256;

class DocumentStore {
 public:
  virtual ~DocumentStore() = default;
  virtual int64_t num_documents() const = 0;
  virtual int64_t DocumentTokens(int64_t document) const = 0;

  // Reads the tokens [first, first + count) of a document; the range must be within the document. Sets
  // `learn` to 1 for tokens that may be targets and to 0 for tokens of a prompt. Returns BadDataError if a
  // file has changed or a token is outside the vocabulary.
  virtual absl::Status Read(int64_t document, int64_t first, int64_t count, int32_t* tokens,
                            uint8_t* learn) const = 0;

  // Returns BadDataError if a mapped file's size has changed since it was opened. Call this before Read and
  // DocumentTokens. docs/guide/data.md describes what can still go wrong in between.
  virtual absl::Status CheckUnchanged() const { return absl::OkStatus(); }
};

// The number of documents that were tokenized, and how many of them have the properties in AppendedDocument.
struct TokenizedCounts {
  int64_t documents = 0;
  int64_t own_starts = 0;  // texts that begin with the tokenizer's prefix
  int64_t repeated_starts =
      0;  // documents that repeat the prefix's last token, such as <s>, at the beginning
  int64_t changed_prompts = 0;  // documents whose prompt has different tokens without the text
  void Add(const TokenizedCounts& more) {
    documents += more.documents;
    own_starts += more.own_starts;
    repeated_starts += more.repeated_starts;
    changed_prompts += more.changed_prompts;
  }
};

// Returns the prefix of an indexed dataset, given either of its files or the prefix itself.
std::string IndexedPrefix(const std::string& file);

struct HowToRead {
  const tokenizer::Tokenizer* tokenizer = nullptr;  // null if tokens are bytes; not used after opening
  std::string tokenizer_file;                       // file that contains `tokenizer`
  KeptDocuments* kept = nullptr;                    // if set, used instead of reading files
  BytesReadFn bytes_read;
  TokenizedCounts* counts = nullptr;  // see OpenTokenizedDocuments; does not cover kept documents
  bool skip_bad_lines = false;        // whether data.on_bad_line is "skip"
  // Receives the lines that were left out, except those of kept documents.
  LeftOutLines* left_out = nullptr;
  bool check_tokens = false;  // whether to check the tokens of indexed datasets on opening
};

// Opens all files of a source in the given order. An indexed dataset counts only once, even if both of its
// files are listed. Returns UsageError if the kind is unknown. Errors in a file are BadDataError or
// EnvironmentError and name the file.
absl::StatusOr<std::shared_ptr<const DocumentStore>> OpenDocuments(const recipe::DataSource& source,
                                                                   int64_t vocab, const HowToRead& how = {});

// Returns the total size of the files that OpenDocuments reads in full, or 0 if it cannot be determined.
int64_t BytesReadAtOpening(const recipe::DataSource& source, bool has_tokenizer);

// Opens text files, one document per file, which are read on demand. Supports any number of files, because
// only their names are kept in memory. Returns UsageError if a file is compressed, because it cannot be read
// from the middle.
absl::StatusOr<std::unique_ptr<DocumentStore>> OpenTextDocuments(std::vector<std::string> files,
                                                                 bool end_of_document);

// Opens JSONL or Parquet files with one document per row, which are decoded into memory. A bad line causes
// BadDataError (see RowReader) or is left out and added to `left_out`.
absl::StatusOr<std::unique_ptr<DocumentStore>> OpenRowDocuments(const std::vector<std::string>& files,
                                                                SourceKind kind, const RowOptions& options,
                                                                bool end_of_document,
                                                                const BytesReadFn& bytes_read = {},
                                                                LeftOutLines* left_out = nullptr);

// Opens text files (one document each) or the rows of JSONL or Parquet files and tokenizes them into memory.
// Adds to `counts`.
absl::StatusOr<std::unique_ptr<DocumentStore>> OpenTokenizedDocuments(
    const std::vector<std::string>& files, SourceKind kind, const RowOptions& options,
    const tokenizer::Tokenizer& tokenizer, const BytesReadFn& bytes_read = {},
    TokenizedCounts* counts = nullptr, LeftOutLines* left_out = nullptr);

// Opens an indexed dataset. If `check_tokens` is true, scans the data once to check that all tokens are below
// `vocab`. Otherwise, Read reports any that are not.
absl::StatusOr<std::unique_ptr<DocumentStore>> OpenIndexedDocuments(const std::string& prefix, int64_t vocab,
                                                                    bool check_tokens = false,
                                                                    const BytesReadFn& bytes_read = {});

// Concatenates several stores into one.
std::shared_ptr<const DocumentStore> Concatenate(std::vector<std::shared_ptr<const DocumentStore>> stores);

}  // namespace trainctl::data
