// Passes the texts of a preparation's inputs to the writer, one source after another, and commits regularly.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "data/document_store.h"
#include "data/indexed_writer.h"
#include "data/parallel_encoder.h"
#include "data/prepare.h"
#include "data/prepare_state.h"
#include "data/row_reader.h"
#include "data/unpacked_file.h"

namespace trainctl::data {

class TextPreparation {
 public:
  // `kinds` contains the kind of each input. `tokenizer` is null if tokens are bytes. `state` describes the
  // finished work and must match the writer's. The last source in `state` is read again, skipping the texts
  // already taken from it. All arguments except `state` must outlive this object.
  TextPreparation(const PrepareOptions& options, const std::vector<SourceKind>& kinds,
                  const tokenizer::Tokenizer* tokenizer, IndexedWriter& writer, PrepareState state,
                  int64_t total_bytes);

  // Reads all inputs. Returns CancelledError if options.stop is set.
  absl::Status Run();
  // Commits the ended documents: first the writer's files, then the state. The part files remain.
  absl::Status Commit();
  // Returns the complete state. Call this after Run.
  PrepareState TakeState() { return std::move(state_); }

 private:
  absl::Status Add(size_t index);
  absl::StatusOr<UnpackedFile> Open(const std::string& path) const;
  absl::StatusOr<std::unique_ptr<RowReader>> OpenRows(SourceKind kind, const std::string& path) const;
  absl::StatusOr<FileFingerprint> AddText(size_t index, const std::string& path);
  absl::StatusOr<FileFingerprint> AddRows(size_t index, const std::string& path);
  absl::Status Encode(size_t index, std::string text);
  // Writes the tokens of the oldest text in the encoder.
  absl::Status Take(absl::Span<const int32_t> tokens);
  absl::Status EndBytes(size_t index);
  // Records that a text of source `index` has been written.
  absl::Status EndText(size_t index, bool is_document);
  bool IsDue() const;  // whether a commit is due
  absl::Status CheckStop() const;
  absl::Status NamingFile(const absl::Status& status) const;
  void Report(int64_t bytes_read) const;  // bytes read from the current file
  void Reached(const char* moment) const;

  const PrepareOptions& options_;
  const std::vector<SourceKind>& kinds_;
  IndexedWriter& writer_;
  RealClock clock_;
  PrepareState state_;  // includes sources that are read ahead
  int64_t total_bytes_;
  int64_t done_bytes_ = 0;
  int64_t texts_to_pass_ = 0;  // texts to skip in the first source that is read
  size_t taking_;              // source of the text written last
  int64_t committed_tokens_;
  absl::Duration last_commit_;
  std::deque<size_t> in_encoder_;  // source of each text in the encoder
  std::optional<ParallelEncoder> encoder_;
};

}  // namespace trainctl::data
