// A tokenizer file of any bytes, and a text: up to the first 0xFF byte the file, then the text. What is
// accepted must encode within its vocabulary and decode what it encoded.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t num_bytes) {
  const absl::string_view all(reinterpret_cast<const char*>(bytes), num_bytes);
  const size_t end = all.find('\xFF');
  const auto tokenizer = trainctl::tokenizer::Tokenizer::Parse(all.substr(0, end), "fuzz.json");
  if (!tokenizer.ok()) return 0;
  const absl::string_view text = end == absl::string_view::npos ? "some text </s>" : all.substr(end + 1);
  std::vector<int32_t> ids;
  if (!(*tokenizer)->EncodeDocument(text.substr(0, 4096), &ids).ok()) return 0;
  for (const int32_t id : ids) {
    if (id < 0 || id >= (*tokenizer)->vocab_size() || (*tokenizer)->IdOf((*tokenizer)->TokenOf(id)) != id) {
      std::abort();
    }
  }
  (void)(*tokenizer)->Decode(ids, false);
  (void)(*tokenizer)->Decode(ids, true);
  return 0;
}
