// Chooses the table for this processor.

#include <array>

#include "kernels/kernels.h"

namespace trainctl::kernels {

namespace baseline {
const Kernels& Table();
}
#if defined(__x86_64__)
namespace avx2 {
const Kernels& Table();
}
namespace avx512 {
const Kernels& Table();
}
#endif

bool HasAvx512() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

int NumCpuTables() {
  if (HasAvx512()) return 3;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 2;
#endif
  return 1;
}

const Kernels& CpuTable(int index) {
#if defined(__x86_64__)
  if (index == 2) return avx512::Table();
  if (index == 1) return avx2::Table();
#endif
  return baseline::Table();
}

const Kernels& Cpu() {
  static const Kernels& table = CpuTable(NumCpuTables() - 1);
  return table;
}

}  // namespace trainctl::kernels
