// Reads the documents of a file with one document per row, in order. A row is a line of JSONL or a row of
// Parquet. Not thread-safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(const auto reader, RowReader::Open(path, kind, {.text_field = "text"}));
//   RowReader::Document document;
//   while (true) {
//     TRAINCTL_ASSIGN_OR_RETURN(const bool found, reader->Next(document));
//     if (!found) break;
//     ...
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/fingerprint.h"
#include "data/source_kind.h"

namespace trainctl::data {

struct RowOptions {
  std::string text_field = "text";
  std::string prompt_field;  // empty if there is no prompt
  bool skip_bad_lines = false;
  // The setting that skips bad lines, which error messages about a line mention. May be empty.
  std::string skip_setting;
};

// Bad lines that were skipped. A row of Parquet counts as a line.
struct LeftOutLines {
  static constexpr size_t kMaxNamed = 10;
  int64_t count = 0;
  std::vector<std::string> first;  // "path:line:column: reason" for the first kMaxNamed lines

  void Add(std::string reason);
  void Add(const LeftOutLines& more);
};
// Formats the lines, for example "3 lines left out: a.jsonl:400:32: not valid JSON; ...".
std::string FormatLeftOut(const LeftOutLines& lines);

// Called with the number of bytes of a file, as stored on disk, that were read since the last call. May be
// null.
using BytesReadFn = std::function<void(int64_t bytes)>;

class RowReader {
 public:
  // Opens a file. `kind` must be a kind with rows (HasRows). Returns the errors of JsonlReader::Open and
  // ParquetReader::Open.
  static absl::StatusOr<std::unique_ptr<RowReader>> Open(const std::string& path, SourceKind kind,
                                                         RowOptions options, BytesReadFn bytes_read = {});
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;
  virtual ~RowReader() = default;

  struct Document {
    std::string prompt;
    std::string text;
  };
  // Reads the next document. Returns false at the end of the file. Returns BadDataError for a bad line, or
  // skips it, depending on RowOptions::skip_bad_lines.
  virtual absl::StatusOr<bool> Next(Document& document) = 0;

  // Returns the fingerprint of the whole file. Call this after Next has returned false. Returns BadDataError
  // if the file has changed since it was opened.
  virtual absl::StatusOr<FileFingerprint> FingerprintOfAll() = 0;

  // The number of bytes read so far, as stored on disk.
  int64_t bytes_read() const { return bytes_read_; }

  // The bad lines skipped so far.
  const LeftOutLines& left_out() const { return left_out_; }

 protected:
  RowReader(RowOptions options, BytesReadFn tell_bytes_read)
      : options_(std::move(options)), tell_bytes_read_(std::move(tell_bytes_read)) {}

  const RowOptions& options() const { return options_; }
  // Handles a bad line or row; `what` is "line" or "row". Returns OK if it is to be skipped, or else the
  // error for Next to return.
  absl::Status LeaveOut(const absl::Status& reason, absl::string_view what);
  void SetBytesRead(int64_t bytes_read);

 private:
  RowOptions options_;
  BytesReadFn tell_bytes_read_;
  int64_t bytes_read_ = 0;
  LeftOutLines left_out_;
};

}  // namespace trainctl::data
