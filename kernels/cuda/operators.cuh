// Each file of operators fills its part of the table.
#pragma once

#include "kernels/kernels.h"

namespace trainctl::kernels::cuda {

void FillElementwise(Kernels* table);
void FillEmbedding(Kernels* table);
void FillRmsNorm(Kernels* table);
void FillBias(Kernels* table);
void FillRope(Kernels* table);
void FillSwiGlu(Kernels* table);
void FillCrossEntropy(Kernels* table);
void FillOptimizer(Kernels* table);

inline Kernels MakeTable() {
  Kernels table = {};
  table.name = "cuda";
  FillElementwise(&table);
  FillEmbedding(&table);
  FillRmsNorm(&table);
  FillBias(&table);
  FillRope(&table);
  FillSwiGlu(&table);
  FillCrossEntropy(&table);
  FillOptimizer(&table);
  return table;
}

}  // namespace trainctl::kernels::cuda
