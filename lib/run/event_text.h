// What a journal's event means, for people. Pure; thread safe.
#pragma once

#include <string>

#include "run/journal.h"

namespace trainctl::run {

// Without its time: "generation 3: 4 workers", "rank 2 failed in step 58: ...", "checkpoint of step 50".
// Messages are shown as they are: see launcher::PrintableText.
std::string EventText(const JournalEvent& event);

}  // namespace trainctl::run
