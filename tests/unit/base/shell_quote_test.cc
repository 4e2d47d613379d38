#include "base/shell_quote.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"

namespace trainctl {
namespace {

// What bash makes of the word.
std::string ReadByBash(const std::string& quoted) {
  // In a file's place of -c, so that nothing but the word itself is quoted.
  const std::string command = absl::StrCat("exec bash -c \"$(cat <<'END'\nprintf %s ", quoted, "\nEND\n)\"");
  FILE* shell = ::popen(command.c_str(), "r");
  std::string read;
  for (int c = std::fgetc(shell); c != EOF; c = std::fgetc(shell)) read += static_cast<char>(c);
  EXPECT_EQ(::pclose(shell), 0) << quoted;
  return read;
}

TEST(ShellQuote, IsReadAsTheWordThatItWas) {
  for (const std::string word : {"runs/llama-20260101-120000",
                                 "my run",
                                 "it's",
                                 "$HOME",
                                 "a;reboot",
                                 "*",
                                 "a\\b",
                                 "`id`",
                                 "a\"b",
                                 "",
                                 "#x",
                                 "~",
                                 "a\x1b[31mb",
                                 "tab\there",
                                 "two\nlines",
                                 "caf\xC3\xA9 1",
                                 "csi\xC2\x9B"
                                 "31m",
                                 "1\x01"
                                 "2'\\3",
                                 "run with 'both' \"quotes\"",
                                 "train.steps=1",
                                 "!x",
                                 "{a,b}",
                                 "a&b",
                                 "(",
                                 "<"}) {
    EXPECT_EQ(ReadByBash(ShellQuote(word)), word) << ShellQuote(word);
  }
}

TEST(ShellQuote, ShowsNothingThatSteersATerminal) {
  EXPECT_EQ(ShellQuote("runs/a-1.2"), "runs/a-1.2");
  EXPECT_EQ(ShellQuote("caf\xC3\xA9"), "caf\xC3\xA9");
  EXPECT_EQ(ShellQuote("my run"), "'my run'");
  EXPECT_EQ(ShellQuote("a\x1b[31m"), "$'a\\033[31m'");
  EXPECT_EQ(ShellQuote("a\xC2\x9B"), "$'a\\302\\233'");
}

}  // namespace
}  // namespace trainctl
