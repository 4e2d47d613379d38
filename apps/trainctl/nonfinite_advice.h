// The way on after a run whose loss or weights were not finite. Pure; thread safe.
#pragma once

#include <cstdint>
#include <string>

#include "recipe/recipe.h"

namespace trainctl::cli {

// For a run in which a worker ended with exit code 7. `checkpoint_step`: the newest committed one, -1: none;
// `failed_step`: that it was in, counted from 1. Lines without the last newline, with a command that can be
// pasted, unless the learning rate has no part in it.
std::string NonFiniteAdvice(const recipe::Recipe& recipe, const std::string& run_path,
                            int64_t checkpoint_step, int64_t failed_step);

}  // namespace trainctl::cli
