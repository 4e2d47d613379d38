// How far the prices were off the published runs of each framework, for telling beside a plan. The numbers
// are those that `trainctl score --complete LIST --json` over the published measurements of
// docs/reference/benchmarks.md has under complete.frameworks; they are to be renewed with that page.
// Immutable; thread safe.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainctl::frameworks {

struct PublishedError {
  const char* framework = "";  // of FrameworkProfile
  // Rows that state all that a price needs and were compared; the mean size of their errors; the median
  // error, negative where prices come out too low.
  int memory_rows = 0;
  double memory_percent = 0, memory_median_percent = 0;
  int time_rows = 0;
  double time_percent = 0, time_median_percent = 0;
};

absl::Span<const PublishedError> PublishedErrors();
// Null: no published run of that framework was compared.
const PublishedError* FindPublishedError(absl::string_view framework);

}  // namespace trainctl::frameworks
