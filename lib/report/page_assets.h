// The texts of the .html, .css and .js files in this folder, which the build turns into these
// (cmake/trainctl.cmake).
#pragma once

namespace trainctl::report {

extern const char kPageHtml[];
extern const char kPageCss[];
extern const char kPageJs[];
extern const char kPagePartsJs[];  // what the scripts of both pages use
extern const char kRunPageHtml[];
extern const char kRunPageCss[];
extern const char kRunPageJs[];

}  // namespace trainctl::report
