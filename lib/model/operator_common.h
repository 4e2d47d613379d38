// Helpers for the operator_<kind>.cc files: sizes of a segment, and the work and memory of weight gradients.
// Pure; thread-safe.
#pragma once

#include "model/segment.h"

namespace trainctl::model {

inline constexpr int64_t kFp32Bytes = 4;

inline double Tokens(const Segment& segment) { return static_cast<double>(segment.shape.tokens()); }
inline int64_t AccumulatorBytes(const Segment& segment) { return DTypeBytes(AccumulatorOf(segment.dtype)); }
inline double ElementBytes(const Segment& segment) { return static_cast<double>(DTypeBytes(segment.dtype)); }

// Returns the number of rows of the operator's first input, or the number of tokens if it has no inputs.
inline int64_t NumRows(const Segment& segment, const Operator& op) {
  return op.inputs.empty() ? segment.shape.tokens() : segment.values[static_cast<size_t>(op.inputs[0])].rows;
}

// Appends a value to the segment and returns its id. The element type is the segment's unless `dtype` is
// given.
int AppendValue(Segment& segment, std::string name, int64_t rows, int64_t cols);
int AppendValue(Segment& segment, std::string name, DType dtype, int64_t rows, int64_t cols);

// Returns the work of one pass over memory. `elements` is the number of elements read and written per row, in
// the segment's element type.
Work PassOverRows(const Segment& segment, const Operator& op, double elements);

// Adds the work of an exchange between `ranks` adjacent ranks to `work`.
void AddExchange(const OperatorExchange& exchange, int64_t ranks, Work& work);

// Returns the size, in bytes, of the temporary for a weight gradient of `numel` elements. On the CPU, a bf16
// product cannot accumulate into the fp32 gradient directly, so its rounded result needs a temporary. Returns
// 0 otherwise.
int64_t WeightGradientTempBytes(const Segment& segment, int64_t numel);
// Returns the number of bytes that are read and written to form a weight gradient, including the temporary.
// `accumulate` is true if the result is added to an existing gradient.
double WeightGradientBytes(const Segment& segment, double numel, bool accumulate);

}  // namespace trainctl::model
