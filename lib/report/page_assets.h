// The contents of the .html, .css and .js files in this folder, which the build embeds (see
// cmake/trainctl.cmake).
#pragma once

namespace trainctl::report {

extern const char kPageHtml[];
extern const char kPageCss[];
extern const char kPageJs[];
extern const char kPagePartsJs[];  // code shared by the scripts of both pages
extern const char kRunPageHtml[];
extern const char kRunPageCss[];
extern const char kRunPageJs[];

}  // namespace trainctl::report
