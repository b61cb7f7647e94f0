#include "compiler/extend/variadic.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <optional>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::extend {
namespace {

using Json = JsonPlace::Json;

constexpr std::string_view kDots = "...";

bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\n"), end = text.find_last_not_of(" \t\n");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

// The text with words replaced.
std::string with_words(const std::string& text,
                       const std::map<std::string, std::string, std::less<>>& words) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && in_name(text[end])) ++end;
    if (end == at) {
      out += text[at++];
      continue;
    }
    const std::string word = text.substr(at, end - at);
    const auto known = words.find(word);
    out += known == words.end() ? word : known->second;
    at = end;
  }
  return out;
}

// Where the list item that ends before `end` begins: after the last comma or unclosed bracket before it.
size_t item_begin(const std::string& text, size_t end) {
  int depth = 0;
  for (size_t at = end; at-- > 0;) {
    const char c = text[at];
    if (c == ')' || c == ']' || c == '}') ++depth;
    if ((c == '(' || c == '[' || c == '{') && depth-- == 0) return at + 1;
    if (c == ',' && depth == 0) return at + 1;
  }
  return 0;
}

// The position of the bracket that matches the one at `close`.
std::optional<size_t> opening_of(const std::string& text, size_t close) {
  int depth = 0;
  for (size_t at = close; at-- > 0;) {
    if (text[at] == ')') ++depth;
    if (text[at] == '(' && depth-- == 0) return at;
  }
  return std::nullopt;
}

class Expander {
 public:
  Expander(const JsonPlace& declaration, const VariadicCounts& counts)
      : at_(declaration),
        inputs_(is_variadic(declaration, "inputs")),
        outputs_(is_variadic(declaration, "outputs")) {
    if (inputs_) add_list("inputs", counts.inputs);
    if (outputs_) add_list("outputs", counts.outputs);
  }

  Json run() {
    Json made = Json::object();
    for (const auto& [name, each] : at_.members()) {
      if (name == "inputs" || name == "outputs")
        made[name] = tensors(each, name == "inputs" ? inputs_ : outputs_);
      else if (name == "require")
        made[name] = requirements(each);
      else if (name == "body" || name == "reference" || name == "gradient" || name == "cost")
        made[name] = walked(each, false);
      else
        made[name] = each.value();
    }
    return made;
  }

 private:
  // Records the names that may be followed by '@', with their number of tensors.
  void add_list(const char* list, size_t count) {
    const JsonPlace last = at_.at(list).items().back();
    const std::string name = last.at("name").identifier();
    names_[name] = names_[cat("grad_", name)] = count;
    counts_[cat(name, "_count")] = cat(count);
    indices_.push_back(cat(name, "_index"));
    if (const auto shape = last.find("shape"))
      for (const JsonPlace& dim : shape->items())
        if (dim.value().is_string())
          for (const std::string& each : names_before_at(dim.text())) names_.emplace(each, count);
  }

  static std::vector<std::string> names_before_at(const std::string& text) {
    std::vector<std::string> out;
    for (size_t at = text.find('@'); at != std::string::npos; at = text.find('@', at + 1)) {
      size_t begin = at;
      while (begin > 0 && in_name(text[begin - 1])) --begin;
      out.push_back(text.substr(begin, at - begin));
    }
    return out;
  }

  // The number of tensors that each name followed by '@' in the text stands for; all have to agree.
  size_t count_of(const std::string& text, const JsonPlace& at) const {
    std::optional<size_t> count;
    std::string first;
    for (const std::string& name : names_before_at(text)) {
      const auto known = names_.find(name);
      if (known == names_.end()) at.fail(cat("'", name, "@' is neither a variadic tensor nor a dim of one"));
      if (count && *count != known->second)
        fail(ErrorKind::kDoesNotFit, "does-not-fit",
             cat(at.place(), ": '", first, "@' stands for ", *count, " tensors, and '", name, "@' for ",
                 known->second));
      count = known->second;
      first = name;
    }
    if (!count) at.fail(cat("'", trimmed(text), "' must name a variadic tensor, as x@ does"));
    return *count;
  }

