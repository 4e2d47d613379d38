#include "data/text_encoding.h"

#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/shell_quote.h"
#include "base/status.h"

namespace trainctl::data {
namespace {

struct Encoding {
  absl::string_view mark;
  const char* name;
};
// UTF-16's mark is the beginning of one of UTF-32's.
constexpr std::array<Encoding, 4> kOtherEncodings = {{
    {{"\xff\xfe\0\0", 4}, "UTF-32"},
    {{"\0\0\xfe\xff", 4}, "UTF-32"},
    {{"\xff\xfe", 2}, "UTF-16"},
    {{"\xfe\xff", 2}, "UTF-16"},
}};
constexpr absl::string_view kUtf8Mark = "\xef\xbb\xbf";

}  // namespace

absl::StatusOr<size_t> ByteOrderMarkBytes(absl::string_view begin, const std::string& path) {
  if (absl::StartsWith(begin, kUtf8Mark)) return kUtf8Mark.size();
  for (const Encoding& encoding : kOtherEncodings) {
    if (!absl::StartsWith(begin, encoding.mark)) continue;
    return BadDataError(absl::StrCat(path, " is ", encoding.name,
                                     " text, but trainctl reads UTF-8. Convert it: ", "iconv -f ",
                                     encoding.name, " -t UTF-8 ", ShellQuote(path), " > NEW_FILE"));
  }
  return 0;
}

}  // namespace trainctl::data
