#include "parallel/parameter_update.h"

#include <ATen/Parallel.h>

#include <utility>

#include "base/counter_rng.h"
#include "kernels/kernels.h"

namespace trainctl::parallel {
namespace {

constexpr int kBucketShift = 40;  // a bucket has fewer elements than 2^40

}  // namespace

kernels::UpdateOptions ParameterUpdate::KernelOptions() const {
  kernels::UpdateOptions options{.lr = options_.lr,
                                 .beta1 = options_.beta1,
                                 .beta2 = options_.beta2,
                                 .eps = options_.eps,
                                 .momentum = options_.momentum,
                                 .weight_decay = options_.weight_decay};
  options.rounding_key = static_cast<uint32_t>(RandomBits(options_.seed, StreamOf("rounding of masters"),
                                                          static_cast<uint64_t>(options_.update_number)));
  if (optimizer_.prepare != nullptr) optimizer_.prepare(options_.update_number, options);
  return options;
}

// A device's launch takes as long as a hundred thousand elements.
template <typename Property>
std::vector<layout::ParameterRange> ParameterUpdate::MergedRanges(int bucket, const Property& is) const {
  std::vector<layout::ParameterRange> merged;
  for (const layout::ParameterRange& range : state_.OwnRanges(bucket)) {
    if (!merged.empty() && merged.back().offset + merged.back().count == range.offset &&
        is(merged.back().parameter) == is(range.parameter)) {
      merged.back().count += range.count;
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

kernels::UpdateRange ParameterUpdate::RangeOf(const BucketRange& of, int64_t begin, int64_t end) const {
  kernels::UpdateRange range =
      optim::RangeOf(optimizer_, state_.master_dtype(), state_.parts(of.bucket),
                     state_.gradient_part(of.bucket), of.range.offset + begin, end - begin);
  range.number = (static_cast<uint64_t>(of.bucket) << kBucketShift) +
                 static_cast<uint64_t>(state_.first_element(of.bucket) + of.range.offset + begin);
  return range;
}

void ParameterUpdate::AddSquares(double* squares) const {
  const auto counts = [this](int parameter) {
    return state_.ledger().CountsInNorm(parameter, state_.rank());
  };
  std::vector<kernels::UpdateRange> counted;
  for (const int bucket : state_.buckets()) {
    for (const layout::ParameterRange& range : MergedRanges(bucket, counts)) {
      if (counts(range.parameter)) counted.push_back(RangeOf({bucket, range}, 0, range.count));
    }
  }
  Masters().sum_of_squares(squares, counted.data(), static_cast<int>(counted.size()));
}

void ParameterUpdate::Add(int bucket) {
  for (const layout::ParameterRange& range :
       MergedRanges(bucket, [this](int parameter) { return Decays(parameter); }))
    added_.push_back({bucket, range});
}

void ParameterUpdate::Launch(const kernels::UpdateOptions* there) {
  const std::vector<BucketRange> ranges = std::exchange(added_, {});
  const kernels::UpdateFunction update = Masters().For(optimizer_.rule);
  if (!state_.device().is_cpu()) {
    std::vector<kernels::UpdateRange> listed;
    for (const BucketRange& range : ranges) {
      listed.push_back(RangeOf(range, 0, range.range.count));
      listed.back().decays = Decays(range.range.parameter);
    }
    return update(listed.data(), static_cast<int>(listed.size()), there);
  }
  for (const BucketRange& range : ranges) {
    const int64_t count = range.range.count;
    at::parallel_for(0, count, (count + threads_ - 1) / threads_, [&](int64_t begin, int64_t end) {
      kernels::UpdateRange part = RangeOf(range, begin, end);
      part.decays = Decays(range.range.parameter);
      update(&part, 1, there);
    });
  }
}

const kernels::MasterKernels& ParameterUpdate::Masters() const {
  return state_.device().kernels().Masters(state_.master_dtype());
}

}  // namespace trainctl::parallel
