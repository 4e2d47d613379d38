// --explain of a plan for accelerators.
#pragma once

#include "base/json_fwd.h"
#include "frameworks/cluster_explain.h"

namespace trainctl::cli {

// Prints the heading of a section, between empty lines and in bold if `color`.
void PrintTitle(const char* text, bool color);

void PrintExplanation(const frameworks::ClusterPlan& plan, const frameworks::Explanation& explanation,
                      bool color);
Json ExplanationToJson(const frameworks::Explanation& explanation);

}  // namespace trainctl::cli
