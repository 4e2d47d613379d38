#include "checkpoint/folder_parameters.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "checkpoint/finite_values.h"
#include "checkpoint/model_weights.h"
#include "model/folder_form.h"

namespace trainctl::checkpoint {
namespace {

// The shape of a parameter or tensor as a matrix. A bias has one column.
struct MatrixShape {
  int64_t rows = 0, cols = 0;
};

MatrixShape MatrixOf(absl::Span<const int64_t> shape) {
  TRAINCTL_CHECK(shape.size() == 1 || shape.size() == 2);
  return {shape[0], shape.size() == 2 ? shape[1] : 1};
}

template <int kElementBytes>
void TransposeElements(const std::byte* from, int64_t rows, int64_t cols, std::byte* to, int64_t to_cols) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      std::memcpy(to + (col * to_cols + row) * kElementBytes, from + (row * cols + col) * kElementBytes,
                  kElementBytes);
    }
  }
}

// Transposes a [rows, cols] matrix into columns of a matrix that has `to_cols` columns.
void Transpose(DType dtype, const std::byte* from, int64_t rows, int64_t cols, std::byte* to,
               int64_t to_cols) {
  const int64_t element_bytes = DTypeBytes(dtype);
  TRAINCTL_CHECK(element_bytes == 2 || element_bytes == 4);
  if (element_bytes == 2) return TransposeElements<2>(from, rows, cols, to, to_cols);
  TransposeElements<4>(from, rows, cols, to, to_cols);
}

// Reads the columns `cols` of `count` rows, which are adjacent in the parameter and, from `row` on, in the
// tensor.
absl::Status ReadRows(const ModelFolder& folder, const ModelTensor& tensor, bool is_transposed, int64_t row,
                      int64_t count, layout::Interval cols, absl::Span<std::byte> bytes) {
  const int64_t element_bytes = DTypeBytes(tensor.dtype);
  const int64_t tensor_cols = MatrixOf(tensor.shape).cols;
  const auto begin = [&](int64_t tensor_row, int64_t tensor_col) {
    return (tensor_row * tensor_cols + tensor_col) * element_bytes;
  };
  if (!is_transposed) {
    return folder.ReadPieces(tensor, begin(row, cols.begin), cols.count() * element_bytes,
                             tensor_cols * element_bytes, bytes);
  }
  std::vector<std::byte> raw(bytes.size());
  TRAINCTL_RETURN_IF_ERROR(folder.ReadPieces(tensor, begin(cols.begin, row), count * element_bytes,
                                             tensor_cols * element_bytes, absl::MakeSpan(raw)));
  Transpose(tensor.dtype, raw.data(), cols.count(), count, bytes.data(), cols.count());
  return absl::OkStatus();
}

absl::Status CheckFinite(const ReadElements& elements) {
  const int64_t first = FirstNonFinite(elements.tensor->dtype, elements.bytes);
  if (first < 0) return absl::OkStatus();
  return BadDataError(absl::StrCat(elements.tensor->name, ": row ", elements.RowInTensor(first),
                                   " contains a NaN or infinite value, with which no model can be trained or "
                                   "evaluated. Use different weights, or fix these"));
}

