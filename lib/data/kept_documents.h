// Stores documents that are slow to read (JSONL, Parquet, and compressed or tokenized files) in the run
// folder. The launcher reads them once before it starts workers, and the workers of every attempt map the
// stored copy. Each group of files is stored as an indexed dataset (indexed_writer.h), PREFIX.prompts if
// there are prompts, and PREFIX.json. PREFIX.json is written last; it describes the files and contains a
// checksum of each part. If anything does not match, the original files are simply read again. Not
// thread-safe.
//
//   KeptDocuments kept;                          // the launcher
//   TRAINCTL_RETURN_IF_ERROR(OpenData(recipe, {.kept = &kept}).status());
//   TRAINCTL_RETURN_IF_ERROR(kept.Write(folder));
//
//   KeptDocuments kept(folder);                  // a worker
//   TRAINCTL_ASSIGN_OR_RETURN(DataSets sets, OpenData(recipe, {.kept = &kept}));
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/document_store.h"

namespace trainctl::data {

// Files whose documents belong together, and everything that determines their tokens.
struct FileGroup {
  std::vector<std::string> files;
  SourceKind kind = SourceKind::kJsonl;
  RowOptions rows;             // used for JSONL and Parquet
  std::string tokenizer_file;  // empty if tokens are bytes
  int32_t end_id = -1;         // token that ends a document, if there is a tokenizer
  int64_t num_ids = 0;         // upper bound; all tokens are below it
};

// Documents, and statistics about reading them.
struct ReadDocuments {
  std::shared_ptr<const DocumentStore> documents;
  LeftOutLines left_out;   // bad lines
  TokenizedCounts counts;  // see OpenTokenizedDocuments
};

class KeptDocuments {
 public:
  // Groups of files smaller than this are not kept, because reading them again takes only a moment. Parquet
  // is always kept, so that only the launcher needs Arrow.
  static constexpr int64_t kMinBytes = int64_t{4} << 20;

  // `folder` is the folder passed to Write in this or another process. If it is empty, there are no kept
  // documents yet.
  explicit KeptDocuments(std::string folder = "", int64_t min_bytes = kMinBytes)
      : folder_(std::move(folder)), min_bytes_(min_bytes) {}

  // Returns the documents of `group` if they are kept in the folder or were read earlier by this object,
  // provided that the path, inode, size, and modification time of every file are unchanged. Otherwise returns
  // the result of `read`. The folder keeps only the documents, without the statistics.
  using ReadFn = std::function<absl::StatusOr<ReadDocuments>()>;
  absl::StatusOr<ReadDocuments> Get(const FileGroup& group, const ReadFn& read);

  // Returns the number of bytes that Write would add.
  int64_t BytesToWrite() const;

  // Stores the documents that Get has read and removes stored documents that Get was not asked for. Leaves no
  // incomplete data behind. Returns BadDataError if a file has changed since it was read.
  absl::Status Write(const std::string& folder);

 private:
  struct Reading {
    FileGroup group;
    std::string key;  // key computed before the files were read
    ReadDocuments read;
  };

  std::string folder_;
  int64_t min_bytes_;
  std::vector<std::string> used_names_;
  std::vector<Reading> readings_;
};

}  // namespace trainctl::data
