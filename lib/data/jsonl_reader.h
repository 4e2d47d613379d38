// Reads the documents of a JSONL file, which may be compressed (unpacked_file.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/row_reader.h"
#include "data/unpacked_file.h"

namespace trainctl::data {

class JsonlReader : public RowReader {
 public:
  // Opens a file. Returns the errors of UnpackedFile::Open.
  static absl::StatusOr<std::unique_ptr<RowReader>> Open(const std::string& path, RowOptions options,
                                                         BytesReadFn bytes_read = {});
  static std::unique_ptr<RowReader> Open(UnpackedFile file, RowOptions options);

  // Reads the next line that is not blank. A line is bad ("path:line: ...") if it is not an object in which
  // the requested fields are strings. Other fields are ignored (see jsonl_line.h). If the file is a JSON
  // array or UTF-16, the error for the first line says so. A line longer than 1 GiB is an error even if bad
  // lines are left out.
  absl::StatusOr<bool> Next(Document& document) override;

  // Covers the bytes that were read, even if the file has changed since then.
  absl::StatusOr<FileFingerprint> FingerprintOfAll() override;

 private:
  JsonlReader(UnpackedFile file, RowOptions options, BytesReadFn bytes_read);
  absl::StatusOr<bool> NextLine(absl::string_view& line);

  UnpackedFile file_;
  std::string pending_;  // bytes read; those from consumed_ on have not been returned yet
  size_t consumed_ = 0;
  int64_t line_number_ = 0;
  bool at_end_ = false;
  bool has_begun_ = false;  // whether a line that is not blank has been read
};

}  // namespace trainctl::data
