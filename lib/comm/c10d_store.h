// A c10d::Store over KeyValueStore: collectives come up through the rendezvous, there is no second
// port. Errors become c10 exceptions, as c10d expects. Thread safe as the store below it.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/key_value_store.h"

namespace trainctl::comm {

// `store` must outlive what is returned.
c10::intrusive_ptr<c10d::Store> MakeC10dStore(KeyValueStore& store);

}  // namespace trainctl::comm
