// Opens the three standard descriptors, which every library assumes to be open.
#pragma once

namespace trainctl {

// Opens /dev/null in place of each of stdin, stdout, and stderr that was closed when this process started.
// Otherwise, the first files that the process opens would get these descriptors, and output would be written
// to them. Call this first in main, before starting threads or opening files.
void OpenStandardFds();

}  // namespace trainctl
