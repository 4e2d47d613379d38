#include "base/key_value_store.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>

namespace trainctl {
namespace {

std::vector<uint8_t> Bytes(absl::string_view text) { return {text.begin(), text.end()}; }

TEST(InMemoryKeyValueStore, ValuesAreOverwrittenAndDeleted) {
  InMemoryKeyValueStore store;
  ASSERT_TRUE(store.Set("k", Bytes("one")).ok());
  ASSERT_TRUE(store.Set("k", Bytes("two")).ok());
  EXPECT_EQ(*store.Get("k", absl::ZeroDuration()), Bytes("two"));
  EXPECT_EQ(*store.NumKeys(), 1);
  EXPECT_TRUE(*store.Delete("k"));
  EXPECT_FALSE(*store.Delete("k"));
  EXPECT_EQ(*store.NumKeys(), 0);
}

TEST(InMemoryKeyValueStore, AMissingKeyIsNamedWhenTheTimeIsOver) {
  InMemoryKeyValueStore store;
  const absl::Status get = store.Get("there", absl::ZeroDuration()).status();
  EXPECT_EQ(get.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(get.message(), "no value for key 'there' in time");
  ASSERT_TRUE(store.Set("a", Bytes("")).ok());
  const absl::Status wait = store.Wait({"a", "b"}, absl::ZeroDuration());
  EXPECT_EQ(wait.message(), "no value for key 'b' in time");
  EXPECT_TRUE(store.Wait({"a"}, absl::ZeroDuration()).ok());
  EXPECT_FALSE(*store.Check({"a", "b"}));
  EXPECT_TRUE(*store.Check({"a"}));
}

TEST(InMemoryKeyValueStore, CompareSetTellsWhatTheKeyThenHolds) {
  InMemoryKeyValueStore store;
  // An absent key equals an empty value, and an expectation that fails is handed back.
  EXPECT_EQ(*store.CompareSet("k", Bytes("x"), Bytes("new")), Bytes("x"));
  EXPECT_FALSE(*store.Check({"k"}));
  EXPECT_EQ(*store.CompareSet("k", {}, Bytes("first")), Bytes("first"));
  EXPECT_EQ(*store.CompareSet("k", {}, Bytes("second")), Bytes("first"));
  EXPECT_EQ(*store.CompareSet("k", Bytes("first"), Bytes("third")), Bytes("third"));
  EXPECT_EQ(*store.Get("k", absl::ZeroDuration()), Bytes("third"));
}

TEST(InMemoryKeyValueStore, CountersStartAtZeroAndAreReadableAsText) {
  InMemoryKeyValueStore store;
  EXPECT_EQ(*store.Add("n", 5), 5);
  EXPECT_EQ(*store.Add("n", -7), -2);
  EXPECT_EQ(*store.Get("n", absl::ZeroDuration()), Bytes("-2"));
  ASSERT_TRUE(store.Set("text", Bytes("abc")).ok());
  EXPECT_EQ(store.Add("text", 1).status().message(), "key 'text' does not hold a number");
  EXPECT_EQ(*store.Add("large", std::numeric_limits<int64_t>::max()), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(store.Add("large", 1).status().message(), "key 'large' cannot count further");
}

TEST(InMemoryKeyValueStore, WaitersWakeWhenTheKeyArrives) {
  InMemoryKeyValueStore store;
  std::thread reader([&] { EXPECT_EQ(*store.Get("late", absl::Seconds(60)), Bytes("v")); });
  std::thread waiter([&] { EXPECT_TRUE(store.Wait({"late", "later"}, absl::Seconds(60)).ok()); });
  ASSERT_TRUE(store.Set("late", Bytes("v")).ok());
  ASSERT_TRUE(store.Set("later", Bytes("w")).ok());
  reader.join();
  waiter.join();
}

TEST(InMemoryKeyValueStore, ConcurrentAddsLoseNothing) {
  InMemoryKeyValueStore store;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 250; ++j) EXPECT_TRUE(store.Add("n", 1).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(*store.Add("n", 0), 1000);
}

}  // namespace
}  // namespace trainctl
