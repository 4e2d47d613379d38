// What tests of pages share: the data of a page, and a text that tries to leave its place.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "base/json.h"

namespace trainctl::report {

inline constexpr char kEvilText[] =
    "</script><script>alert(1)</script><!-- \" ' & {{data}} {{script}} \xff \xe2\x80\xa8";
// kEvilText as a page shows it, with bytes that are not UTF-8 replaced.
inline constexpr char kEvilTextShown[] =
    "</script><script>alert(1)</script><!-- \" ' & {{data}} {{script}} \xef\xbf\xbd \xe2\x80\xa8";

inline int64_t CountOf(absl::string_view what, absl::string_view text) {
  int64_t count = 0;
  for (size_t at = text.find(what); at != absl::string_view::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

// What the page's script will parse.
inline Json DataOf(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const size_t from = page.find(begin) + begin.size();
  auto json = ParseJson(page.substr(from, page.find("</script>", from) - from), "the page's data");
  EXPECT_TRUE(json.ok()) << json.status();
  return json.ok() ? *json : Json();
}

}  // namespace trainctl::report
