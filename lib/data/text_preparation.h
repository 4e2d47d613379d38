// The texts of a preparation's inputs on their way into the writer, one source after the other, with what is
// done made safe now and then. Not thread safe.
#pragma once

#include <cstdint>
#include <deque>
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

namespace trainctl::data {

// "jsonl" or "text".
std::string KindOfText(SourceKind kind);

class TextPreparation {
 public:
  // `kinds`: of each input; `tokenizer`: null for bytes. `state`: what is done already, as the writer has it;
  // its last source is read again, and the texts that were taken of it are passed over. All but `state` must
  // outlive this.
  TextPreparation(const PrepareOptions& options, const std::vector<SourceKind>& kinds,
                  const tokenizer::Tokenizer* tokenizer, IndexedWriter& writer, PrepareState state,
                  int64_t total_bytes);

  // Reads all inputs. CancelledError when options.stop says so.
  absl::Status Run();
  // Makes the documents that ended safe: the writer's files, then the state. The part files stay.
  absl::Status Commit();
  // After Run: complete.
  PrepareState TakeState() { return std::move(state_); }

 private:
  absl::Status Add(size_t index);
  absl::StatusOr<FileFingerprint> AddText(size_t index, const std::string& path);
  absl::StatusOr<FileFingerprint> AddJsonl(size_t index, const std::string& path);
  absl::Status Encode(size_t index, std::string text);
  // The tokens of the text that has been in the encoder for longest.
  absl::Status Take(absl::Span<const int32_t> tokens);
  absl::Status EndBytes(size_t index);
  // A text of source `index` has been written.
  absl::Status EndText(size_t index, bool is_document);
  absl::Status CheckStop() const;
  absl::Status NamingFile(const absl::Status& status) const;
  void Report(const SequentialFile& file) const;
  void Reached(const char* moment) const;

  const PrepareOptions& options_;
  const std::vector<SourceKind>& kinds_;
  IndexedWriter& writer_;
  RealClock clock_;
  PrepareState state_;  // with sources that are read ahead
  int64_t total_bytes_;
  int64_t done_bytes_ = 0;
  int64_t texts_to_pass_ = 0;  // of the source that is read first
  size_t taking_;              // the source whose text was written last
  int64_t committed_tokens_;
  absl::Duration last_commit_;
  std::deque<size_t> in_encoder_;  // of each text there: its source
  std::optional<ParallelEncoder> encoder_;
};

}  // namespace trainctl::data
