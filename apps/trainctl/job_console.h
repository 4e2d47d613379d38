// Shows a running job on stderr: plain prefixed lines, or on a terminal one line at the bottom with
// bar, step, loss, tokens/s, memory and time left (before the first step: what goes on), with everything else
// scrolling above it.
#pragma once

#include <memory>

#include "launcher/console.h"

namespace trainctl::cli {

// `terminal`: stderr is one. Colour follows NO_COLOR.
std::shared_ptr<launcher::JobObserver> MakeJobConsole(bool terminal);

}  // namespace trainctl::cli
