#include "rpc/header.h"

#include "absl/strings/str_cat.h"
#include "base/names.h"

namespace trainctl::rpc {

v1::Header MakeHeader(const Launch& launch, int64_t generation, int64_t incarnation) {
  v1::Header header;
  header.set_job(launch.job);
  header.set_term(launch.term);
  header.set_generation(generation);
  header.set_incarnation(incarnation);
  return header;
}

Launch LaunchOf(const v1::Header& header) { return {header.job(), header.term()}; }

absl::Status CheckHeader(const v1::Header& header, const Launch& own) {
  if (header.job() == own.job && header.term() == own.term) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("a message is of job ", QuotedName(header.job()),
                                                    ", term ", header.term(), "; this is ", own.job,
                                                    ", term ", own.term));
}

}  // namespace trainctl::rpc