  Json tensors(const JsonPlace& list, bool variadic) const {
    Json made = Json::array();
    const std::vector<JsonPlace> items = list.items();
    for (size_t i = 0; i < items.size(); ++i) {
      Json tensor = items[i].value();
      const bool many = variadic && i + 1 == items.size();
      tensor.erase("variadic");
      if (!many) {
        if (const auto shape = items[i].find("shape")) tensor["shape"] = walked(*shape, false);
        made.push_back(std::move(tensor));
        continue;
      }
      const std::string name = items[i].at("name").identifier();
      for (size_t k = 0; k < names_.at(name); ++k) {
        Json each = tensor;
        each["name"] = cat(name, "_", k);
        if (each.contains("shape"))
          for (Json& dim : each["shape"])
            if (dim.is_string()) dim = at_index(lists(dim.get<std::string>(), items[i].at("shape")), k);
        made.push_back(std::move(each));
      }
    }
    return made;
  }

  // A condition about each tensor is one for each.
  Json requirements(const JsonPlace& list) const {
    Json made = Json::array();
    for (const JsonPlace& each : list.items()) {
      const JsonPlace place = each.at("condition");
      const std::string condition = lists(place.text(), place);
      Json one = each.value();
      const size_t count = condition.find('@') == std::string::npos ? 0 : count_of(condition, place);
      if (count == 0) one["condition"] = condition, made.push_back(one);
      for (size_t k = 0; k < count; ++k) one["condition"] = at_index(condition, k), made.push_back(one);
    }
    return made;
  }

  // The value with all texts in it expanded. `code`: they are C, whose statements also end at braces.
  Json walked(const JsonPlace& at, bool code) const {
    if (at.value().is_string()) return statements(lists(at.text(), at), at, code);
    Json made = at.value();
    if (at.value().is_array()) {
      made = Json::array();
      for (const JsonPlace& each : at.items()) made.push_back(walked(each, code));
    } else if (at.value().is_object()) {
      made = Json::object();
      for (const auto& [name, each] : at.members()) {
        const auto many = names_.find(name);  // of strides
        const bool text = name == "c" || name == "text" || name == "point" || name == "nest";
        if (many == names_.end()) made[name] = walked(each, text);
        for (size_t k = 0; many != names_.end() && k < many->second; ++k)
          made[cat(name, "_", k)] = each.value();
      }
    }
    return made;
  }

  // "x_2" for "x@", and 2 for "x_index".
  std::string at_index(const std::string& text, size_t index) const {
    std::map<std::string, std::string, std::less<>> words;
    for (const std::string& name : indices_) words[name] = cat(index);
    return with_words(replaced(text, "@", cat("_", index)), words);
  }

  // x@... as a list, (x@ + ...) and f(x@, ...) as one term, and x_count as a number.
  std::string lists(std::string text, const JsonPlace& at) const {
    for (size_t dots = text.find(kDots); dots != std::string::npos; dots = text.find(kDots, dots)) {
      const size_t before = text.find_last_not_of(" \t\n", dots == 0 ? 0 : dots - 1);
      const bool pack =
          before != std::string::npos && before < dots &&
          (in_name(text[before]) || std::string_view("@])").find(text[before]) != std::string_view::npos);
      const size_t close = text.find_first_not_of(" \t\n", dots + kDots.size());
      const bool folds = !pack && close != std::string::npos && text[close] == ')' && opening_of(text, close);
      size_t begin = pack ? item_begin(text, dots) : folds ? *opening_of(text, close) : dots;
      const std::string item = text.substr(begin, dots - begin);
      if ((!pack && !folds) || item.find('@') == std::string::npos) {  // ...r of shapes, and C's own dots
        dots += kDots.size();
        continue;
      }
      const std::string made = pack ? list(item, at) : fold(text, begin, dots, at);
      text.replace(begin, (pack ? dots + kDots.size() : close + 1) - begin, made);
      dots = begin;
    }
    return with_words(text, counts_);
  }