// Assembles tensors from parameters.
class Assembler {
 public:
  Assembler(absl::Span<const model::Parameter> parameters, DType dtype, const ParameterReader& read)
      : dtype_(dtype), read_(read) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      Part part = {static_cast<int>(i), MatrixOf(parameters[i].shape), model::PlaceInFolder(parameters[i])};
      const auto [entry, is_new] = parts_of_.try_emplace(part.place.tensor);
      if (is_new) tensors_.push_back({part.place.tensor, dtype, part.place.shape});
      entry->second.push_back(std::move(part));
    }
  }

  // Returns the tensors, ordered by their first parameters.
  const std::vector<ModelTensorSpec>& tensors() const { return tensors_; }

  // A ModelTensorReader.
  absl::Status Read(const ModelTensorSpec& tensor, int64_t begin_bytes, absl::Span<std::byte> bytes) {
    const std::vector<Part>& parts = parts_of_.at(tensor.name);
    if (!parts.front().place.transposed) return ReadRows(parts, begin_bytes, bytes);
    if (begin_bytes == 0) TRAINCTL_RETURN_IF_ERROR(Assemble(parts, tensor));
    std::memcpy(bytes.data(), assembled_.data() + begin_bytes, bytes.size());
    return absl::OkStatus();
  }

 private:
  struct Part {
    int parameter;
    MatrixShape shape;
    model::FolderPlace place;
  };

  absl::Status ReadRows(const std::vector<Part>& parts, int64_t begin_bytes, absl::Span<std::byte> bytes) {
    const int64_t element_bytes = DTypeBytes(dtype_);
    const int64_t cols = parts.front().shape.cols;
    for (int64_t element = begin_bytes / element_bytes; !bytes.empty();) {
      const int64_t row = element / cols, col = element % cols;
      std::optional<model::RowRun> run;
      const auto part = std::find_if(parts.begin(), parts.end(), [&](const Part& one) {
        run = model::RowInParameter(one.place, row);
        return run.has_value();
      });
      TRAINCTL_CHECK(part != parts.end());
      const int64_t count =
          std::min(static_cast<int64_t>(bytes.size()) / element_bytes, run->count * cols - col);
      const size_t num_bytes = static_cast<size_t>(count * element_bytes);
      TRAINCTL_RETURN_IF_ERROR(read_(part->parameter, run->row * cols + col, bytes.first(num_bytes)));
      bytes.remove_prefix(num_bytes);
      element += count;
    }
    return absl::OkStatus();
  }

  // Fills `assembled_` with a transposed tensor.
  absl::Status Assemble(const std::vector<Part>& parts, const ModelTensorSpec& tensor) {
    constexpr int64_t kAtOnceBytes = int64_t{1} << 20;
    const int64_t element_bytes = DTypeBytes(dtype_);
    const MatrixShape shape = MatrixOf(tensor.shape);
    assembled_.resize(static_cast<size_t>(shape.rows * shape.cols * element_bytes));
    std::vector<std::byte> rows;
    for (const Part& part : parts) {
      const int64_t row_bytes = part.shape.cols * element_bytes;
      const int64_t rows_at_once = std::max<int64_t>(1, kAtOnceBytes / row_bytes);
      for (int64_t row = 0; row < part.shape.rows;) {
        const model::RowRun run = model::RowInTensor(part.place, row);
        const int64_t count = std::min(run.count, rows_at_once);
        rows.resize(static_cast<size_t>(count * row_bytes));
        TRAINCTL_RETURN_IF_ERROR(read_(part.parameter, row * part.shape.cols, absl::MakeSpan(rows)));
        Transpose(dtype_, rows.data(), count, part.shape.cols, assembled_.data() + run.row * element_bytes,
                  shape.cols);
        row += count;
      }
    }
    return absl::OkStatus();
  }

  const DType dtype_;
  const ParameterReader& read_;
  std::vector<ModelTensorSpec> tensors_;
  absl::flat_hash_map<std::string, std::vector<Part>>
      parts_of_;  // keyed by tensor, in the order of parameters
  std::vector<std::byte> assembled_;
};

}  // namespace

int64_t ReadElements::RowInTensor(int64_t index) const {
  if (place.transposed) return cols.begin + index % cols.count();
  return model::RowInTensor(place, first_row + index / cols.count()).row;
}

absl::Status ReadParameter(const ModelFolder& folder, const model::Parameter& parameter,
                           const layout::Box& box, absl::FunctionRef<absl::Status(const ReadElements&)> see) {
  const ModelTensor& tensor = WeightsOf(folder, parameter);
  const int64_t element_bytes = DTypeBytes(tensor.dtype);
  ReadElements elements = {
      .parameter = &parameter, .tensor = &tensor, .place = model::PlaceInFolder(parameter)};
  const layout::Interval rows = box.dims[0];
  elements.cols = box.dims.size() == 2 ? box.dims[1] : layout::Interval{0, 1};
  if (box.Count() == 0) return absl::OkStatus();
  const int64_t width = elements.cols.count();
  const int64_t at_once = int64_t{1} << (elements.place.transposed ? 22 : 20);
  const int64_t rows_at_once = std::max<int64_t>(1, at_once / width);
  std::vector<std::byte> bytes;
  for (int64_t begin = rows.begin; begin < rows.end; begin += rows_at_once) {
    const int64_t end = std::min(rows.end, begin + rows_at_once);
    bytes.resize(static_cast<size_t>((end - begin) * width * element_bytes));
    for (int64_t row = begin; row < end;) {
      const model::RowRun run = model::RowInTensor(elements.place, row);
      const int64_t count = std::min(run.count, end - row);
      TRAINCTL_RETURN_IF_ERROR(
          ReadRows(folder, tensor, elements.place.transposed, run.row, count, elements.cols,
                   absl::MakeSpan(bytes).subspan(static_cast<size_t>((row - begin) * width * element_bytes),
                                                 static_cast<size_t>(count * width * element_bytes))));
      row += count;
    }
    elements.first_row = begin;
    elements.bytes = bytes;
    TRAINCTL_RETURN_IF_ERROR(CheckFinite(elements));
    TRAINCTL_RETURN_IF_ERROR(see(elements));
    elements.position += (end - begin) * width;
  }
  return absl::OkStatus();
}

absl::Status WriteParameters(const std::string& path, absl::Span<const model::Parameter> parameters,
                             DType dtype, const ParameterReader& read, int64_t max_shard_bytes) {
  Assembler assembler(parameters, dtype, read);
  return WriteModelFolder(
      path, assembler.tensors(),
      [&](const ModelTensorSpec& tensor, int64_t begin_bytes, absl::Span<std::byte> bytes) {
        return assembler.Read(tensor, begin_bytes, bytes);
      },
      max_shard_bytes);
}

}  // namespace trainctl::checkpoint
