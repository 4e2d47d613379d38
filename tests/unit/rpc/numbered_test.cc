// Two ends over connections that break at any moment: each message arrives once and in order.
#include "rpc/numbered.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

namespace trainctl::rpc {
namespace {

class Note {
 public:
  Note() = default;
  explicit Note(int what) : what_(what) {}
  uint64_t seq() const { return seq_; }
  void set_seq(uint64_t seq) { seq_ = seq; }
  int what() const { return what_; }

 private:
  uint64_t seq_ = 0;
  int what_ = 0;
};

TEST(NumberedTest, WithoutAConnectionNothingIsSentAndNothingNumberedIsLost) {
  Outbox<Note> outbox;
  EXPECT_EQ(outbox.Add(Note(1)), 1u);
  outbox.AddOfTheMoment(Note(2));
  EXPECT_EQ(outbox.Next(), nullptr);
  outbox.Connect();
  EXPECT_EQ(outbox.Next()->what(), 1);
  EXPECT_EQ(outbox.Next(), nullptr) << "what was of a moment without a connection is gone";
}

TEST(NumberedTest, WhatIsAcknowledgedIsForgottenAndNotSentAgain) {
  Outbox<Note> outbox;
  outbox.Connect();
  for (int i = 1; i <= 4; ++i) outbox.Add(Note(i));
  while (outbox.Next() != nullptr) continue;
  std::vector<int> forgotten;
  outbox.Acknowledge(2, [&](const Note& note) { forgotten.push_back(note.what()); });
  outbox.Acknowledge(1, [&](const Note& note) { forgotten.push_back(note.what()); });
  EXPECT_EQ(forgotten, (std::vector<int>{1, 2}));
  EXPECT_FALSE(outbox.is_all_acked());
  outbox.Connect();
  EXPECT_EQ(outbox.Next()->what(), 3);
  outbox.Acknowledge(4);
  EXPECT_EQ(outbox.Next(), nullptr);
  EXPECT_TRUE(outbox.is_all_acked());
}

TEST(NumberedTest, AnAcknowledgementOfWhatWasNeverSaidIsOfNoAccount) {
  Outbox<Note> outbox;
  outbox.Add(Note(1));
  outbox.Acknowledge(UINT64_MAX);
  EXPECT_EQ(outbox.acked(), 0u);
  outbox.Connect();
  EXPECT_EQ(outbox.Next()->what(), 1);
}

TEST(NumberedTest, AGapIsSeen) {
  Inbox inbox;
  EXPECT_EQ(inbox.Take(1), Inbox::Verdict::kNew);
  EXPECT_EQ(inbox.Take(0), Inbox::Verdict::kNew);
  EXPECT_EQ(inbox.Take(1), Inbox::Verdict::kRepeated);
  EXPECT_EQ(inbox.Take(3), Inbox::Verdict::kGap);
  EXPECT_EQ(inbox.Take(2), Inbox::Verdict::kNew);
  EXPECT_EQ(inbox.last(), 2u);
}

// A connection delivers a prefix of what was sent, in order, and so do acknowledgements on their way back.
TEST(NumberedTest, EachMessageArrivesOnceAndInOrderHoweverOftenTheConnectionBreaks) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    const auto chance = [&](int percent) {
      return std::uniform_int_distribution<int>(0, 99)(random) < percent;
    };
    Outbox<Note> outbox;
    Inbox inbox;
    std::deque<Note> on_the_way;
    std::deque<uint64_t> acks;
    std::vector<int> heard;
    int said = 0;
    int num_moments = 0;
    bool is_connected = false;
    while (said < 200 || !outbox.is_all_acked()) {
      if (said < 200 && chance(40)) outbox.Add(Note(++said));
      if (chance(20)) outbox.AddOfTheMoment(Note(-1));
      if (!is_connected && chance(50)) {
        outbox.Connect();
        is_connected = true;
      }
      if (is_connected && chance(70)) {
        if (const Note* next = outbox.Next(); next != nullptr) on_the_way.push_back(*next);
      }
      if (!on_the_way.empty() && chance(60)) {
        const Note note = on_the_way.front();
        on_the_way.pop_front();
        const Inbox::Verdict verdict = inbox.Take(note.seq());
        ASSERT_NE(verdict, Inbox::Verdict::kGap) << "seed " << seed;
        if (note.seq() == 0) {
          ++num_moments;
        } else if (verdict == Inbox::Verdict::kNew) {
          heard.push_back(note.what());
        }
        acks.push_back(inbox.last());
      }
      if (!acks.empty() && chance(50)) {
        outbox.Acknowledge(acks.front());
        acks.pop_front();
      }
      if (is_connected && chance(5)) {
        on_the_way.clear();
        acks.clear();
        outbox.Disconnect();
        is_connected = false;
      }
    }
    ASSERT_EQ(heard.size(), 200u) << "seed " << seed;
    for (int i = 0; i < 200; ++i) ASSERT_EQ(heard[static_cast<size_t>(i)], i + 1) << "seed " << seed;
    EXPECT_GT(num_moments, 0);
  }
}

}  // namespace
}  // namespace trainctl::rpc
