#define TRAINCTL_ISA avx2
#include "kernels/cpu_table.inc.h"
