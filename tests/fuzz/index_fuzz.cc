// The index of a token dataset, from memory. The first 8 bytes are the size of the data file it claims to
// index. An index that is accepted must answer every question without leaving its bytes or the data file.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "data/index_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t num_bytes) {
  uint64_t data_bytes = 0;
  if (num_bytes < sizeof(data_bytes)) return 0;
  std::memcpy(&data_bytes, bytes, sizeof(data_bytes));
  data_bytes &= INT64_MAX;
  // A copy of its own, so that one byte too far is seen.
  const std::vector<uint8_t> index(bytes + sizeof(data_bytes), bytes + num_bytes);
  const auto view = trainctl::data::IndexView::Parse(index, "fuzz.idx", static_cast<int64_t>(data_bytes));
  if (!view.ok()) return 0;
  int64_t num_tokens = 0;
  for (int64_t document = 0; document < view->num_documents(); ++document) {
    const int64_t offset = view->DocumentOffset(document);
    const int64_t tokens = view->DocumentTokens(document);
    if (offset < 0 || tokens < 0) std::abort();
    const uint64_t end = static_cast<uint64_t>(offset) +
                         static_cast<uint64_t>(tokens * trainctl::data::TokenBytes(view->token_type()));
    if (end > data_bytes) std::abort();
    num_tokens += tokens;
  }
  if (num_tokens != view->num_tokens()) std::abort();
  return 0;
}
