// libtrainctl_parquet.so reads string columns of Parquet files with Arrow C++, behind the table of
// lib/data/parquet_api.h.

#include <arrow/io/file.h>
#include <arrow/memory_pool.h>
#include <arrow/type.h>
#include <parquet/arrow/schema.h>
#include <parquet/column_reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/schema.h>

#include <array>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "data/parquet_api.h"

namespace trainctl::data {
namespace {

constexpr int64_t kValuesAtOnce = 256;
constexpr int64_t kReadBytes = int64_t{1} << 20;
constexpr int kMaxColumnsNamed = 20;
constexpr size_t kMaxTypeChars = 80;

// The strings of one column in one row group. A batch never crosses a page, so its bytes stay valid until
// the next batch is read.
class ColumnOfGroup {
 public:
  explicit ColumnOfGroup(std::shared_ptr<parquet::ColumnReader> reader)
      : reader_(std::move(reader)),
        strings_(static_cast<parquet::ByteArrayReader*>(reader_.get())),
        can_be_null_(reader_->descr()->max_definition_level() > 0) {}

  ParquetString Next() {
    if (next_row_ == num_rows_) ReadBatch();
    const bool is_null = can_be_null_ && levels_[static_cast<size_t>(next_row_)] == 0;
    ++next_row_;
    if (is_null) return {nullptr, 0};
    if (next_value_ == num_values_)
      throw parquet::ParquetException("a page contains fewer values than its header states");
    const parquet::ByteArray& value = values_[static_cast<size_t>(next_value_++)];
    // The pointer of an empty string may be null.
    return {value.len == 0 ? "" : reinterpret_cast<const char*>(value.ptr), value.len};
  }

  bool HasMore() { return next_row_ < num_rows_ || strings_->HasNext(); }

 private:
  void ReadBatch() {
    next_row_ = next_value_ = num_rows_ = 0;
    // A page may be empty.
    while (num_rows_ == 0 && strings_->HasNext()) {
      num_rows_ = strings_->ReadBatch(kValuesAtOnce, levels_.data(), nullptr, values_.data(), &num_values_);
    }
    if (num_rows_ == 0) {
      throw parquet::ParquetException("column '" + reader_->descr()->name() + "' ends before its row group");
    }
  }

  std::shared_ptr<parquet::ColumnReader> reader_;
  parquet::ByteArrayReader* strings_;
  bool can_be_null_;
  std::array<int16_t, kValuesAtOnce> levels_;
  std::array<parquet::ByteArray, kValuesAtOnce> values_;
  // The current batch.
  int64_t num_rows_ = 0;
  int64_t num_values_ = 0;  // rows that are not null
  int64_t next_row_ = 0;
  int64_t next_value_ = 0;
};

// "id (int64), text (string)", for messages.
std::string DescribeColumns(const parquet::SchemaDescriptor& schema) {
  std::shared_ptr<arrow::Schema> types;
  const bool has_types = parquet::arrow::FromParquetSchema(&schema, &types).ok();
  const parquet::schema::GroupNode& root = *schema.group_node();
  std::string text;
  for (int i = 0; i < root.field_count(); ++i) {
    if (i == kMaxColumnsNamed) return text + " and " + std::to_string(root.field_count() - i) + " more";
    std::string type = has_types && i < types->num_fields() ? types->field(i)->type()->ToString() : "unknown";
    if (type.size() > kMaxTypeChars) type = type.substr(0, kMaxTypeChars) + "...";
    text += (i == 0 ? "" : ", ") + root.field(i)->name() + " (" + type + ")";
  }
  return text;
}

bool IsString(const parquet::schema::Node& node) {
  if (!node.is_primitive() || node.is_repeated()) return false;
  if (static_cast<const parquet::schema::PrimitiveNode&>(node).physical_type() != parquet::Type::BYTE_ARRAY) {
    return false;
  }
  const std::shared_ptr<const parquet::LogicalType>& type = node.logical_type();
  // Some writers do not mark bytes as text.
  return type == nullptr || type->is_none() || type->is_string() || type->is_JSON() || type->is_enum();
}

// The index of a column among the leaves of the schema.
int FindColumn(const parquet::SchemaDescriptor& schema, const std::string& name) {
  const parquet::schema::GroupNode& root = *schema.group_node();
  const parquet::schema::Node* found = nullptr;
  for (int i = 0; i < root.field_count(); ++i) {
    if (root.field(i)->name() != name) continue;
    if (found != nullptr) throw std::runtime_error("it has two columns named '" + name + "'");
    found = root.field(i).get();
  }
  if (found == nullptr) {
    throw std::runtime_error("it has no column named '" + name + "'; its columns are " +
                             DescribeColumns(schema));
  }
  if (!IsString(*found)) {
    throw std::runtime_error("column '" + name + "' does not contain strings; the columns are " +
                             DescribeColumns(schema));
  }
  return schema.ColumnIndex(*found);
}

class Reader {
 public:
  Reader(const char* path, const char* const* columns, size_t num_columns) {
    arrow::MemoryPool* const pool = arrow::system_memory_pool();
    parquet::ReaderProperties properties(pool);
    // Otherwise Arrow reads each column of a row group as a whole.
    properties.enable_buffered_stream();
    properties.set_buffer_size(kReadBytes);
    properties.set_page_checksum_verification(true);
    PARQUET_ASSIGN_OR_THROW(auto source, arrow::io::ReadableFile::Open(path, pool));
    file_ = parquet::ParquetFileReader::Open(std::move(source), properties);
    for (size_t i = 0; i < num_columns; ++i) {
      leaves_.push_back(FindColumn(*file_->metadata()->schema(), columns[i]));
    }
  }

