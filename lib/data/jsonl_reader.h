// The documents of a JSONL file, plain or packed (unpacked_file.h), one after the other. Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/unpacked_file.h"

namespace trainctl::data {

struct JsonlOptions {
  std::string text_field = "text";
  std::string prompt_field;  // empty if there is no prompt
  bool skip_bad_lines = false;
  // The setting with which a user skips bad lines. Errors about a line name it; empty if there is none.
  std::string skip_setting;
};

// Bad lines that were left out.
struct LeftOutLines {
  static constexpr size_t kMaxNamed = 10;
  int64_t count = 0;
  std::vector<std::string> first;  // "path:line:column: reason" of the first kMaxNamed

  void Add(std::string reason);
  void Add(const LeftOutLines& more);
};
// "3 lines left out: a.jsonl:400:32: not valid JSON; ...".
std::string FormatLeftOut(const LeftOutLines& lines);

// Told how many bytes more of a file, as it is on disk, were read; may be empty.
using BytesReadFn = std::function<void(int64_t bytes)>;

class JsonlReader {
 public:
  static absl::StatusOr<JsonlReader> Open(const std::string& path, JsonlOptions options,
                                          BytesReadFn bytes_read = {});

  struct Document {
    std::string prompt;
    std::string text;
  };
  // False at the end. Lines of white space are passed over. Any other line that is not an object with the
  // fields as strings is bad: BadDataError "path:line: ...", or left out. Other fields do not matter
  // (jsonl_line.h). A line may have at most 1 GiB, also if bad lines are left out.
  absl::StatusOr<bool> Next(Document& document);

  // Bad lines left out so far.
  const LeftOutLines& left_out() const { return left_out_; }

  // As it is on disk.
  const SequentialFile& file() const { return file_.file(); }

 private:
  JsonlReader(UnpackedFile file, JsonlOptions options, BytesReadFn bytes_read);
  absl::StatusOr<bool> NextLine(absl::string_view& line);

  UnpackedFile file_;
  JsonlOptions options_;
  LeftOutLines left_out_;
  BytesReadFn bytes_read_;
  int64_t told_bytes_ = 0;
  std::string pending_;  // read, not yet handed out from consumed_ on
  size_t consumed_ = 0;
  int64_t line_number_ = 0;
  bool at_end_ = false;
};

}  // namespace trainctl::data
