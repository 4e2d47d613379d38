// Describes journal events in human-readable form. Pure; thread-safe.
#pragma once

#include <string>

#include "run/journal.h"

namespace trainctl::run {

// Returns a one-line description of the event, without its time: "generation 3: 4 workers", "rank 2 failed in
// step 58: ...", or "checkpoint of step 50". Messages are not escaped; see launcher::PrintableText.
std::string EventText(const JournalEvent& event);

}  // namespace trainctl::run
