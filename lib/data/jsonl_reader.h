// The documents of a JSONL file, plain or packed (unpacked_file.h), one after the other. Not thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "data/unpacked_file.h"

namespace trainctl::data {

struct JsonlFields {
  std::string text = "text";
  std::string prompt;  // empty: no prompt
};

// Told how many bytes more of a file, as it is on disk, were read; may be empty.
using BytesReadFn = std::function<void(int64_t bytes)>;

class JsonlReader {
 public:
  static absl::StatusOr<JsonlReader> Open(const std::string& path, JsonlFields fields,
                                          BytesReadFn bytes_read = {});

  struct Document {
    std::string prompt;
    std::string text;
  };
  // False at the end. Lines of white space are passed over; any other line that is not an object with the
  // fields as strings is BadDataError "path:line: ...". Other fields do not matter (jsonl_line.h). A line may
  // have at most 1 GiB.
  absl::StatusOr<bool> Next(Document& document);

  // As it is on disk.
  const SequentialFile& file() const { return file_.file(); }

 private:
  JsonlReader(UnpackedFile file, JsonlFields fields, BytesReadFn bytes_read);
  absl::StatusOr<bool> NextLine(absl::string_view& line);

  UnpackedFile file_;
  JsonlFields fields_;
  BytesReadFn bytes_read_;
  int64_t told_bytes_ = 0;
  std::string pending_;  // read, not yet handed out from consumed_ on
  size_t consumed_ = 0;
  int64_t line_number_ = 0;
  bool at_end_ = false;
};

}  // namespace trainctl::data
