#include "simulate/device_kernels.h"

namespace trainctl::simulate {
namespace {

// Of the nominal rate, where nobody published a measured one: what A100, H100 and MI300X reach between them
// (stas00/ml-engineering, compute/accelerator/README.md: 87 %, 80 %, 51 %).
constexpr double kUnmeasuredBandwidthShare = 0.85;

}  // namespace

double BytesPerSecond(const cluster::Device& device) {
  return device.measured_memory_bandwidth.value > 0
             ? device.measured_memory_bandwidth.value
             : device.memory_bandwidth.value * kUnmeasuredBandwidthShare;
}

Generation GenerationOf(const cluster::Device& device) {
  switch (device.silicon) {
    case cluster::Silicon::kVolta:
    case cluster::Silicon::kAmpere:
      return Generation::kAmpere;
    case cluster::Silicon::kAda:
    case cluster::Silicon::kHopper:
      return Generation::kHopper;
    case cluster::Silicon::kBlackwell:
    case cluster::Silicon::kBlackwellUltra:
      return Generation::kBlackwell;
    case cluster::Silicon::kCdna:
      break;
  }
  return Generation::kOther;
}

double PassSeconds(const cluster::Device& device, double bytes, double kernels) {
  return bytes > 0 ? kernels * kKernelGapSeconds + bytes / BytesPerSecond(device) : 0;
}

}  // namespace trainctl::simulate
