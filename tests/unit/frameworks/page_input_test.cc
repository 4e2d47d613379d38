#include "frameworks/page_input.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "plan_picture_util.h"
#include "recipe/machine.h"

namespace trainctl::frameworks {
namespace {

using schedule::PipelineKind;

// What the page's script will parse.
Json DataOf(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const size_t from = page.find(begin) + begin.size();
  auto json = ParseJson(page.substr(from, page.find("</script>", from) - from), "the page's data");
  EXPECT_TRUE(json.ok()) << json.status();
  return json.ok() ? *json : Json();
}

TEST(PageOf, HasThePassesAndTheMemoryOfTheTimeline) {
  for (const auto& [kind, virtual_stages] :
       {std::pair(PipelineKind::k1F1B, 1), std::pair(PipelineKind::kZbv, 2),
        std::pair(PipelineKind::kInterleaved1F1B, 3)}) {
    const report::PageInput input = PageOf(GptToDraw(kind, virtual_stages, 8, 16), "GPT-3");
    const Json data = DataOf(report::PlanPage(input));
    const Json& line = data["timeline"];
    const double tick_s = line["tick_s"];
    for (size_t r = 0; r < input.step.ranks.size(); ++r) {
      const report::RankPicture& rank = input.step.ranks[r];
      double passes = 0, expected_passes = 0;
      int64_t forwards = 0;
      const Json& spans = line["ranks"][r]["streams"][0]["spans"];
      for (size_t i = 0; i + 2 < spans.size(); i += 3) {
        EXPECT_GE(spans[i].get<int64_t>(), 0);
        passes += spans[i + 1].get<double>() * tick_s;
        const int64_t id = spans[i + 2];
        forwards += id >= 0 && id % 16 == static_cast<int64_t>(report::SpanKind::kForward);
      }
      for (const report::Span& span : rank.streams[0].spans) {
        if (span.kind != report::SpanKind::kWait) expected_passes += span.end_s - span.start_s;
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
      EXPECT_NEAR(peak_mib * 1024 * 1024 + states, rank.peak.device_bytes, 2 * 1024 * 1024);
    }
  }
}

TEST(PageOf, IsSmallHoweverLongTheStepIs) {
  constexpr size_t kLimit = 2'000'000;
  for (const auto& [kind, virtual_stages, pp, micro_batches] :
       {std::tuple(PipelineKind::kInterleaved1F1B, 1 + 1, 16, 128),
        std::tuple(PipelineKind::kInterleaved1F1B, 6, 16, 128), std::tuple(PipelineKind::k1F1B, 1, 96, 4800),
        std::tuple(PipelineKind::k1F1B, 1, 1, 100'000)}) {
    const report::PageInput input = PageOf(GptToDraw(kind, virtual_stages, pp, micro_batches), "GPT-3");
    const std::string page = report::PlanPage(input);
    EXPECT_LT(page.size(), kLimit) << pp << " ranks, " << micro_batches << " micro-batches";
    EXPECT_EQ(DataOf(page)["timeline"]["ranks"].size(), static_cast<size_t>(pp));
  }
}

// Each constant of the device that exists, with where it stands and whether it was measured.
TEST(ConstantsOf, NameTheirSources) {
  const auto constants = ConstantsOf(GptToDraw(PipelineKind::k1F1B, 1, 2, 4));
  ASSERT_GT(constants.size(), 8U);
  int measured = 0;
  for (const report::PageConstant& constant : constants) {
    EXPECT_FALSE(constant.source.empty()) << constant.name;
    EXPECT_FALSE(constant.value.empty()) << constant.name;
    measured += constant.origin == "measured";
  }
  EXPECT_GT(measured, 0);
  EXPECT_LT(measured, static_cast<int>(constants.size()));
  const auto half =
      std::find_if(constants.begin(), constants.end(), [](const report::PageConstant& constant) {
        return absl::EndsWith(constant.name, "half_flops") && constant.origin == "data sheet";
      });
  ASSERT_NE(half, constants.end());
  EXPECT_EQ(half->value, "989.5 TFLOP/s");
  const auto value_of = [&](const char* name) {
    for (const report::PageConstant& constant : constants) {
      if (absl::EndsWith(constant.name, absl::StrCat(": ", name))) return constant.value;
    }
    return std::string("none");
  };
  EXPECT_EQ(value_of("watts"), "700 W");
  EXPECT_EQ(value_of("compute_units"), "132");
  EXPECT_EQ(value_of("memory_bandwidth"), "3.35 TB/s");
}

TEST(ConstantsOf, SayWhatIsInferredOrStated) {
  Workload w = GptToDraw(PipelineKind::k1F1B, 1, 2, 4);
  const auto origin_of = [&w](const std::string& name) {
    for (const report::PageConstant& constant : ConstantsOf(w)) {
      if (absl::EndsWith(constant.name, name)) return constant.origin;
    }
    return std::string("none");
  };
  EXPECT_EQ(origin_of("memory_bytes"), "measured");  // as CUDA tells it
  // The source of InfiniBand's gathers is a ring of all-reduces.
  EXPECT_EQ(origin_of("ib-ndr: all-reduce"), "measured");
  EXPECT_EQ(origin_of("ib-ndr: all-gather"), "inferred");
  cluster::Device own = *w.device;
  own.memory_bytes = {64e9, cluster::kStatedSource};
  w.device = &own;
  EXPECT_EQ(origin_of("memory_bytes"), "stated");
}

}  // namespace
}  // namespace trainctl::frameworks
