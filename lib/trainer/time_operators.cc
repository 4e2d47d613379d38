#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/status.h"
#include "device/error_text.h"
#include "device/timing.h"
#include "trainer/device_operators.h"
#include "trainer/run_worker.h"

namespace trainctl::trainer {
namespace {

void Print(const std::string& name, double bytes, double seconds) {
  const Json line = {
      {"operator", name}, {"bytes", bytes}, {"seconds", seconds}, {"bytes_per_second", bytes / seconds}};
  std::printf("%s\n", FormatJson(line).c_str());
  std::fflush(stdout);
}

}  // namespace

absl::Status TimeOperators(const std::string& plugin_path, int ordinal, int64_t rows,
                           const std::string& only) {
  // 128 MiB of bf16 at 16,384 rows. A word comes up four times; logits are of a vocabulary of today's models.
  const OperatorSizes passes = {.rows = rows,
                                .width = 4096,
                                .vocab = 131072,
                                .words = std::max<int64_t>(rows / 4, 1),
                                .heads = 16,
                                .is_dense = true};
  const OperatorSizes updates = {.rows = rows, .width = 4096};
  try {
    TRAINCTL_ASSIGN_OR_RETURN(const auto device,
                              device::Device::Open(plugin_path, {.ordinal = ordinal, .deterministic = true}));
    device->UseNewStream();
    bool any = false;
    const OperatorVisitor visit = [&](const DeviceOperator& op) {
      any = true;
      std::vector<at::Tensor> tensors = CopiesOn(*device, op.inputs);
      const double seconds = device::BestPassSeconds(*device, [&] { op.run(*device, tensors); });
      Print(op.name, static_cast<double>(op.moved_bytes()), seconds);
    };
    if (only.empty()) {
      const double bytes_per_second = device::CopyBytesPerSecond(*device);
      Print("copy", bytes_per_second, 1);
    }
    ForEachPass(DType::kBF16, passes, visit, only);
    ForEachUpdate(updates, visit, only);
    if (!any) return UsageError(absl::StrCat("--only ", only, ": no kernel name contains this"));
    return device->Synchronize();
  } catch (const c10::OutOfMemoryError& error) {
    return EnvironmentError(device::ErrorText(error));
  } catch (const std::exception& error) {
    return WorkerError(device::ErrorText(error));
  }
}

}  // namespace trainctl::trainer
