// Reads the documents of a Parquet file in order, one per row, from a string column and optionally a second
// one that contains prompts. Ignores other columns. Keeps one page of each column in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/file_stamps.h"
#include "data/parquet_api.h"
#include "data/row_reader.h"

namespace trainctl::data {

class ParquetReader : public RowReader {
 public:
  // Opens a file. Returns BadDataError if it is damaged or lacks such a string column; the message lists the
  // columns it has. Also returns the errors of LoadParquetApi.
  static absl::StatusOr<std::unique_ptr<RowReader>> Open(const std::string& path, RowOptions options,
                                                         BytesReadFn bytes_read = {});
  ~ParquetReader() override;

  // Reads the next row. A row is bad ("path: row N: ...", counted from 1) if its text or prompt is null or
  // not UTF-8.
  absl::StatusOr<bool> Next(Document& document) override;

  absl::StatusOr<FileFingerprint> FingerprintOfAll() override;

 private:
  ParquetReader(FileStamp stamp, const ParquetApi* api, RowOptions options, BytesReadFn bytes_read);
  absl::Status OpenFile();
  // Copies the string in column `name` of the latest row.
  absl::Status Take(const ParquetString& string, const std::string& name, std::string& value) const;
  absl::Status TakeRow(Document& document) const;
  void TellProgress();
  const std::string& path() const { return stamp_.path; }

  FileStamp stamp_;  // taken before the file was opened
  const ParquetApi* api_;
  void* reader_ = nullptr;
  int64_t num_rows_ = 0;           // from the file's metadata
  int64_t row_ = 0;                // number of rows read
  ParquetString strings_[2] = {};  // text and prompt of the latest row
};

}  // namespace trainctl::data
