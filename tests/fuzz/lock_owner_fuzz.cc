// Fuzzes what a lock file says of its owner, which anybody who can write the folder may have written:
// whatever is read is an owner with all its words or with a pid at most, and is written and read back as the
// same.

#include <cstdint>

#include "base/lock_owner.h"
#include "base/status.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  using namespace trainctl;
  const LockOwner owner = ParseLockOwner({reinterpret_cast<const char*>(data), size_bytes});
  TRAINCTL_CHECK(owner.pid >= 0);
  TRAINCTL_CHECK(owner.host.empty() == owner.boot_id.empty());
  TRAINCTL_CHECK(owner.host.empty() == owner.pid_namespace.empty());
  const LockOwner again = ParseLockOwner(FormatLockOwner(owner));
  TRAINCTL_CHECK(FormatLockOwner(again) == FormatLockOwner(owner));
  TRAINCTL_CHECK(HasSameKernel(owner, owner));
  const LockOwner self = ThisProcessAsOwner();
  const bool is_of_here = owner.host.empty() || owner.host == self.host || HasSameKernel(owner, self);
  TRAINCTL_CHECK(HasSurelyEnded(owner, self) == is_of_here);
  return 0;
}
