// Adapts a KeyValueStore to c10d::Store, so that the ranks set up their collectives through the rendezvous
// and need no second port. Errors of the KeyValueStore become c10::DistStoreError exceptions, as c10d
// expects. Thread-safe if the KeyValueStore is.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/key_value_store.h"

namespace trainctl::comm {

// `store` must outlive the result and its clones.
c10::intrusive_ptr<c10d::Store> MakeC10dStore(KeyValueStore& store);

}  // namespace trainctl::comm
