// The world as a recipe is loaded from it: files, environment, and the devices of this machine.
#pragma once

#include <string>
#include <vector>

#include "data/kept_documents.h"
#include "recipe/load.h"

namespace trainctl::cli {

// The access counts the data for train.epochs, and shows the progress of reading large files on stderr.
// `kept`, if given, keeps the documents for the next opening of the data. It must outlive the access.
recipe::Access MachineAccess(data::KeptDocuments* kept = nullptr);

// The same for a plan, which needs no data: variables may be unset. A sentence for each of them is added to
// `missing`, which must outlive the access.
recipe::Access PlanAccess(std::vector<std::string>* missing, data::KeptDocuments* kept = nullptr);

// `access` that adds what it reads, and the data files that it finds, to `read`, which must outlive it.
recipe::Access Recording(recipe::Access access, std::vector<std::string>* read);

}  // namespace trainctl::cli
