// Rates of a device, from what the catalogue has of it and from what was measured of it. Pure; thread safe.
#pragma once

#include <memory>

#include "cluster/machine.h"
#include "simulate/cost.h"
#include "simulate/measured_device.h"

namespace trainctl::simulate {

// What a run takes that chooses by time (run.attention = "auto"). All shapes were timed with both, or with
// flash attention alone where the vendor has no kernel.
FusedAttention FasterAttention(const MeasuredDevice& measured);

// Of a machine of the catalogue: passes over memory by the bytes that they move, the rest by its operators.
// `measured` (may be null) has passes and launches instead, and scales what the catalogue gives for products
// and attention by the mean of its shapes.
Rates DeviceRates(std::shared_ptr<const cluster::Machine> machine, DType compute_dtype,
                  FusedAttention attention = FusedAttention::kFlash2,
                  const MeasuredDevice* measured = nullptr);

// Of a device that the catalogue does not know, in the proportions of the others: they put layouts in order
// and predict no time. With `measured` products and attention take what fits its shapes best; what
// is sent between devices stays a guess.
Rates UnknownDeviceRates(DType compute_dtype, FusedAttention attention = FusedAttention::kFlash2,
                         const MeasuredDevice* measured = nullptr);

}  // namespace trainctl::simulate
