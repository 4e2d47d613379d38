// The rules of PyTorch's caching allocator (c10/cuda/CUDACachingAllocator.cpp: sizes in units of 512 bytes,
// segments of 20 MiB below 10 MiB and in units of 2 MiB above, best fit, blocks split if more than 1 MiB is
// left, neighbours joined when free), under a recomputing pipeline rank: what is reserved beyond the tensors'
// own peak.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

namespace trainctl::frameworks {
namespace {

constexpr double kMiB = 1024.0 * 1024;
constexpr double kGiB = 1024 * kMiB;

class Allocator {
 public:
  using Address = int64_t;

  Address New(double bytes) {
    const int64_t size = std::max<int64_t>(512, (static_cast<int64_t>(bytes) + 511) / 512 * 512);
    auto best = free_.lower_bound({size, 0});
    if (best == free_.end()) {
      const int64_t segment =
          size < 10 * kUnit ? 20 * kUnit : (size + 2 * kUnit - 1) / (2 * kUnit) * (2 * kUnit);
      next_ += int64_t{1} << 50;  // segments are not neighbours
      blocks_[next_] = {segment, true};
      reserved_ += segment;
      best = free_.insert({segment, next_}).first;
    }
    const auto [found, address] = *best;
    free_.erase(best);
    if (found - size > kUnit) {
      blocks_[address + size] = {found - size, true};
      free_.insert({found - size, address + size});
      blocks_[address].size = size;
    }
    blocks_[address].is_free = false;
    allocated_ += blocks_[address].size;
    peak_ = std::max(peak_, allocated_);
    return address;
  }

  void Delete(Address address) {
    auto it = blocks_.find(address);
    allocated_ -= it->second.size;
    it->second.is_free = true;
    const auto next = std::next(it);
    if (next != blocks_.end() && next->second.is_free && it->first + it->second.size == next->first) {
      free_.erase({next->second.size, next->first});
      it->second.size += next->second.size;
      blocks_.erase(next);
    }
    if (it != blocks_.begin()) {
      const auto before = std::prev(it);
      if (before->second.is_free && before->first + before->second.size == it->first) {
        free_.erase({before->second.size, before->first});
        before->second.size += it->second.size;
        blocks_.erase(it);
        it = before;
      }
    }
    free_.insert({it->second.size, it->first});
  }

  void DeleteAll(const std::vector<Address>& addresses) {
    for (Address address : addresses) Delete(address);
  }

  double beyond_peak() const { return static_cast<double>(reserved_ - peak_); }

 private:
  static constexpr int64_t kUnit = 1024 * 1024;
  struct Block {
    int64_t size = 0;
    bool is_free = false;
  };
  std::map<Address, Block> blocks_;
  std::set<std::pair<int64_t, Address>> free_;
  Address next_ = 0;
  int64_t reserved_ = 0, allocated_ = 0, peak_ = 0;
};

TEST(CachingAllocator, FollowsItsRules) {
  Allocator a;
  const auto first = a.New(100 * kMiB);
  a.Delete(first);
  const auto part = a.New(30 * kMiB);  // cut from the free block
  EXPECT_EQ(part, first);
  const auto rest = a.New(70 * kMiB);
  EXPECT_EQ(rest, first + static_cast<int64_t>(30 * kMiB));
  EXPECT_DOUBLE_EQ(a.beyond_peak(), 0);
  a.Delete(part);
  a.New(31 * kMiB);  // does not fit where 30 were; of a segment of 32 the last one is not worth cutting off
  EXPECT_DOUBLE_EQ(a.beyond_peak(), 100 * kMiB + 32 * kMiB - 102 * kMiB);
}

struct Layout {
  int64_t hidden, heads, tp, pp, layers, micro_batch, vocab;
};

// The first rank of a 1F1B pipeline whose layers are recomputed one by one, the scores written to memory.
class Rank {
 public:
  explicit Rank(const Layout& l) : l_(l) {
    const double h = static_cast<double>(l.hidden), tp = static_cast<double>(l.tp);
    stream_ = 2048.0 * static_cast<double>(l.micro_batch) * h * 2;
    scores_ = static_cast<double>(l.micro_batch * l.heads / l.tp) * 2048 * 2048 * 2;
    square_ = h * h / tp * 2;
    table_ = static_cast<double>(l.vocab) * h / tp * 2;
  }

