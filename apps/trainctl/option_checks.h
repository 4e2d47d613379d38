// What CLI11 lets pass and a person does not mean.
#pragma once

#include <cstdint>
#include <limits>

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace trainctl::cli {

// What an option's check() takes: a whole number in decimal. CLI11 alone takes more digits than fit for the
// largest number there is, and 010 for 8.
CLI::Validator WholeNumber(int64_t least, int64_t most = std::numeric_limits<int64_t>::max());

// A number within bounds, which NaN is not.
CLI::Validator NumberWithin(double least, double most);

// Has every option and argument of every verb refuse the empty text, unless it is a text of the user's
// (--prompt): `resume "$UNSET"` is a mistake, not the wish for the default.
void RefuseEmptyValues(CLI::App& root);

}  // namespace trainctl::cli
