// Documents that take long to read (JSONL, packed and tokenized files), kept in the folder of a run: the
// launcher reads them once, before it starts workers; every worker of every attempt maps what it wrote. An
// indexed dataset (indexed_writer.h) for each group of files, PREFIX.prompts where there are prompts, and
// PREFIX.json, the last to be written: what the files were, and a checksum of each part. What does not agree
// is read again, without an error. Not thread safe.
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

// Files that become documents together, and all that decides which tokens those have.
struct FileGroup {
  std::vector<std::string> files;
  SourceKind kind = SourceKind::kJsonl;
  JsonlOptions jsonl;
  std::string tokenizer_file;  // empty: bytes
  int32_t end_id = -1;         // with a tokenizer: what ends a document
  int64_t num_ids = 0;         // tokens are below
};

class KeptDocuments {
 public:
  // Files of fewer bytes are read again wherever they are needed: it takes a moment.
  static constexpr int64_t kMinBytes = int64_t{4} << 20;

  // `folder`: what Write was called with, in this process or another; nothing is kept in an empty one.
  explicit KeptDocuments(std::string folder = "", int64_t min_bytes = kMinBytes)
      : folder_(std::move(folder)), min_bytes_(min_bytes) {}

  // The documents as they were kept, if every file is as it was then: same path, inode, size and time of last
  // change; else what `read` returns.
  using ReadFn = std::function<absl::StatusOr<std::shared_ptr<const DocumentStore>>()>;
  absl::StatusOr<std::shared_ptr<const DocumentStore>> Get(const FileGroup& group, const ReadFn& read);

  // What Write would add.
  int64_t BytesToWrite() const;

  // Keeps what Get has read, and removes what it was not asked for. Leaves no half of anything behind.
  // BadDataError where a file changed since it was read.
  absl::Status Write(const std::string& folder);

 private:
  struct Reading {
    FileGroup group;
    std::string key;  // of before it was read
    std::shared_ptr<const DocumentStore> documents;
  };

  std::string folder_;
  int64_t min_bytes_;
  std::vector<std::string> used_names_;
  std::vector<Reading> readings_;
};

}  // namespace trainctl::data
