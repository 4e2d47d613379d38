// The three descriptors that every library takes for granted.
#pragma once

namespace trainctl {

// Opens /dev/null in place of each of stdin, stdout and stderr that this process was started without:
// otherwise the first files that it opens take their numbers, and what is printed goes into them. To be
// called first in main, before any thread or file.
void OpenStandardFds();

}  // namespace trainctl
