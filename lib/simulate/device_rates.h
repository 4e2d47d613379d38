// Computes the rates of a device from the catalogue's data and from measurements. Pure functions;
// thread-safe.
#pragma once

#include <memory>

#include "cluster/machine.h"
#include "simulate/cost.h"
#include "simulate/measured_device.h"

namespace trainctl::simulate {

// Returns the attention kernel with the lower total time, which a run with run.attention = "auto" uses.
// `measured` must have times of the same shapes for both kernels, or times of flash attention only if the
// vendor has no kernel.
FusedAttention FasterAttention(const MeasuredDevice& measured);

// Returns the rates of a machine of the catalogue. The time of a pass over memory follows from the bytes that
// it moves. The times of products, attention and collectives follow from their shapes (device_cost.h). If
// `measured` is not null, its memory bandwidth and launch time replace the catalogue's. It also sets
// Rates::scales: for each kind of kernel, the geometric mean over the timed shapes of the measured time
// divided by the catalogue's estimate.
Rates DeviceRates(std::shared_ptr<const cluster::Machine> machine, DType compute_dtype,
                  FusedAttention attention = FusedAttention::kFlash2,
                  const MeasuredDevice* measured = nullptr);

// Returns rates for a device that is not in the catalogue, in proportions typical of other devices. If
// `measured` is null, these rates can order layouts but cannot predict times. If `measured` is not null, the
// rates of products and attention are fitted to its timed shapes, and its memory bandwidth and launch time
// are used. The rates of communication between devices remain guesses.
Rates UnknownDeviceRates(DType compute_dtype, FusedAttention attention = FusedAttention::kFlash2,
                         const MeasuredDevice* measured = nullptr);

}  // namespace trainctl::simulate