  double Run() {
    a_.New(static_cast<double>(l_.layers) * 12 * square_ + table_);  // weights
    gradients_.resize(static_cast<size_t>(l_.layers));
    int64_t forwards = 0;
    for (; forwards < l_.pp - 1; ++forwards) Forward();
    for (int64_t backwards = 0; backwards < 3 * l_.pp; ++backwards) {
      if (forwards++ < 3 * l_.pp) Forward();
      Backward();
    }
    return a_.beyond_peak();
  }

  double largest_gradient() const { return 4 * square_; }
  double table() const { return table_; }
  // As arXiv 2205.05198 counts a layer with dropout, and the gradient of its widest value.
  double layer_bytes() const {
    return stream_ / 2 * (10 + 24.0 / static_cast<double>(l_.tp)) - stream_ + 2.5 * scores_ + 2.5 * scores_;
  }
  double kept_by_others() const { return static_cast<double>((l_.pp - 1) * l_.layers) * stream_; }

 private:
  using Address = Allocator::Address;

  // Returns the output; `kept`: what a backward needs, in the order of its use from the end.
  Address Layer(bool keeps, std::vector<Address>& kept) {
    const double part = stream_ / static_cast<double>(l_.tp);
    const Address norm = a_.New(stream_), qkv = a_.New(3 * part);
    const Address biased = a_.New(scores_), raw = a_.New(scores_), probabilities = a_.New(scores_);
    const Address mask = a_.New(scores_ / 2), dropped = a_.New(scores_);
    if (!keeps) a_.DeleteAll({probabilities, mask});
    const Address context = a_.New(part), merged = a_.New(part);
    a_.DeleteAll({biased, raw, context});
    if (!keeps) a_.Delete(dropped);
    const Address projected = a_.New(stream_);
    if (!keeps) a_.DeleteAll({merged, qkv});
    const Address first_mask = a_.New(stream_ / 2), residual = a_.New(stream_);
    a_.Delete(projected);
    if (!keeps) a_.Delete(first_mask);
    const Address second_norm = a_.New(stream_), wide = a_.New(4 * part), activated = a_.New(4 * part);
    if (!keeps) a_.Delete(wide);
    const Address narrow = a_.New(stream_);
    if (!keeps) a_.Delete(activated);
    const Address second_mask = a_.New(stream_ / 2), out = a_.New(stream_);
    a_.Delete(narrow);
    if (keeps) {
      kept = {second_mask, activated, wide, second_norm,   residual, first_mask,
              merged,      dropped,   mask, probabilities, qkv,      norm};
    } else {
      a_.DeleteAll({second_mask, norm, residual, second_norm});
    }
    return out;
  }

  void Forward() {
    std::vector<Address> inputs = {a_.New(stream_)};
    std::vector<Address> none;
    for (int64_t i = 0; i < l_.layers; ++i) inputs.push_back(Layer(false, none));
    a_.Delete(inputs.back());
    inputs.pop_back();
    in_flight_.push_back(inputs);
  }

  // A gradient stays if it is the first, and is added to that one otherwise.
  void Weight(double squares, std::vector<Address>& mine, bool is_first) {
    const Address gradient = a_.New(squares * square_);
    is_first ? mine.push_back(gradient) : a_.Delete(gradient);
  }

  void Backward() {
    const std::vector<Address> inputs = in_flight_.front();
    in_flight_.erase(in_flight_.begin());
    const double part = stream_ / static_cast<double>(l_.tp);
    Address gradient = a_.New(stream_);
    for (size_t i = inputs.size(); i-- > 0;) {
      std::vector<Address> kept;
      a_.Delete(Layer(true, kept));
      std::vector<Address>& mine = gradients_[i];
      const bool is_first = mine.empty();
      const auto replace = [&](Address old, double bytes) {
        const Address made = a_.New(bytes);
        a_.Delete(old);
        return made;
      };
      Address g = a_.New(stream_);
      a_.Delete(kept[0]);
      g = replace(g, 4 * part);
      Weight(4, mine, is_first);
      g = replace(g, 4 * part);
      a_.DeleteAll({kept[1], kept[2]});
      g = replace(g, stream_);
      Weight(4, mine, is_first);
      const Address at_residual = a_.New(stream_);
      a_.DeleteAll({kept[3], kept[4], gradient, g});
      g = a_.New(stream_);
      a_.Delete(kept[5]);
      g = replace(g, part);
      Weight(1, mine, is_first);
      a_.Delete(kept[6]);
      Address s = a_.New(scores_);
      const Address values = a_.New(part);
      a_.DeleteAll({kept[7], g});
      s = replace(s, scores_);
      a_.Delete(kept[8]);
      s = replace(s, scores_);
      a_.Delete(kept[9]);
      const Address queries = a_.New(part), keys = a_.New(part);
      a_.Delete(s);
      g = a_.New(3 * part);
      a_.DeleteAll({queries, keys, values, kept[10]});
      const Address at_norm = a_.New(stream_);
      Weight(3, mine, is_first);
      a_.DeleteAll({g, kept[11]});
      gradient = a_.New(stream_);
      a_.DeleteAll({at_norm, at_residual, inputs[i]});
    }
    a_.Delete(gradient);
    const Address table = a_.New(table_);
    if (has_table_) a_.Delete(table);
    has_table_ = true;
  }

