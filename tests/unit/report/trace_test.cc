#include "report/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/json.h"

namespace trainctl::report {
namespace {

Json Parsed(const std::string& text) {
  auto json = ParseJson(text, "trace");
  EXPECT_TRUE(json.ok()) << json.status();
  return json.ok() ? *json : Json();
}

TEST(Trace, AnyTitleLeavesItWellFormed) {
  StepPicture step;
  step.ranks.resize(1);
  const std::string title = "a \"model\"\\ \n</script> \xff \xe2\x82\xac";
  const Json trace = Parsed(TraceJson(step, title));
  EXPECT_EQ(trace["otherData"]["title"], "a \"model\"\\ \n</script> \xef\xbf\xbd \xe2\x82\xac");
}

}  // namespace
}  // namespace trainctl::report
