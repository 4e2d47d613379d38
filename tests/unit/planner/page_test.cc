#include "planner/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/files.h"
#include "base/json.h"
#include "plan_picture_util.h"
#include "planner/machine.h"
#include "planner/page_assets.h"

namespace trainctl::planner {
namespace {

using schedule::PipelineKind;
using ::testing::HasSubstr;
using ::testing::Not;

int64_t CountOf(absl::string_view what, absl::string_view text) {
  int64_t count = 0;
  for (size_t at = text.find(what); at != absl::string_view::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

// What the page's script will parse.
Json DataOf(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const size_t from = page.find(begin) + begin.size();
  auto json = ParseJson(page.substr(from, page.find("</script>", from) - from), "the page's data");
  EXPECT_TRUE(json.ok()) << json.status();
  return json.ok() ? *json : Json();
}

TEST(PlanPage, CarriesItsAssetsAsTheyAre) {
  for (const auto& [name, text] :
       {std::pair("html", kPageHtml), std::pair("css", kPageCss), std::pair("js", kPageJs)}) {
    const auto file = ReadFile(absl::StrCat(TRAINCTL_SOURCE_DIR, "/lib/planner/page.", name));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(*file, text) << name;
  }
}

TEST(PlanPage, HasThePassesAndTheMemoryOfTheTimeline) {
  for (const auto& [kind, virtual_stages] :
       {std::pair(PipelineKind::k1F1B, 1), std::pair(PipelineKind::kZbv, 2),
        std::pair(PipelineKind::kInterleaved1F1B, 3)}) {
    const PageInput input = PageOf(GptToDraw(kind, virtual_stages, 8, 16), "GPT-3");
    const Json data = DataOf(PlanPage(input));
    const Json& line = data["timeline"];
    const double tick_s = line["tick_s"];
    for (size_t r = 0; r < input.timeline.ranks.size(); ++r) {
      const pricing::RankTimeline& rank = input.timeline.ranks[r];
      double passes = 0, expected_passes = 0;
      int64_t forwards = 0;
      const Json& spans = line["ranks"][r]["streams"][0]["spans"];
      for (size_t i = 0; i + 2 < spans.size(); i += 3) {
        EXPECT_GE(spans[i].get<int64_t>(), 0);
        passes += spans[i + 1].get<double>() * tick_s;
        const int64_t id = spans[i + 2];
        forwards += id >= 0 && id % 16 == static_cast<int64_t>(pricing::SpanKind::kForward);
      }
      for (const pricing::Span& span : rank.streams[0].spans) {
        if (span.kind != pricing::SpanKind::kWait) expected_passes += span.end_s - span.start_s;
      }
      EXPECT_EQ(forwards, 16 * virtual_stages);
      EXPECT_NEAR(passes, expected_passes, 1e-4 * expected_passes);

      const Json& memory = line["ranks"][r];
      double peak_mib = 0;
      for (size_t i = 0; i < memory["samples"].size(); i += 4) {
        const double above = memory["samples"][i + 1].get<double>() + memory["samples"][i + 2].get<double>() +
                             memory["samples"][i + 3].get<double>();
        peak_mib = std::max(peak_mib, above);
      }
      const double states = memory["states"].get<double>() + memory["outside"].get<double>();
      EXPECT_NEAR(peak_mib * 1024 * 1024 + states, rank.memory.device_bytes, 2 * 1024 * 1024);
    }
  }
}

TEST(PlanPage, NothingThatItIsGivenCanBreakOutOfItsPlace) {
  const std::string evil =
      "</script><script>alert(1)</script><!-- \" ' & {{data}} {{script}} \xff \xe2\x80\xa8";
  PageInput input = PageOf(GptToDraw(PipelineKind::k1F1B, 1, 2, 4), evil);
  input.facts.push_back({evil, evil});
  input.what_if.push_back({evil, true, 1e9, 1, evil});
  input.pareto = {evil, evil, {{evil, 1, 2, true, true}}};
  input.constants.push_back({evil, evil, evil, evil});
  input.notes.push_back(evil);
  const std::string page = PlanPage(input);
  EXPECT_EQ(CountOf("<script", page), 2);
  EXPECT_EQ(CountOf("</script", page), 2);
  EXPECT_THAT(page, Not(HasSubstr("<!-- ")));
  // What stands in a text stays what it was.
  const Json data = DataOf(page);
  const std::string told =
      "</script><script>alert(1)</script><!-- \" ' & {{data}} {{script}} \xef\xbf\xbd \xe2\x80\xa8";
  EXPECT_EQ(data["title"], told);
  EXPECT_EQ(data["what_if"].back()["reason"], told);
  EXPECT_EQ(data["notes"].back(), told);
}

TEST(PlanPage, AsksNobodyForAnything) {
  const std::string page = PlanPage(PageOf(GptToDraw(PipelineKind::k1F1B, 1, 2, 4), "GPT-3"));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* const asset : {kPageHtml, kPageCss, kPageJs}) {
    for (const char* const word :
         {"src=", "@import", "url(", "<link", "fetch(", "XMLHttpRequest", "innerHTML"}) {
      EXPECT_THAT(asset, Not(HasSubstr(word)));
    }
  }
}

TEST(PlanPage, IsSmallHoweverLongTheStepIs) {
  constexpr size_t kLimit = 2'000'000;
  for (const auto& [kind, virtual_stages, pp, micro_batches] :
       {std::tuple(PipelineKind::kInterleaved1F1B, 1 + 1, 16, 128),
        std::tuple(PipelineKind::kInterleaved1F1B, 6, 16, 128), std::tuple(PipelineKind::k1F1B, 1, 96, 4800),
        std::tuple(PipelineKind::k1F1B, 1, 1, 100'000)}) {
    const PageInput input = PageOf(GptToDraw(kind, virtual_stages, pp, micro_batches), "GPT-3");
    const std::string page = PlanPage(input);
    EXPECT_LT(page.size(), kLimit) << pp << " ranks, " << micro_batches << " micro-batches";
    EXPECT_EQ(DataOf(page)["timeline"]["ranks"].size(), static_cast<size_t>(pp));
  }
}

TEST(PlanPage, NumbersThatAreNoneDoNotBreakIt) {
  PageInput input = PageOf(GptToDraw(PipelineKind::k1F1B, 1, 2, 4), "GPT-3");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  input.memory_limit_bytes = nan;
  input.what_if = {{"a", false, inf, nan, ""}};
  input.pareto = {"x", "y", {{"a", nan, 1, true, false}, {"b", 1, inf, true, false}}};
  input.timeline.parts.price.step_seconds = nan;
  const Json data = DataOf(PlanPage(input));
  EXPECT_EQ(data["limit"], 0.0);
  EXPECT_EQ(data["what_if"][0]["bytes"], 0.0);
  EXPECT_TRUE(data["pareto"]["points"].empty());
}

TEST(PlanPage, AnEmptyInputIsAPageToo) { EXPECT_THAT(PlanPage(PageInput()), HasSubstr("</html>")); }

// Each constant of the device that exists, with where it stands and whether it was measured.
TEST(ConstantsOf, NameTheirSources) {
  const auto constants = ConstantsOf(GptToDraw(PipelineKind::k1F1B, 1, 2, 4));
  ASSERT_GT(constants.size(), 8U);
  int measured = 0;
  for (const PageConstant& constant : constants) {
    EXPECT_FALSE(constant.source.empty()) << constant.name;
    EXPECT_FALSE(constant.value.empty()) << constant.name;
    measured += constant.origin == "measured";
  }
  EXPECT_GT(measured, 0);
  EXPECT_LT(measured, static_cast<int>(constants.size()));
  const auto half = std::find_if(constants.begin(), constants.end(), [](const PageConstant& constant) {
    return absl::EndsWith(constant.name, "half_flops") && constant.origin == "data sheet";
  });
  ASSERT_NE(half, constants.end());
  EXPECT_EQ(half->value, "989.5 TFLOP/s");
  const auto value_of = [&](const char* name) {
    for (const PageConstant& constant : constants) {
      if (absl::EndsWith(constant.name, absl::StrCat(": ", name))) return constant.value;
    }
    return std::string("none");
  };
  EXPECT_EQ(value_of("watts"), "700 W");
  EXPECT_EQ(value_of("compute_units"), "132");
  EXPECT_EQ(value_of("memory_bandwidth"), "3.35 TB/s");
}

TEST(ConstantsOf, SayWhatIsInferredOrStated) {
  pricing::Workload w = GptToDraw(PipelineKind::k1F1B, 1, 2, 4);
  const auto origin_of = [&w](const std::string& name) {
    for (const PageConstant& constant : ConstantsOf(w)) {
      if (absl::EndsWith(constant.name, name)) return constant.origin;
    }
    return std::string("none");
  };
  EXPECT_EQ(origin_of("memory_bytes"), "measured");  // as CUDA tells it
  // The source of InfiniBand's gathers is a ring of all-reduces.
  EXPECT_EQ(origin_of("ib-ndr: all-reduce"), "measured");
  EXPECT_EQ(origin_of("ib-ndr: all-gather"), "inferred");
  cluster::Device own = *w.device;
  own.memory_bytes = {64e9, kStatedSource};
  w.device = &own;
  EXPECT_EQ(origin_of("memory_bytes"), "stated");
}

}  // namespace
}  // namespace trainctl::planner
