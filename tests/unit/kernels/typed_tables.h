// Kernel tables with their element types, and arrays of such elements, for tests that compare kernels with
// formulas in double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/counter_rng.h"
#include "emulated_table.h"
#include "kernels/kernels.h"

namespace trainctl::kernels {

struct TypedTable {
  const Kernels* kernels;
  DType dtype;

  const TypedKernels& k() const { return kernels->For(dtype); }
  DType accumulator() const { return AccumulatorOf(dtype); }
  // The allowed error of results that are computed in accumulators and rounded once.
  double Near(double expected) const {
    if (dtype == DType::kF64) return 1e-12 + 1e-12 * std::abs(expected);
    return 1e-5 + (dtype == DType::kBF16 ? 1.0 / 256 : 1e-5) * std::abs(expected);
  }
  double NearSum(double expected) const {
    return dtype == DType::kF64 ? 1e-11 + 1e-11 * std::abs(expected) : 2e-5 + 2e-5 * std::abs(expected);
  }
};

inline std::vector<TypedTable> TypedTables() {
  std::vector<TypedTable> tables;
  for (int i = 0; i < NumCpuTables(); ++i) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64})
      tables.push_back({&CpuTable(i), dtype});
  }
  for (const DType dtype : {DType::kF32, DType::kBF16}) tables.push_back({&EmulatedCudaTable(), dtype});
  return tables;
}

inline std::string NameOf(const TypedTable& table) {
  return std::string(table.kernels->name) + (table.dtype == DType::kF64    ? "_f64"
                                             : table.dtype == DType::kBF16 ? "_bf16"
                                                                           : "_f32");
}

class TypedTablesTest : public ::testing::TestWithParam<TypedTable> {};

#define TRAINCTL_FOR_TYPED_TABLES(suite)                                      \
  INSTANTIATE_TEST_SUITE_P(Tables, suite, ::testing::ValuesIn(TypedTables()), \
                           [](const auto& info) { return NameOf(info.param); })

// An array of elements of one type, rounded from doubles.
class Elements {
 public:
  Elements(DType dtype, const std::vector<double>& values)
      : dtype_(dtype), count_(values.size()), bytes_(values.size() * static_cast<size_t>(DTypeBytes(dtype))) {
    const std::vector<float> floats(values.begin(), values.end());
    if (dtype == DType::kF64) {
      CopyBytes(values);
    } else if (dtype == DType::kF32) {
      CopyBytes(floats);
    } else {
      CpuTable(0).bf16.round(bytes_.data(), floats.data(), static_cast<int64_t>(count_));
    }
  }

  void* data() { return bytes_.data(); }
  void* at(int64_t i) { return bytes_.data() + i * DTypeBytes(dtype_); }
  size_t size() const { return count_; }
  double operator[](int64_t i) const {
    const char* const from = bytes_.data() + i * DTypeBytes(dtype_);
    if (dtype_ == DType::kF64) return Read<double>(from);
    if (dtype_ == DType::kF32) return Read<float>(from);
    const uint32_t bits = uint32_t{Read<uint16_t>(from)} << 16;
    return Read<float>(reinterpret_cast<const char*>(&bits));
  }
  std::vector<double> Values(int64_t first, int64_t count) const {
    std::vector<double> values;
    for (int64_t i = first; i < first + count; ++i) values.push_back((*this)[i]);
    return values;
  }
  bool operator==(const Elements& other) const { return bytes_ == other.bytes_; }

 private:
  template <typename V>
  void CopyBytes(const std::vector<V>& values) {
    std::copy_n(reinterpret_cast<const char*>(values.data()), bytes_.size(), bytes_.begin());
  }
  template <typename V>
  static V Read(const char* from) {
    V value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }

  DType dtype_;
  size_t count_;
  std::vector<char> bytes_;
};

inline std::vector<double> Normals(int64_t count, uint64_t stream, double scale = 1) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(scale * static_cast<double>(RandomNormal(13, stream, static_cast<uint64_t>(i))));
  return values;
}

// Returns the slope of f at x, by central differences.
template <typename Function>
double Slope(const Function& f, double x, double step = 1e-5) {
  return (f(x + step) - f(x - step)) / (2 * step);
}
constexpr double kNearSlope = 1e-8;

}  // namespace trainctl::kernels
