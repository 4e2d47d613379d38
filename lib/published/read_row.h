// One row of a table of measured runs as a job to price. Internal to the reader of tables (runs.h). Pure.
#pragma once

#include <map>
#include <string>

#include "published/row_columns.h"
#include "published/runs.h"

namespace trainctl::published {

// `cells` hold numbers where numbers belong.
PublishedRun ReadRow(const RowCells& cells, const RowColumns& columns);

}  // namespace trainctl::published
