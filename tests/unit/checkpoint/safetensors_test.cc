#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"

namespace trainctl::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Refusal(absl::string_view json, int64_t data_bytes) {
  const auto header =
      ParseSafetensorsHeader(json, 8 + static_cast<int64_t>(json.size()) + data_bytes, "x.st");
  if (header.ok()) return "accepted";
  EXPECT_EQ(ExitCodeFor(header.status()), ExitCode::kBadData) << header.status();
  EXPECT_THAT(std::string(header.status().message()), testing::StartsWith("x.st"));
  return std::string(header.status().message());
}

TEST(Safetensors, AHeaderWithTensorsAndMetadataIsRead) {
  const std::string json =
      R"({"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},"__metadata__":{"format":"pt"},)"
      R"("a":{"data_offsets":[0,4],"dtype":"F32","shape":[]},"none":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]}}  )";
  const auto header = ParseSafetensorsHeader(json, 8 + static_cast<int64_t>(json.size()) + 16, "x");
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->tensors.size(), 3u);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[1].name, "none");
  EXPECT_EQ(header->tensors[2].name, "b");
  EXPECT_EQ(header->tensors[2].dtype, DType::kBF16);
  EXPECT_THAT(header->tensors[2].shape, ElementsAre(2, 3));
  EXPECT_EQ(header->tensors[2].offset_bytes, 4);
  EXPECT_EQ(header->data_offset, 8 + static_cast<int64_t>(json.size()));
  EXPECT_THAT(header->metadata, ElementsAre(testing::Pair("format", "pt")));
}

TEST(Safetensors, EveryKindOfBadHeaderIsRefusedWithItsReason) {
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_EQ(Refusal("{" + a + "}", 8), "accepted");
  EXPECT_THAT(Refusal("{" + a + "}", 7), HasSubstr("truncated"));
  EXPECT_THAT(Refusal("{" + a + "}", 9), HasSubstr("too long"));
  EXPECT_THAT(Refusal("{" + a + "," + a + "}", 8), HasSubstr("'a' is given twice"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8),
              HasSubstr("'dtype' is given twice"));
  EXPECT_THAT(Refusal("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 8),
              HasSubstr("overlap"));
  EXPECT_THAT(Refusal("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[9,13]}})", 13),
              HasSubstr("a gap"));
  EXPECT_THAT(Refusal(R"({"b":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5), HasSubstr("a gap"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
              HasSubstr("F32 [3] is 12 bytes, but data_offsets are [0, 8]"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8), HasSubstr("[8, 0]"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"Q4","shape":[2],"data_offsets":[0,8]}})", 8), HasSubstr("'Q4'"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,8]}})", 8),
              HasSubstr("more than 2^63"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0),
              HasSubstr("more than 2^63 bytes"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8),
              HasSubstr("dimension"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8),
              HasSubstr("dimension"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", 8),
              HasSubstr("dimension"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,1e999]}})", 8),
              HasSubstr("out of range"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8),
              HasSubstr("unknown field 'x'"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","shape":[2]}})", 8), HasSubstr("no data_offsets"));
  EXPECT_THAT(Refusal(R"({"a":[1]})", 8), HasSubstr("must be described by an object"));
  EXPECT_THAT(Refusal(R"({"__metadata__":{"a":1}})", 0), HasSubstr("not a string"));
  EXPECT_THAT(Refusal("[]", 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(Refusal("", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal("\xff\xfe{}", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal(std::string(100'000, '['), 0), HasSubstr("nested deeper"));
  EXPECT_THAT(Refusal(R"({"a":)" + std::string(1000, '[') + std::string(1000, ']') + "}", 0),
              HasSubstr("nested deeper"));
}

TEST(Safetensors, AHundredThousandTensorsAreReadWithoutQuadraticTime) {
  std::string json = "{";
  for (int i = 0; i < 100'000; ++i) {
    absl::StrAppend(&json, i ? "," : "", "\"t", i, R"(":{"dtype":"U8","shape":[1],"data_offsets":[)", i, ",",
                    i + 1, "]}");
  }
  json += "}";
  const auto header = ParseSafetensorsHeader(json, 8 + static_cast<int64_t>(json.size()) + 100'000, "x");
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->tensors.size(), 100'000u);
}

TEST(Safetensors, TheLengthIsCheckedAgainstFileAndLimit) {
  const auto parse = [](std::vector<int> first, int64_t file_bytes) {
    std::vector<std::byte> bytes;
    for (const int value : first) bytes.push_back(static_cast<std::byte>(value));
    return ParseSafetensorsLength(bytes, file_bytes, "x");
  };
  EXPECT_EQ(*parse({2, 1, 0, 0, 0, 0, 0, 0}, 8 + 258), 258);
  EXPECT_FALSE(parse({2, 1, 0, 0, 0, 0, 0, 0}, 8 + 257).ok());
  EXPECT_FALSE(parse({255, 255, 255, 255, 255, 255, 255, 255}, INT64_MAX).ok());
  EXPECT_FALSE(parse({0, 0, 0, 0, 1, 0, 0, 0}, INT64_MAX).ok());
  EXPECT_FALSE(parse({1, 2, 3}, 3).ok());
}

TEST(Safetensors, WhatIsFormattedIsParsedBackAndAligned) {
  std::vector<TensorInfo> tensors = {
      {"x\"\n\\ü", DType::kF64, {3}}, {"odd", DType::kBF16, {5}}, {"s", DType::kU8, {}}};
  const auto text = FormatSafetensorsHeader({{"k", "v\t"}}, tensors);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->size() % 8, 0u);
  const auto header = ParseSafetensorsHeader(absl::string_view(*text).substr(8),
                                             static_cast<int64_t>(text->size()) + 24 + 10 + 1, "x");
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->tensors.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(header->tensors[i].name, tensors[i].name);
    EXPECT_EQ(header->tensors[i].offset_bytes, tensors[i].offset_bytes);
    EXPECT_EQ(header->tensors[i].shape, tensors[i].shape);
  }
}

TEST(Safetensors, NamesThatNoReaderCouldReadAreNotWritten) {
  for (const char* name : {"", "__metadata__", "\xff"}) {
    std::vector<TensorInfo> tensors = {{name, DType::kU8, {1}}};
    EXPECT_FALSE(FormatSafetensorsHeader({}, tensors).ok()) << name;
  }
  std::vector<TensorInfo> twice = {{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}};
  EXPECT_FALSE(FormatSafetensorsHeader({}, twice).ok());
}

}  // namespace
}  // namespace trainctl::checkpoint
