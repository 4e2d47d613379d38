#include "recipe/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "recipe/json_schema.h"

namespace trainctl::recipe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Explain, AFieldIsTold) {
  const absl::StatusOr<std::string> text = Explain("train.steps");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text,
            "train.steps\n"
            "  Length of the run. Unit: steps.\n\n"
            "  type      a whole number from 1 to 1e12, such as 10_000 or \"10K\"\n"
            "  default   derived from train.tokens or train.epochs; one of the three is required\n"
            "  excludes  train.tokens, train.epochs\n"
            "  resume    `trainctl resume --set` can change it\n");
}

TEST(Explain, EveryNameOfTheSchemaIsTold) {
  for (const Field& field : GetSchema().fields()) {
    EXPECT_THAT(Explain(field.name).value_or(""), HasSubstr(field.doc)) << field.name;
    EXPECT_THAT(Explain(field.PathAt(7)).value_or(""), HasSubstr(field.doc)) << field.name;
    const std::string leaf = field.name.substr(field.name.rfind('.') + 1);
    EXPECT_TRUE(Explain(leaf).ok()) << leaf;
  }
}

TEST(Explain, ValuesThatAreNotSupportedForOneReasonShareASentence) {
  EXPECT_THAT(Explain("train.precision").value_or(""),
              HasSubstr("  not yet   `fp16`, `fp8`, `mxfp8` and `nvfp4` are not supported yet: this version "
                        "trains in fp32 and bf16.\n"));
}

TEST(Explain, ATableListsItsKeysAndABareKeyIsFoundInEveryTable) {
  EXPECT_THAT(Explain("data.train").value_or(""), HasSubstr("data.train[].text_field"));
  EXPECT_THAT(Explain("data.train.files").value_or(""), HasSubstr("patterns"));
  const std::string name = Explain(" name ").value_or("");
  for (const char* key : {"run.name\n", "data.train[].name\n", "optimizer.name\n"}) {
    EXPECT_THAT(name, HasSubstr(key));
  }
}

TEST(Explain, ATypoIsAnsweredWithTheNearestNames) {
  EXPECT_THAT(std::string(Explain("train.stepz").status().message()), HasSubstr("did you mean train.steps?"));
  EXPECT_THAT(NearestNames("optimiser", 1), ElementsAre("optimizer"));
  EXPECT_THAT(NearestNames("train.weight_decay", 1), ElementsAre("optimizer.weight_decay"));
  EXPECT_THAT(NearestNames("nothing.like.that", 3), IsEmpty());
  for (const std::string& key :
       {std::string(), std::string("."), std::string("[0].x"), std::string(1 << 20, '[')}) {
    EXPECT_EQ(Explain(key).status().code(), absl::StatusCode::kInvalidArgument) << key.substr(0, 20);
  }
}

TEST(ExplainJson, HasEveryKeyOfATable) {
  const absl::StatusOr<Json> json = ParseJson(ExplainJson("metrics").value_or(""), "explain");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ((*json)["fields"].size(), 5u);
  EXPECT_EQ((*json)["fields"][0]["name"], "metrics.every_steps");
  EXPECT_EQ((*json)["fields"][0]["unit"], "steps");
}

TEST(JsonSchema, HasTypesDefaultsAndWords) {
  const absl::StatusOr<Json> schema = ParseJson(JsonSchema(), "schema");
  ASSERT_TRUE(schema.ok()) << schema.status();
  const Json& train = (*schema)["properties"]["train"]["properties"];
  EXPECT_EQ(train["gradient_dtype"]["enum"], Json::array({"fp32", "bf16"}));
  EXPECT_EQ(train["gradient_dtype"]["default"], "fp32");
  EXPECT_EQ((*schema)["properties"]["data"]["properties"]["train"]["items"]["required"],
            Json::array({"files"}));
  EXPECT_EQ((*schema)["properties"]["launch"]["properties"]["stop_timeout"]["default"], "30s");
  EXPECT_FALSE((*schema)["additionalProperties"].get<bool>());
}

}  // namespace
}  // namespace trainctl::recipe
