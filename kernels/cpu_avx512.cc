#define TRAINCTL_ISA avx512
#include "kernels/cpu_table.inc.h"
