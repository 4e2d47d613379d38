// The texts of page.html, page.css and page.js, which the build turns into these (cmake/trainctl.cmake).
#pragma once

namespace trainctl::report {

extern const char kPageHtml[];
extern const char kPageCss[];
extern const char kPageJs[];

}  // namespace trainctl::report