  Layout l_;
  double stream_ = 0, scores_ = 0, square_ = 0, table_ = 0;
  Allocator a_;
  std::vector<std::vector<Address>> in_flight_;
  std::vector<std::vector<Address>> gradients_;
  bool has_table_ = false;
};

// What price_memory.cc adds for it: the gradients of the embedding and of the largest weight of a layer,
// formed beside those they are added to, and a layer's working set again, at most a sixth of what other
// micro-batches keep.
TEST(CachingAllocator, HolesAreWhatThePriceAdds) {
  double simulated = 0, priced = 0;
  int layouts = 0;
  for (int64_t hidden : {8192, 12288, 14336}) {
    for (int64_t heads : {64, 128}) {
      for (int64_t tp : {4, 8}) {
        for (int64_t pp : {4, 8, 12}) {
          for (int64_t micro_batch : {1, 2, 4}) {
            Rank rank({hidden, heads, tp, pp, 8, micro_batch, 250880});
            simulated += rank.Run() / kGiB;
            priced += (rank.table() + rank.largest_gradient() +
                       std::min(rank.layer_bytes(), rank.kept_by_others() / 6)) /
                      kGiB;
            ++layouts;
          }
        }
      }
    }
  }
  EXPECT_GT(simulated / layouts, 1);
  EXPECT_NEAR(priced / simulated, 1, 0.25);
}

// Llama 3 8B fully sharded over eight ranks as torchtitan runs it: a block's weights are gathered while the
// block before runs and dropped after it, kept of a block are its input, attention and every second product.
class ShardedModel {
 public:
  explicit ShardedModel(double tokens)
      : stream_(tokens * 4096 * 2), keys_(tokens * 1024 * 2), wide_(tokens * 14336 * 2) {}

  double Run() {
    for (int i = 0; i < kLayers; ++i) Shards(states_);
    for (int step = 0; step < 3; ++step) {
      std::vector<Address> gradients;
      Forward();
      Backward(gradients);
      if (step == 0) {
        for (int i = 0; i < 2 * kLayers; ++i) Shards(states_);  // both moments
      }
      a_.DeleteAll(gradients);
    }
    return a_.beyond_peak();
  }

  double block() const { return block_; }
  double stream() const { return stream_; }
  double keys() const { return keys_; }
  double wide() const { return wide_; }

 private:
  using Address = Allocator::Address;
  static constexpr int kLayers = 32;

  std::vector<Address> Gather() {
    std::vector<Address> weights;
    for (double weight : weights_) weights.push_back(a_.New(weight));
    return weights;
  }
  void Shards(std::vector<Address>& shards) {
    for (double weight : weights_) shards.push_back(a_.New(weight / 2 * 4 / 8));
  }

