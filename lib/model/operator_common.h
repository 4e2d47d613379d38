// What the operators' files share: sizes of a segment as factors of work, and what gradients of matrices
// cost.
#pragma once

#include "model/segment.h"

namespace trainctl::model {

inline constexpr int64_t kFp32Bytes = 4;

inline double Tokens(const Segment& segment) { return static_cast<double>(segment.shape.tokens()); }
inline int64_t AccumulatorBytes(const Segment& segment) { return DTypeBytes(AccumulatorOf(segment.dtype)); }
inline double ElementBytes(const Segment& segment) { return static_cast<double>(DTypeBytes(segment.dtype)); }

// Of an operator: those of its input, or the tokens.
inline int64_t NumRows(const Segment& segment, const Operator& op) {
  return op.inputs.empty() ? segment.shape.tokens() : segment.values[static_cast<size_t>(op.inputs[0])].rows;
}

// A new value in the segment's element type, or in any. Returns its id.
int AppendValue(Segment& segment, std::string name, int64_t rows, int64_t cols);
int AppendValue(Segment& segment, std::string name, DType dtype, int64_t rows, int64_t cols);

// One pass over memory that reads and writes `elements` of the segment's element type for each row.
Work PassOverRows(const Segment& segment, const Operator& op, double elements);

// `count` collectives of `bytes` each (as cluster/collectives.h counts them) between neighbours.
void AddExchange(Collective collective, double bytes, int64_t ranks, double count, Work& work);

// A bf16 product cannot be added to the fp32 gradient directly: it is rounded once on its way.
int64_t WeightGradientTempBytes(const Segment& segment, int64_t numel);
// Read and written to form the sum of weight gradients, the rounding included.
double WeightGradientBytes(const Segment& segment, double numel, bool accumulate);

}  // namespace trainctl::model
