#include "nn/rope_tables.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numbers>

namespace trainctl::nn {
namespace {

// Llama-3 frequency scaling (transformers' modeling_rope_utils, "llama3"): low frequencies are
// divided by `factor`, high ones kept, those between blended.
double ScaleFrequency(double frequency, const model::RopeScaling& scaling) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double original = static_cast<double>(scaling.original_max_position);
  const double low_wavelength = original / scaling.low_freq_factor;
  const double high_wavelength = original / scaling.high_freq_factor;
  if (wavelength < high_wavelength) return frequency;
  if (wavelength > low_wavelength) return frequency / scaling.factor;
  const double smooth = (original / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

}  // namespace

RopeTables MakeRopeTables(const device::Device& device, const model::ModelSpec& spec, int64_t max_position) {
  const int64_t half = spec.head_dim / 2;
  RopeTables tables{at::empty({max_position, half}, at::kFloat), at::empty({max_position, half}, at::kFloat)};
  float* cos = tables.cos.data_ptr<float>();
  float* sin = tables.sin.data_ptr<float>();
  for (int64_t j = 0; j < half; ++j) {
    double frequency =
        std::pow(spec.rope_theta, -2.0 * static_cast<double>(j) / static_cast<double>(spec.head_dim));
    if (spec.rope_scaling) frequency = ScaleFrequency(frequency, *spec.rope_scaling);
    // The field computes angles in fp32; so do we, to agree with published weights at long range.
    const float rounded = static_cast<float>(frequency);
    for (int64_t p = 0; p < max_position; ++p) {
      const float angle = static_cast<float>(p) * rounded;
      cos[p * half + j] = std::cos(angle);
      sin[p * half + j] = std::sin(angle);
    }
  }
  if (!device.is_cpu()) tables = {tables.cos.to(device.torch()), tables.sin.to(device.torch())};
  return tables;
}

}  // namespace trainctl::nn
