#include "frameworks/tuning.h"

#include "frameworks/price_memory.h"
#include "frameworks/workload.h"

namespace trainctl::frameworks {
namespace {

cluster::Link ScaledLink(const cluster::Link* link, double factor) {
  if (link == nullptr) return {};
  cluster::Link scaled = *link;
  scaled.bandwidth.value *= factor;
  scaled.low_latency_limit.value *= factor;
  return scaled;
}

}  // namespace

std::array<std::pair<const char*, double Tuning::*>, kNumTuningConstants> TuningConstants() {
  return {{{"matmul_rate", &Tuning::matmul_rate},
           {"memory_bandwidth", &Tuning::memory_bandwidth},
           {"link_bandwidth", &Tuning::link_bandwidth},
           {"reserved_share", &Tuning::reserved_share}}};
}

TunedMachine::TunedMachine(const Tuning& tuning, const cluster::Device& device, const cluster::Node& node)
    : tuning_(tuning),
      device_(device),
      scale_up_(ScaledLink(node.scale_up, tuning.link_bandwidth)),
      scale_out_(ScaledLink(node.scale_out, tuning.link_bandwidth)),
      node_(node) {
  // At the limit of its power a device is as much faster as if the limit were higher.
  for (cluster::Constant* rate : {&device_.single_flops, &device_.half_flops, &device_.fp8_flops,
                                  &device_.fp4_flops, &device_.measured_half_flops, &device_.watts}) {
    rate->value *= tuning.matmul_rate;
  }
  device_.memory_bandwidth.value *= tuning.memory_bandwidth;
  device_.measured_memory_bandwidth.value *= tuning.memory_bandwidth;
  node_.device = &device_;
  if (node.scale_up != nullptr) node_.scale_up = &scale_up_;
  if (node.scale_out != nullptr) node_.scale_out = &scale_out_;
}

void TunedMachine::Apply(Workload& workload) const {
  workload.device = &device_;
  workload.node = &node_;
  workload.tuning = tuning_;
}

void TuneMemory(const Tuning& tuning, MemoryPrice& price) {
  const double more = (price.reserved_bytes - price.allocated_bytes) * (tuning.reserved_share - 1);
  price.reserved_bytes += more;
  price.device_bytes += more;
  price.needed_bytes += more;
  price.upper_bytes += more;
}

}  // namespace trainctl::frameworks
