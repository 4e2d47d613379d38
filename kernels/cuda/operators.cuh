// The parts of the table of operators. Each function fills one part and is defined in its own file.
#pragma once

#include "kernels/kernels.h"

namespace trainctl::kernels::cuda {

void FillElementwise(Kernels* table);
void FillEmbedding(Kernels* table);
void FillNorm(Kernels* table);
void FillBias(Kernels* table);
void FillRope(Kernels* table);
void FillActivation(Kernels* table);
void FillCrossEntropy(Kernels* table);
void FillOptimizer(Kernels* table);

inline Kernels MakeTable() {
  Kernels table = {};
  table.name = "cuda";
  FillElementwise(&table);
  FillEmbedding(&table);
  FillNorm(&table);
  FillBias(&table);
  FillRope(&table);
  FillActivation(&table);
  FillCrossEntropy(&table);
  FillOptimizer(&table);
  return table;
}

}  // namespace trainctl::kernels::cuda