  int64_t num_rows() const { return file_->metadata()->num_rows(); }

  bool Next(ParquetString* row) {
    while (rows_left_ == 0) {
      for (const auto& column : columns_) {
        if (column->HasMore()) throw parquet::ParquetException("a row group contains more values than rows");
      }
      if (next_group_ == file_->metadata()->num_row_groups()) return false;
      OpenGroup(next_group_++);
    }
    for (size_t i = 0; i < columns_.size(); ++i) row[i] = columns_[i]->Next();
    --rows_left_;
    return true;
  }

 private:
  void OpenGroup(int index) {
    columns_.clear();
    group_ = file_->RowGroup(index);
    rows_left_ = group_->metadata()->num_rows();
    if (rows_left_ < 0) throw parquet::ParquetException("a row group states a negative number of rows");
    for (const int leaf : leaves_) {
      columns_.push_back(std::make_unique<ColumnOfGroup>(group_->Column(leaf)));
    }
  }

  std::unique_ptr<parquet::ParquetFileReader> file_;
  std::vector<int> leaves_;
  std::shared_ptr<parquet::RowGroupReader> group_;
  std::vector<std::unique_ptr<ColumnOfGroup>> columns_;
  int64_t rows_left_ = 0;  // rows left in the current group
  int next_group_ = 0;
};

// The message of the exception that is being handled, on one line.
void Explain(char* reason, size_t reason_bytes) {
  std::string text;
  try {
    throw;
  } catch (const std::exception& error) {
    text = error.what();
  } catch (...) {
    text = "Arrow failed";
  }
  for (char& c : text) c = c == '\n' ? ' ' : c;
  while (!text.empty() && (text.back() == '.' || text.back() == ' ')) text.pop_back();
  std::snprintf(reason, reason_bytes, "%s", text.c_str());
}

void* OpenReader(const char* path, const char* const* columns, size_t num_columns, int64_t* num_rows,
                 char* reason, size_t reason_bytes) {
  try {
    auto reader = std::make_unique<Reader>(path, columns, num_columns);
    *num_rows = reader->num_rows();
    return reader.release();
  } catch (...) {
    Explain(reason, reason_bytes);
    return nullptr;
  }
}

int NextRow(void* reader, ParquetString* row, char* reason, size_t reason_bytes) {
  try {
    return static_cast<Reader*>(reader)->Next(row) ? 1 : 0;
  } catch (...) {
    Explain(reason, reason_bytes);
    return -1;
  }
}

void CloseReader(void* reader) { delete static_cast<Reader*>(reader); }

constexpr ParquetApi kApi = {kParquetAbi, sizeof(ParquetApi), &OpenReader, &NextRow, &CloseReader};

}  // namespace
}  // namespace trainctl::data

extern "C" __attribute__((visibility("default"))) const trainctl::data::ParquetApi* trainctl_parquet_api() {
  return &trainctl::data::kApi;
}
