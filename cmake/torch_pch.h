#include "device/aten.h"