  std::string list(const std::string& item, const JsonPlace& at) const {
    std::string made = item.substr(0, item.find_first_not_of(" \t\n"));
    const size_t count = count_of(item, at);
    for (size_t k = 0; k < count; ++k) made += cat(k ? ", " : "", at_index(trimmed(item), k));
    return made;
  }

  // Of "(item op ...)", or of "name(item, ...)", whose calls nest; `begin`: of the bracket, then of what is
  // replaced.
  std::string fold(const std::string& text, size_t& begin, size_t dots, const JsonPlace& at) const {
    std::string item = trimmed(text.substr(begin + 1, dots - begin - 1));
    size_t end = item.size();
    while (end > 0 && std::string_view("+-*/%&|^<>=!,").find(item[end - 1]) != std::string_view::npos) --end;
    const std::string sign = item.substr(end);
    item = trimmed(item.substr(0, end));
    if (sign.empty() || item.empty())
      at.fail("'...' must follow an operator or a comma: (x@ + ...), max(x@, ...)");
    const size_t count = count_of(item, at);
    std::string made = at_index(item, 0);
    if (sign != ",") {
      for (size_t k = 1; k < count; ++k) made += cat(" ", sign, " ", at_index(item, k));
      return cat("(", made, ")");
    }
    const size_t open = begin;
    while (begin > 0 && in_name(text[begin - 1])) --begin;
    const std::string name = text.substr(begin, open - begin);
    if (name.empty()) at.fail("'(x@, ...)' needs the name of a function of two arguments");
    for (size_t k = 1; k < count; ++k) made = cat(name, "(", made, ", ", at_index(item, k), ")");
    return made;
  }

  // Repeats each statement that still has an '@', once for each tensor, on one line.
  std::string statements(const std::string& text, const JsonPlace& at, bool code) const {
    if (text.find('@') == std::string::npos) return text;
    std::string out;
    size_t begin = 0;
    int depth = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (c == '(' || c == '[') ++depth;
      if (c == ')' || c == ']') --depth;
      const bool end =
          (depth == 0 && (c == ';' || (code && (c == '{' || c == '}')))) || c == '\n' || i + 1 == text.size();
      if (!end) continue;
      // A semicolon ends a statement of C, and separates those of formulas.
      const bool own = i + 1 == text.size() ? c != '}' || !code : code && c == ';';
      const std::string part = text.substr(begin, i + (own ? 1 : 0) - begin);
      if (part.find('@') == std::string::npos) {
        out += part;
      } else {
        const size_t count = count_of(part, at);
        for (size_t k = 0; k < count; ++k) out += cat(k ? (code ? " " : "; ") : "", at_index(part, k));
      }
      if (!own) out += c;
      begin = i + 1;
    }
    return out;
  }

  JsonPlace at_;
  bool inputs_, outputs_;
  std::map<std::string, size_t, std::less<>> names_;
  std::map<std::string, std::string, std::less<>> counts_;  // x_count
  std::vector<std::string> indices_;                        // x_index
};

}  // namespace

bool is_variadic(const JsonPlace& declaration, const char* list) {
  const std::vector<JsonPlace> items = declaration.at(list).items();
  for (size_t i = 0; i < items.size(); ++i) {
    const auto flag = items[i].find("variadic");
    if (!flag) continue;
    if (!flag->value().is_boolean()) flag->fail("expected true or false");
    if (!flag->value().get<bool>()) continue;
    if (i + 1 < items.size()) flag->fail("only the last one can stand for any number of tensors");
    if (items[i].find("default"))
      flag->fail("a variadic input cannot have a default: it stands for at least one tensor");
    return true;
  }
  return false;
}

Json expanded(const JsonPlace& declaration, const VariadicCounts& counts) {
  return Expander(declaration, counts).run();
}

}  // namespace stridec::extend
