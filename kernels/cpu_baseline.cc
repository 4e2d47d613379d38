#define TRAINCTL_ISA baseline
#include "kernels/cpu_table.inc.h"
