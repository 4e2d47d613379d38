#include "apps/trainctl/measure_device.h"

#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/trainctl/worker_program.h"
#include "base/json.h"
#include "base/run_program.h"
#include "base/status.h"
#include "cluster/machine.h"
#include "launcher/printable_text.h"
#include "simulate/device_rates.h"

namespace trainctl::cli {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(10);
constexpr size_t kMostBytes = 1 << 20;

void PrintRow(const std::string& name, const std::string& value) {
  std::printf("  %-58s %s\n", name.c_str(), value.c_str());
}

std::string DescribeProduct(const model::Product& product) {
  return absl::StrFormat("%s product %.0f x %.0f x %.0f%s", product.dtype == DType::kBF16 ? "bf16" : "fp32",
                         product.rows, product.inner, product.columns,
                         product.result_bytes > 4 ? ", added in fp32" : "");
}

std::string DescribeAttention(const simulate::TimedAttention& timed) {
  return absl::StrFormat("%s attention%s, %.0f tokens, %.0f heads of %.0f",
                         timed.fused == simulate::FusedAttention::kVendor ? "cuDNN's" : "flash",
                         timed.kernel.backward ? " backward" : "", timed.kernel.seq_len, timed.kernel.heads,
                         timed.kernel.head_dim);
}

// Of the products over what causal attention keeps.
double FlopsOf(const model::AttentionKernel& kernel) {
  return (kernel.backward ? 5 : 2) * kernel.tokens * kernel.seq_len * kernel.heads * kernel.head_dim;
}

void PrintScales(const std::string& device, const simulate::MeasuredDevice& measured) {
  cluster::StatedMachine stated;
  stated.device = device;
  const absl::StatusOr<std::shared_ptr<const cluster::Machine>> machine = cluster::MachineOf(stated);
  if (!machine.ok()) return;
  std::printf("\nmeasured time / catalogue time on %s:\n", (*machine)->device->name);
  for (const auto& [name, fused] :
       {std::pair<const char*, simulate::FusedAttention>{"flash", simulate::FusedAttention::kFlash2},
        {"cuDNN's", simulate::FusedAttention::kVendor}}) {
    const simulate::ShapeScales scales =
        simulate::DeviceRates(*machine, DType::kBF16, fused, &measured).scales;
    if (fused == simulate::FusedAttention::kFlash2)
      PrintRow("bf16 products", absl::StrFormat("%.2f", scales.products));
    PrintRow(absl::StrCat(name, " attention, forward and backward"),
             absl::StrFormat("%.2f, %.2f", scales.attention, scales.attention_backward));
  }
}

}  // namespace

std::string RateText(double seconds_per_unit, const char* unit) {
  if (seconds_per_unit <= 0) return "free";
  const double rate = 1 / seconds_per_unit;
  for (const auto& [least, prefix] : {std::pair<double, const char*>{1e12, "T"}, {1e9, "G"}, {1e6, "M"}}) {
    if (rate >= least) return absl::StrFormat("%.3g %s%s/s", rate / least, prefix, unit);
  }
  return absl::StrFormat("%.3g us each", seconds_per_unit * 1e6);
}

void PrintMeasured(const simulate::MeasuredDevice& device) {
  std::printf("%s\n", device.name.c_str());
  PrintRow("memory, reading and writing in a copy", RateText(1 / device.bytes_per_second, "B"));
  PrintRow("launches", absl::StrFormat("%.3g us each", device.launch_seconds * 1e6));
  for (const auto& [product, seconds] : device.products) {
    PrintRow(DescribeProduct(product),
             RateText(seconds / (2 * product.rows * product.inner * product.columns), "FLOP"));
  }
  for (const simulate::TimedAttention& timed : device.attention)
    PrintRow(DescribeAttention(timed), RateText(timed.seconds / FlopsOf(timed.kernel), "FLOP"));
  PrintScales(device.name, device);
}

absl::StatusOr<simulate::MeasuredDevice> MeasureDeviceInWorker() {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string worker, FindWorkerProgram());
  TRAINCTL_ASSIGN_OR_RETURN(const ProgramEnd end,
                            RunProgram({worker, "measure-device"}, kPatience, kMostBytes));
  if (!end.exit.Success()) {
    const std::string text = absl::StrCat(
        "cannot measure the device: ",
        end.output.empty() || end.is_late
            ? absl::StrCat("trainctl-worker ", end.is_late ? "did not finish" : end.exit.Describe())
            : launcher::PrintableText(end.output, /*keep_newlines=*/true));
    const bool lacks_something =
        !end.exit.signaled && end.exit.code == static_cast<int>(ExitCode::kEnvironment);
    return lacks_something ? EnvironmentError(text) : WorkerError(text);
  }
  // What libraries have to say comes first.
  const size_t line_end = end.output.rfind('\n');
  const std::string line = line_end == std::string::npos ? end.output : end.output.substr(line_end + 1);
  constexpr char kWhat[] = "what trainctl-worker measured";
  TRAINCTL_ASSIGN_OR_RETURN(const Json json, ParseJson(line, kWhat));
  return simulate::MeasuredDeviceFromJson(json, kWhat);
}

}  // namespace trainctl::cli
