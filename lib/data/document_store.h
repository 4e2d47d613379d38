// Documents of one source, whatever files they come from: numbered 0..num_documents() - 1, each a row of
// tokens. Immutable after opening; thread safe.
//
// The byte tokenizer: a token is a byte's value. When the model's vocabulary is above 256, token 256 ends
// each text or JSONL document that is not empty; indexed datasets hold their tokens as they are.
//
// Any other tokenizer: what it puts before and behind each text is there, and its end-of-document token, if
// it has one, ends each document that is not empty; each of these once, even if the text has it too.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/jsonl_reader.h"
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

  // Tokens [first, first + count) of a document, which must lie within it. `learn` is 1 where a token may be
  // a target, 0 within a prompt. BadDataError when a file changed or a token is not in the vocabulary.
  virtual absl::Status Read(int64_t document, int64_t first, int64_t count, int32_t* tokens,
                            uint8_t* learn) const = 0;

  // BadDataError when a mapped file no longer has the size it was opened with. Call before Read and
  // DocumentTokens; what can still happen between the two is in docs/guide/data.md.
  virtual absl::Status CheckUnchanged() const { return absl::OkStatus(); }
};

enum class SourceKind { kIndexed, kJsonl, kText };

// The kind of one file: as the source says, or by its name for "auto" (.bin .idx indexed; .jsonl .ndjson
// JSONL; archives and tabular files are an error; anything else text; a last .gz or .zst is passed over).
absl::StatusOr<SourceKind> KindOfFile(const recipe::DataSource& source, const std::string& file);

// The prefix of an indexed dataset from the name of either of its files, or a prefix.
std::string IndexedPrefix(const std::string& file);

struct HowToRead {
  const tokenizer::Tokenizer* tokenizer = nullptr;  // none: tokens are bytes. Not needed afterwards
  std::string tokenizer_file;                       // with a tokenizer: what it was loaded from
  KeptDocuments* kept = nullptr;                    // asked first
  BytesReadFn bytes_read;
  int64_t* own_starts = nullptr;     // see OpenTokenizedDocuments; not of what was kept
  bool skip_bad_lines = false;       // data.on_bad_line = "skip"
  LeftOutLines* left_out = nullptr;  // grows by the lines left out, except from kept documents
  bool check_tokens = false;         // of indexed datasets, before they are used
};

// Opens all files of a source, in the order given. An indexed dataset named by both of its files counts once.
// UsageError for an unknown kind; BadDataError and EnvironmentError name the file.
absl::StatusOr<std::shared_ptr<const DocumentStore>> OpenDocuments(const recipe::DataSource& source,
                                                                   int64_t vocab, const HowToRead& how = {});

// Bytes of its files that OpenDocuments reads whole; 0 where it cannot tell.
int64_t BytesReadAtOpening(const recipe::DataSource& source, bool has_tokenizer);

// One document per file, read when needed: any number of files, no memory but their names. UsageError for a
// packed one, which cannot be read from the middle.
absl::StatusOr<std::unique_ptr<DocumentStore>> OpenTextDocuments(std::vector<std::string> files,
                                                                 bool end_of_document);

// One document per line, unpacked and decoded into memory at opening. Each bad line is BadDataError
// "file:line:column", or left out and added to `left_out`.
absl::StatusOr<std::unique_ptr<DocumentStore>> OpenJsonlDocuments(const std::vector<std::string>& files,
                                                                  const JsonlOptions& options,
                                                                  bool end_of_document,
                                                                  const BytesReadFn& bytes_read = {},
                                                                  LeftOutLines* left_out = nullptr);

// Text files (a document each) or JSONL, tokenized into memory at opening. Adds to `own_starts` how many of
// the texts begin with what the tokenizer puts before a text (AppendDocument).
absl::StatusOr<std::unique_ptr<DocumentStore>> OpenTokenizedDocuments(
    const std::vector<std::string>& files, SourceKind kind, const JsonlOptions& options,
    const tokenizer::Tokenizer& tokenizer, const BytesReadFn& bytes_read = {}, int64_t* own_starts = nullptr,
    LeftOutLines* left_out = nullptr);

// `check_tokens`: whether all are below `vocab`, which takes one pass over the data; else Read tells.
absl::StatusOr<std::unique_ptr<DocumentStore>> OpenIndexedDocuments(const std::string& prefix, int64_t vocab,
                                                                    bool check_tokens = false,
                                                                    const BytesReadFn& bytes_read = {});

// One store after the other, as one.
std::shared_ptr<const DocumentStore> Concatenate(std::vector<std::shared_ptr<const DocumentStore>> stores);

}  // namespace trainctl::data
