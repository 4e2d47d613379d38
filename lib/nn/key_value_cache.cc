#include "nn/key_value_cache.h"

#include "base/status.h"
#include "device/aten.h"

namespace trainctl::nn {

void KeyValueCache::Append(const at::Tensor& keys, const at::Tensor& values) {
  const int64_t added = keys.size(1);
  TRAINCTL_CHECK_MSG(num_tokens_ + added <= capacity_, num_tokens_, " and ", added,
                     " tokens do not fit a cache of ", capacity_);
  if (!keys_.defined()) {
    keys_ = at::empty({keys.size(0), capacity_, keys.size(2)}, keys.options());
    values_ = at::empty_like(keys_);
  }
  keys_.narrow(1, num_tokens_, added).copy_(keys);
  values_.narrow(1, num_tokens_, added).copy_(values);
  num_tokens_ += added;
}

at::Tensor KeyValueCache::keys() const { return keys_.narrow(1, 0, num_tokens_); }

at::Tensor KeyValueCache::values() const { return values_.narrow(1, 0, num_tokens_); }

}  // namespace trainctl::nn
