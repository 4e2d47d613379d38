// The trainer's operators as a device runs them, each with inputs of its own: what check-device compares with
// the CPU and time-kernels times.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/dtype_id.h"
#include "device/device.h"

namespace trainctl::trainer {

struct DeviceOperator {
  std::string name;  // "rms_norm_backward BF16 n=96 h=4096"
  // How far results may be from the CPU's, over the largest of them: what another order of sums and the last
  // bit of exp may change, 2e-5 in fp32, 2^-7 (two units in the last place) where the result is rounded to
  // bf16.
  double bound = 0;
  bool any_order = false;          // sums need not have an order, so another kernel may serve
  std::vector<at::Tensor> inputs;  // of the CPU; results are written over copies of some of them
  std::vector<size_t> results;     // numbers of inputs that are written
  std::vector<size_t> unread;      // of them, those whose former values nobody reads
  std::function<void(const device::Device&, std::vector<at::Tensor>&)> run;

  int64_t moved_bytes() const;  // each operand once, those that are read and written twice
};

struct OperatorSizes {
  int64_t rows = 0;    // tokens
  int64_t width = 0;   // of a row
  int64_t vocab = 0;   // of logits, which have fewer rows then and as many elements; 0: width
  int64_t words = 64;  // rows of the embedding's table
  int64_t heads = 1;   // groups of heads, of 64 elements each
  // All of every operand is used: no gaps between rows, no masked tokens. moved_bytes is exact then.
  bool is_dense = false;
};

using OperatorVisitor = std::function<void(const DeviceOperator&)>;

std::vector<at::Tensor> CopiesOn(const device::Device& device, const std::vector<at::Tensor>& inputs);

// Every kernel of kernels.h that passes over activations; matrix products and attention with its gradient;
// and what optimizers have: of these the operators that have `only` in their names. Inputs are made as they
// are visited; if all are, they are the same everywhere.
void ForEachPass(DType dtype, const OperatorSizes& sizes, const OperatorVisitor& visit,
                 const std::string& only = "");
void ForEachProduct(DType dtype, const OperatorSizes& sizes, const OperatorVisitor& visit,
                    const std::string& only = "");
void ForEachUpdate(const OperatorSizes& sizes, const OperatorVisitor& visit, const std::string& only = "");

}  // namespace trainctl::trainer
