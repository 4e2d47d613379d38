// What must hold between the fields of a recipe. Pure; thread safe.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "layout/layout.h"
#include "recipe/issues.h"
#include "recipe/recipe.h"
#include "recipe/schema.h"

namespace trainctl::recipe {

// `origin` is LoadedRecipe::origin; fields that `issues` calls bad are left out of the checks. What a run
// needs and a plan does not (its length, its data, a launcher for several machines) goes to `missing`; for a
// run both are one. What another trainer's what-if does not share with our own runs is not checked for
// kWhatIf.
void CheckRecipe(const Recipe& recipe, const std::map<std::string, std::string>& origin, Issues& issues,
                 Issues& missing, Purpose purpose = Purpose::kPlan);

// What can be done with a model that `refusal` says cannot be trained, to be put after its message: a plan as
// another trainer would run it. "" where a plan cannot be either.
std::string WhatElseOf(const model::ModelSpec& spec, const absl::Status& refusal);

// What the recipe asks of a layout (layout::FindViolations lists what it may not).
layout::Request LayoutRequest(const Recipe& recipe);

// What a person would want to know of a recipe that is valid: values that were given (their origin is not
// "default") and make no difference, random weights where a folder has some, steps that change nothing.
std::vector<std::string> FindNotes(const Recipe& recipe, const std::map<std::string, std::string>& origin);

}  // namespace trainctl::recipe