  void Forward() {
    Address x = a_.New(stream_);
    std::vector<Address> weights = Gather();
    for (int i = 0; i < kLayers; ++i) {
      const std::vector<Address> next = i + 1 < kLayers ? Gather() : std::vector<Address>();
      const Address norm = a_.New(stream_), q = a_.New(stream_), k = a_.New(keys_), v = a_.New(keys_);
      a_.Delete(norm);
      const Address turned_q = a_.New(stream_), turned_k = a_.New(keys_);
      a_.Delete(k);
      const Address attended = a_.New(stream_);
      a_.DeleteAll({turned_q, turned_k});
      const Address projected = a_.New(stream_), middle = a_.New(stream_);
      a_.Delete(projected);
      const Address second_norm = a_.New(stream_), gate = a_.New(wide_), up = a_.New(wide_);
      a_.Delete(second_norm);
      const Address product = a_.New(wide_);
      a_.Delete(up);
      const Address down = a_.New(stream_);
      a_.Delete(product);
      kept_.push_back({x, q, v, attended, gate, down});
      x = a_.New(stream_);
      a_.Delete(middle);
      a_.DeleteAll(weights);
      weights = next;
    }
    a_.Delete(x);
  }

  void Backward(std::vector<Address>& gradients) {
    Address gradient = a_.New(stream_);
    std::vector<Address> weights = Gather(), sent;
    for (int i = kLayers - 1; i >= 0; --i) {
      const std::vector<Address> next = i > 0 ? Gather() : std::vector<Address>();
      const std::vector<Address> kept = kept_.back();
      kept_.pop_back();
      const Address norm = a_.New(stream_), k = a_.New(keys_), turned_q = a_.New(stream_);
      const Address turned_k = a_.New(keys_);
      a_.Delete(k);
      const Address middle = a_.New(stream_), second_norm = a_.New(stream_);
      const Address up = a_.New(wide_), product = a_.New(wide_);
      std::vector<Address> mine = {a_.New(weights_[6])};
      const Address at_product = a_.New(wide_);
      a_.Delete(product);
      const Address at_gate = a_.New(wide_), at_up = a_.New(wide_);
      a_.DeleteAll({at_product, up, kept[4]});
      mine.push_back(a_.New(weights_[4]));
      const Address from_gate = a_.New(stream_);
      a_.Delete(at_gate);
      mine.push_back(a_.New(weights_[5]));
      const Address from_up = a_.New(stream_);
      a_.DeleteAll({at_up, second_norm});
      const Address at_middle = a_.New(stream_);
      a_.DeleteAll({from_gate, from_up, middle, kept[5], gradient});
      mine.push_back(a_.New(weights_[3]));
      const Address at_attended = a_.New(stream_), at_q = a_.New(stream_), at_k = a_.New(keys_);
      const Address at_v = a_.New(keys_);
      a_.DeleteAll({at_attended, turned_q, turned_k, kept[1], kept[2], kept[3]});
      for (size_t w : {0, 1, 2}) mine.push_back(a_.New(weights_[w]));
      const Address at_norm = a_.New(stream_);
      a_.DeleteAll({at_q, at_k, at_v, norm});
      gradient = a_.New(stream_);
      a_.DeleteAll({at_norm, at_middle, kept[0]});
      const Address flat = a_.New(block_ * 2);  // fp32, while the one before is on its way
      a_.DeleteAll(sent);
      sent = {flat};
      Shards(gradients);
      a_.DeleteAll(mine);
      a_.DeleteAll(weights);
      weights = next;
    }
    a_.DeleteAll(sent);
    a_.Delete(gradient);
  }

  const std::vector<double> weights_ = {4096.0 * 4096 * 2, 4096.0 * 1024 * 2,  4096.0 * 1024 * 2,
                                        4096.0 * 4096 * 2, 4096.0 * 14336 * 2, 4096.0 * 14336 * 2,
                                        4096.0 * 14336 * 2};
  const double block_ = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  double stream_, keys_, wide_;
  Allocator a_;
  std::vector<Address> states_;
  std::vector<std::vector<Address>> kept_;
};

// What price_memory.cc adds without segments that grow: the working set of a block once more, which is what
// it recomputes, the gradient of its widest value, two gathered blocks and a block's gradient in fp32.
TEST(CachingAllocator, AShardedModelNeedsABlocksWorkingSetTwice) {
  for (double tokens : {8192.0, 16384.0}) {
    ShardedModel model(tokens);
    const double beyond = model.Run();
    const double recomputed = 4 * model.stream() + 2 * model.keys() + 2 * model.wide();
    const double working_set = recomputed + 2 * model.wide() + model.block() * 2 + model.block() * 2;
    EXPECT_NEAR(beyond / working_set, 1, 0.25) << tokens << " tokens: " << beyond / kGiB << " GiB";
  }
}

}  // namespace
}  // namespace trainctl::frameworks
