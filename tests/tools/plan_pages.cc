// Writes pages of plans for a browser to look at: plan_pages FOLDER.

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "frameworks/page_input.h"
#include "report/page.h"
#include "tests/unit/frameworks/plan_picture_util.h"

namespace {

using trainctl::frameworks::GptToDraw;
using trainctl::frameworks::PageOf;
using trainctl::report::PageInput;
using trainctl::schedule::PipelineKind;

PageInput Everything() {
  PageInput input = PageOf(GptToDraw(PipelineKind::k1F1B, 1, 8, 32), "GPT-3 175B");
  const double step = input.step.step_s;
  input.pareto = {"devices",
                  "step, s",
                  {{"128", 128, step, true, true},
                   {"64", 64, 1.9 * step, true, false},
                   {"192", 192, 1.2 * step, false, false}}};
  input.notes = {"Predicted with data-sheet constants."};
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::pair<const char*, PageInput> pages[] = {
      {"everything", Everything()},
      {"interleaved", PageOf(GptToDraw(PipelineKind::kInterleaved1F1B, 3, 4, 16), "interleaved")},
      {"zbv", PageOf(GptToDraw(PipelineKind::kZbv, 2, 8, 16), "zbv")},
      {"dualpipe", PageOf(GptToDraw(PipelineKind::kDualPipe, 1, 8, 16), "dualpipe")},
      {"one_rank", PageOf(GptToDraw(PipelineKind::k1F1B, 1, 1, 5), "one rank")},
      {"large", PageOf(GptToDraw(PipelineKind::kInterleaved1F1B, 6, 16, 128), "large")},
      {"markup", PageOf(GptToDraw(PipelineKind::k1F1B, 1, 2, 4),
                        "</script><script>document.documentElement.dataset.check='broken'</script><b>")},
  };
  for (const auto& [name, input] : pages) {
    const std::string path = absl::StrCat(argv[1], "/", name, ".html");
    const absl::Status written = trainctl::WriteFileAtomic(path, trainctl::report::PlanPage(input));
    if (!written.ok()) {
      std::fprintf(stderr, "%s\n", std::string(written.message()).c_str());
      return 1;
    }
  }
  return 0;
}
