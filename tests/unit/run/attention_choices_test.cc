#include "run/attention_choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"

namespace trainctl::run {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

AttentionChoice OnH100() {
  AttentionChoice choice;
  choice.device = "NVIDIA H100";
  choice.batch = 2;
  choice.seq_len = 4096;
  choice.heads = 32;
  choice.kv_heads = 8;
  choice.head_dim = 128;
  choice.flash_seconds = 0.004;
  return choice;
}

TEST(AttentionChoices, AreFoundByDeviceAndShape) {
  AttentionChoice first = OnH100(), second = OnH100();
  first.cudnn_seconds = 0.003;
  first.uses_cudnn = true;
  second.seq_len = 8192;
  const auto choices = ParseAttentionChoices(FormatAttentionChoices({first, second}), "attention.json");
  ASSERT_TRUE(choices.ok()) << choices.status();
  ASSERT_EQ(choices->size(), 2);
  const AttentionChoice* found = FindAttentionChoice(*choices, OnH100());
  ASSERT_NE(found, nullptr);
  EXPECT_TRUE(found->uses_cudnn);
  EXPECT_EQ(found->cudnn_seconds, 0.003);
  EXPECT_EQ(found->flash_seconds, 0.004);
  ASSERT_NE(FindAttentionChoice(*choices, second), nullptr);
  EXPECT_EQ(FindAttentionChoice(*choices, second)->cudnn_seconds, std::nullopt);
  AttentionChoice elsewhere = OnH100();
  elsewhere.device = "NVIDIA H200";
  EXPECT_EQ(FindAttentionChoice(*choices, elsewhere), nullptr);
}

// Another kernel has other bits: a resumed run must not choose one without a word.
TEST(AttentionChoices, ADamagedFileIsRefusedWithWhatToDo) {
  const std::string whole = FormatAttentionChoices({OnH100()});
  for (const std::string& text :
       {std::string(), whole.substr(0, whole.size() / 2), std::string("[]"), std::string("{\"choices\": {}}"),
        std::string("{\"choices\": [7]}"), std::string("{\"choices\": [{\"device\": \"x\"}]}")}) {
    const absl::Status status = ParseAttentionChoices(text, "run/attention.json").status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData) << text;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("run/attention.json"), HasSubstr("remove it")));
  }
}

}  // namespace
}  // namespace trainctl::run
