#include <ATen/Context.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "comm/device_backend.h"
#include "device/aten.h"
#include "device/error_text.h"
#include "device/graph.h"
#include "kernels/kernels.h"
#include "trainer/device_operators.h"
#include "trainer/run_worker.h"

namespace trainctl::trainer {
namespace {

// Tensors of one side.
using Tensors = std::vector<at::Tensor>;

struct OperatorCheck {
  std::string name;
  // Largest difference over the largest magnitude of the CPU's result; NaN where only one of them has a NaN.
  double error = 0;
  double bound = 0;
  bool deterministic = false;  // a second run gave the same bits
  bool must_be_deterministic = true;
  bool ok() const { return (deterministic || !must_be_deterministic) && error <= bound; }
};

Tensors ResultsOf(const device::Device& device, const DeviceOperator& op) {
  Tensors tensors = CopiesOn(device, op.inputs);
  op.run(device, tensors);
  Tensors results;
  for (size_t i : op.results) {
    results.push_back(at::empty(op.inputs[i].sizes(), at::TensorOptions(op.inputs[i].scalar_type())));
    device.CopyToHost(results.back().data_ptr(), tensors[i].data_ptr(),
                      static_cast<int64_t>(results.back().nbytes()));
  }
  return results;
}

double ErrorOf(const at::Tensor& got, const at::Tensor& wanted) {
  const at::Tensor a = got.to(at::kDouble), b = wanted.to(at::kDouble);
  const double largest = b.abs().max().item<double>();
  const double difference = (a - b).abs().max().item<double>();
  return difference == 0 ? 0 : difference / std::max(largest, 1e-30);
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

OperatorCheck Check(const device::Device& device, const DeviceOperator& op) {
  const Tensors wanted = ResultsOf(device::Device::Cpu(), op);
  at::globalContext().setDeterministicAlgorithms(!op.any_order, /*warn_only=*/false);
  const Tensors got = ResultsOf(device, op);
  const Tensors again = ResultsOf(device, op);
  OperatorCheck check{op.name, 0, op.bound, /*deterministic=*/true, !op.any_order};
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double error = ErrorOf(got[i], wanted[i]);
    if (!(error <= check.error)) check.error = error;  // NaN stays
    check.deterministic = check.deterministic && SameBits(got[i], again[i]);
  }
  return check;
}

// A group of this rank alone: whether the library of collectives works here at all.
OperatorCheck CheckCollectives(const device::Device& device) {
  OperatorCheck check{.name = "all-reduce of one rank", .bound = 0, .deterministic = true};
  const absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> backend = comm::MakeDeviceBackend(
      device, c10::make_intrusive<c10d::HashStore>(), /*rank=*/0, /*world_size=*/1, absl::Minutes(1),
      /*num_streams=*/1);
  if (!backend.ok()) {
    std::fprintf(stderr, "%s\n", std::string(backend.status().message()).c_str());
    check.error = std::numeric_limits<double>::quiet_NaN();
    return check;
  }
  const at::Tensor wanted = at::arange(1000, at::kFloat);
  std::vector<at::Tensor> sum = CopiesOn(device, {wanted});
  (*backend)->allreduce(sum)->wait();
  const at::Tensor got = at::empty_like(wanted);
  device.CopyToHost(got.data_ptr(), sum[0].data_ptr(), static_cast<int64_t>(got.nbytes()));
  check.error = ErrorOf(got, wanted);
  (*backend)->shutdown();
  return check;
}

// A graph that cannot be made, since the host waits while it is captured; then launches without a graph, and
// a graph that can be made: the first one must have left nothing behind.
OperatorCheck CheckFailedGraph(const device::Device& device) {
  OperatorCheck check{.name = "a graph after one that failed", .bound = 0, .deterministic = true};
  check.error = std::numeric_limits<double>::quiet_NaN();
  const auto fail = [&](const std::string& why) {
    std::fprintf(stderr, "%s: %s\n", check.name.c_str(), why.c_str());
    return check;
  };
  const at::Tensor wanted = at::full({1000}, 3, at::kFloat);
  Tensors sum = CopiesOn(device, {at::ones({1000}, at::kFloat)});
  const auto add_one = [&] {
    const at::Tensor ones = at::ones({1000}, device.Options(at::kFloat));
    device.kernels().f32.add(sum[0].data_ptr(), ones.data_ptr(), 1000);
    return absl::OkStatus();
  };
  const absl::StatusOr<std::unique_ptr<device::Graph>> failed = device::Graph::Capture(device, [&] {
    (void)add_one();
    return device.Synchronize();
  });
  if (failed.ok()) return fail("a graph was captured although the host waited for the device");
  if (ExitCodeFor(failed.status()) == ExitCode::kWorkerFailed)
    return fail(std::string(failed.status().message()));
  (void)add_one();
  if (const absl::Status status = device.Synchronize(); !status.ok())
    return fail(std::string(status.message()));
  const auto graph = device::Graph::Capture(device, add_one);
  if (!graph.ok()) return fail(std::string(graph.status().message()));
  if (const absl::Status status = (*graph)->Launch(); !status.ok())
    return fail(std::string(status.message()));
  const at::Tensor got = at::empty_like(wanted);
  device.CopyToHost(got.data_ptr(), sum[0].data_ptr(), static_cast<int64_t>(got.nbytes()));
  check.error = ErrorOf(got, wanted);
  return check;
}

void Print(const OperatorCheck& check) {
  Json line = {{"operator", check.name},
               {"bound", check.bound},
               {"deterministic", check.deterministic},
               {"ok", check.ok()}};
  line["error"] = std::isfinite(check.error) ? Json(check.error) : Json("nan");
  std::printf("%s\n", FormatJson(line).c_str());
  std::fflush(stdout);  // what comes after it may end this process
}

}  // namespace

absl::StatusOr<int> CheckDevice(const std::string& plugin_path, int ordinal) {
  try {
    TRAINCTL_ASSIGN_OR_RETURN(const auto device,
                              device::Device::Open(plugin_path, {.ordinal = ordinal, .deterministic = true}));
    device->UseNewStream();
    bool all_ok = true;
    const auto take = [&](const OperatorCheck& check) {
      Print(check);
      all_ok = all_ok && check.ok();
    };
    const OperatorVisitor visit = [&](const DeviceOperator& op) { take(Check(*device, op)); };
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      // A width that vectors and blocks divide, and one that they do not.
      for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{96, 1024}, {37, 515}}) {
        const OperatorSizes sizes = {.rows = rows, .width = width};
        ForEachPass(dtype, sizes, visit);
        ForEachProduct(dtype, sizes, visit);
        if (dtype == DType::kF32) ForEachUpdate(sizes, visit);
      }
    }
    if (device->torch().is_cuda()) take(CheckFailedGraph(*device));
    take(CheckCollectives(*device));
    TRAINCTL_RETURN_IF_ERROR(device->Synchronize());
    return all_ok ? 0 : 1;
  } catch (const std::exception& error) {
    return WorkerError(device::ErrorText(error));
  }
}

}  // namespace trainctl::trainer
