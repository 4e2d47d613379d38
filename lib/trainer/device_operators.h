// Lists the trainer's operators, each with its own random inputs, so that they can be run on any device.
// check-device compares their results with the CPU's, and time-kernels times them.
//
//   ForEachPass(DType::kBF16, {.rows = 96, .width = 1024}, [&](const DeviceOperator& op) {
//     std::vector<at::Tensor> tensors = CopiesOn(device, op.inputs);
//     op.run(device, tensors);
//   });
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
  std::string name;  // such as "rms_norm_backward BF16 n=96 h=4096"
  // Largest permitted difference from the CPU's result, relative to the largest magnitude in that result. It
  // covers another order of sums and the last bit of exp: usually 2e-5 in fp32, and 2^-7 (one to two units in
  // the last place) if the result is rounded to bf16.
  double bound = 0;
  // Whether the device may sum in any order, and so may use another kernel and give other bits in each run.
  bool any_order = false;
  // Tensors of the CPU. `run` gets copies of them, and writes its results into some of the copies.
  std::vector<at::Tensor> inputs;
  std::vector<size_t> results;  // indices of the inputs that `run` writes
  std::vector<size_t> unread;   // indices of the results whose previous values `run` does not read
  // Runs the operator on copies of `inputs` in the device's memory.
  std::function<void(const device::Device&, std::vector<at::Tensor>&)> run;

  // Returns the bytes that the operator reads and writes if it accesses each operand once. An operand that is
  // both read and written counts twice.
  int64_t moved_bytes() const;
};

struct OperatorSizes {
  int64_t rows = 0;   // number of tokens
  int64_t width = 0;  // elements per row
  // Width of the logits; 0 for `width`. The logits have about rows * width elements in any case, so a larger
  // vocabulary means fewer rows.
  int64_t vocab = 0;
  int64_t words = 64;  // rows of the embedding table
  int64_t heads = 1;   // number of groups of attention heads; each head has 64 elements
  // Whether operators use every element of their operands: no gaps between rows, no masked tokens.
  // moved_bytes is exact only then.
  bool is_dense = false;
};

using OperatorVisitor = std::function<void(const DeviceOperator&)>;

// Returns copies of tensors of the CPU in the device's memory.
std::vector<at::Tensor> CopiesOn(const device::Device& device, const std::vector<at::Tensor>& inputs);

// Visit the operators whose names contain `only`: every kernel in kernels.h that passes over activations,
// then matrix products and attention with its gradient, then the kernels of the optimizers. The inputs are
// created when an operator is visited. If `only` is empty, they are the same on every machine.
void ForEachPass(DType dtype, const OperatorSizes& sizes, const OperatorVisitor& visit,
                 const std::string& only = "");
void ForEachProduct(DType dtype, const OperatorSizes& sizes, const OperatorVisitor& visit,
                    const std::string& only = "");
void ForEachUpdate(const OperatorSizes& sizes, const OperatorVisitor& visit, const std::string& only = "");

}  // namespace trainctl::trainer
