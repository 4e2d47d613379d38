// The classes of c10d that our headers name. c10d's own headers include all of ATen, which takes 9 s of each
// source (see device/aten.h); a source that calls these classes includes them.
#pragma once

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Backend;
class Store;
class Work;
}  // namespace c10d
