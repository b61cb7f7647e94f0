#include "cli/response_file.h"

#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

constexpr int kMostNested = 10;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// The length of the line continuation (a backslash and a line end) that the text begins with; 0: there is
// none.
size_t continuation(std::string_view text) {
  if (text.starts_with("\\\n")) return 2;
  return text.starts_with("\\\r\n") ? 3 : 0;
}

std::vector<std::string> words_of(const std::string& text, const std::string& file) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = std::string_view(text).substr(at);
    if (const size_t skipped = is_space(text[at]) ? 1 : continuation(rest)) {
      at += skipped;
      continue;
    }
    if (text[at] == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    std::string word;
    for (char quote = 0; at < text.size() && (quote || !is_space(text[at])); ++at) {
      const char c = text[at];
      if (quote == 0 && (c == '\'' || c == '"')) {
        quote = c;
        const size_t end = text.find(quote, at + 1);
        if (end == std::string::npos)
          fail(ErrorKind::kUsage, "bad-response-file", cat("'", file, "': a quote is not closed"),
               "close it, or write \\' and \\\" for plain quotes");
      } else if (c == quote) {
        quote = 0;
      } else if (c == '\\' && quote != '\'' && at + 1 < text.size()) {
        if (const size_t length = continuation(std::string_view(text).substr(at)))
          at += length - 1;
        else
          word += text[++at];
      } else {
        word += c;
      }
    }
    words.push_back(std::move(word));
  }
  return words;
}

// An option's value may begin with '@' by accident, such as an input's name.
std::string read_response_file(const std::string& file) {
  try {
    return read_file(file);
  } catch (Error& error) {
    Diagnostic& d = error.diagnostic;
    d.message = cat("'@", file, "' stands for the words in a response file: ", d.message);
    d.help = cat("a value that begins with '@' is joined to its option, as in --input='@", file,
                 "'; behind '--', no word is a response file");
    throw;
  }
}

void expand(const std::vector<std::string>& arguments, int depth, std::vector<std::string>& out) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      out.insert(out.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
      return;
    }
    if (argument.size() < 2 || argument[0] != '@') {
      out.push_back(argument);
      continue;
    }
    const std::string file = argument.substr(1);
    if (depth == kMostNested)
      fail(ErrorKind::kUsage, "bad-response-file",
           cat("response files are nested more than ", kMostNested, " deep at '", argument, "'"),
           "a response file must not name itself");
    expand(words_of(read_response_file(file), file), depth + 1, out);
  }
}

}  // namespace

std::vector<std::string> expand_response_files(const std::vector<std::string>& arguments) {
  std::vector<std::string> out;
  expand(arguments, 0, out);
  return out;
}

}  // namespace stridec::cli
